"""Checks of a party's tables: one pass over each finds everything that any stage would reject."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import quoted
from florist.common.data.feature_store import FeatureStore
from florist.common.data.labels import held_out_labels, training_labels
from florist.common.data.scan_table import scan_table
from florist.common.evaluation.metric_estimates import check_labels
from florist.common.session.run_directory import RunDirectory
from florist.common.stages.evaluation_checks import (
    PeopleAnnouncement,
    check_kept_union,
    table_settings,
)
from florist.common.storage.files import FolderStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from florist.common.data.id_check import IdSummary
    from florist.common.data.labels import Labels
    from florist.common.data.preprocessing import Preprocessing
    from florist.common.data.scan_table import TableScan
    from florist.common.session.alignment_result import TableName
    from florist.common.settings.data import Table
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.role import Role

T = TypeVar("T")

#: What the tables are called in messages to the peer.
TABLE_TITLES: dict[TableName, str] = {
    "train": "training",
    "test": "test",
    "evaluation": "evaluation",
}


@dataclass(frozen=True, slots=True)
class ValidatedTable:
    """What is known of a table that can be used."""

    ids: IdSummary
    preprocessing: Preprocessing
    #: The names of the classes and the number of rows of each; empty without labels.
    class_names: tuple[str, ...] = ()
    class_counts: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.ids.count


class TableValidation:
    """The tables of one party, each of which is read and checked when first asked for.

    A table that was rejected is not read again: the same error is raised each time.
    """

    def __init__(self, role: Role, config: PartyConfig) -> None:
        self._role = role
        self._config = config
        self.train = _Once(self._train)
        self.test = _Once(self._test)
        self.evaluation = _Once(self._evaluation)

    @property
    def checked_ids(self) -> dict[TableName, IdSummary]:
        """The IDs of the tables that were found to be valid so far."""
        tables: dict[TableName, _Once[ValidatedTable]] = {
            "train": self.train,
            "test": self.test,
            "evaluation": self.evaluation,
        }
        return {name: once.result.ids for name, once in tables.items() if once.result is not None}

    def _train(self) -> ValidatedTable:
        config, agreement = self._config, self._config.agreement.training
        with told_as("its settings do not fit its role"):
            check_label_setting(self._role, config)
        with told_as("its training table was rejected"):
            scan = self._scan(config.data.train)
            self._role.check_features(scan.preprocessing)
            labels = training_labels(scan.labels, agreement) if scan.labels else None
        with told_as("its settings do not fit its training table"):
            check_batch_size(config, scan.rows)
        return _validated(scan, labels, agreement.classes)

    def _test(self) -> ValidatedTable:
        agreement, train = self._config.agreement.training, self.train()
        with told_as("its test table was rejected"):
            scan = self._scan(test_table_settings(self._config), train.preprocessing)
            names = train.class_names
            labels = held_out_labels(scan.labels, agreement, names) if scan.labels else None
        return _validated(scan, labels, agreement.classes)

    def _evaluation(self) -> ValidatedTable:
        config, train = self._config, self.train()
        classes = config.agreement.training.classes
        with told_as("its evaluation table was rejected"):
            scan = self._scan(table_settings(config), train.preprocessing)
            labels = None
            if scan.labels:
                labels = scan.labels.labels(classes, names=train.class_names)
                check_labels(labels.classes, classes)
            PeopleAnnouncement(self._role, config, scan.rows).check()
            runs = RunDirectory(config.run_directory)
            check_kept_union(runs, scan.fingerprint, config.agreement.evaluation)
        return _validated(scan, labels, classes)

    def _scan(self, table: Table, known: Preprocessing | None = None) -> TableScan:
        """Read a table once; nothing of its rows is kept."""
        config = self._config
        return scan_table(
            table,
            config.agreement.id_normalisation,
            config.data.preprocessing,
            FeatureStore(0, FolderStorage(config.run_directory)),
            known=known,
            with_labels=self._role.has_labels,
        )


def _validated(scan: TableScan, labels: Labels | None, classes: int) -> ValidatedTable:
    if labels is None:
        return ValidatedTable(scan.id_summary, scan.preprocessing)
    counts = np.bincount(labels.classes, minlength=classes)
    return ValidatedTable(scan.id_summary, scan.preprocessing, labels.names, tuple(counts.tolist()))


class _Once(Generic[T]):
    """Calls a function once; returns its result, or raises its error, each time."""

    def __init__(self, compute: Callable[[], T]) -> None:
        self._compute = compute
        self.result: T | None = None
        self._error: ConfigurationError | None = None

    def __call__(self) -> T:
        if self._error is not None:
            raise self._error
        if self.result is None:
            try:
                self.result = self._compute()
            except ConfigurationError as error:
                self._error = error
                raise
        return self.result


@contextmanager
def told_as(text: str) -> Iterator[None]:
    """Have the peer told `text` about a `ConfigurationError` in the block."""
    try:
        yield
    except ConfigurationError as error:
        error.told_to_peer = text
        raise


def check_label_setting(role: Role, config: PartyConfig) -> None:
    """Check that a table with labels is the active party's.

    The formats criteo and avazu have a label column at both parties.

    Raises:
        ConfigurationError: names the key and the fix.
    """
    table = config.data.train
    if role.has_labels and table.label is None:
        raise ConfigurationError(
            f"data.train.label: missing; this party is the {role.name} party, which has the "
            f"labels: name their column in {table.path}. Or is this the file of the other role?"
        )
    if not role.has_labels and table.label is not None and table.format == "plain":
        raise ConfigurationError(
            f"data.train.label: is {quoted(table.label)}, but this party is the {role.name} party, "
            "which has no labels: remove it. Or is this the file of the active party?"
        )


def check_batch_size(config: PartyConfig, people: int) -> None:
    """Check that a batch is not larger than the union of two tables as large as ours.

    Raises:
        ConfigurationError: names the key and the fix.
    """
    batch_size = config.agreement.training.batch_size
    if batch_size != "auto" and batch_size > 2 * people:
        raise ConfigurationError(
            f"agreement.training.batch_size: {batch_size:,} is more than twice the number of "
            f"people in {config.data.train.path}, so that a pass over the union of two such "
            "tables would be one step; set it to auto, or to a smaller number, at both parties"
        )


def test_table_settings(config: PartyConfig) -> Table:
    """Return the settings of the test table that the agreement requires.

    Raises:
        ConfigurationError: there is none, or it cannot be aligned as the agreement requires.
    """
    if config.data.test_table is None:
        raise ConfigurationError(
            "data.test: missing; the agreement says that both parties have a test table "
            "(agreement.training.test_table)"
        )
    if config.alignment.dummies:
        raise ConfigurationError(
            f"alignment.dummies: {config.alignment.dummies:,} dummies are configured, but the two "
            "test tables must contain the same people, without dummies; set it to 0, or agree on "
            "training.test_table: false"
        )
    return config.data.test_table
