"""Reading a party's tables for training: checked against the alignment, and preprocessed."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import counted, for_owner
from florist.common.data.content_fingerprint import array_fingerprint
from florist.common.data.feature_store import FeatureStore
from florist.common.data.labels import held_out_labels, training_labels
from florist.common.data.scan_table import scan_table
from florist.common.stages.expectations import few_steps_advice, is_few
from florist.common.stages.table_validation import test_table_settings
from florist.common.storage.files import FolderStorage
from florist.common.synthetic.membership import Membership
from florist.common.training.devices import enable_determinism, pick_device, set_threads
from florist.common.training.run_inputs import TableContent
from florist.common.training.training_data import TrainingData, TrainingTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.data.labels import Labels
    from florist.common.data.preprocessing import Preprocessing
    from florist.common.data.scan_table import TableScan
    from florist.common.session.alignment_result import Alignment, AlignmentSummary, TableName
    from florist.common.session.run_directory import RunDirectory
    from florist.common.settings.agreement import TrainingAgreement
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.role import Role

log = logging.getLogger("florist.train")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PreparedTables:
    """A party's data, ready for a model."""

    preprocessing: Preprocessing
    data: TrainingData
    summary: AlignmentSummary
    class_names: tuple[str, ...]
    #: The fingerprints of each table.
    contents: dict[str, TableContent]


def prepare_tables(role: Role, config: PartyConfig, runs: RunDirectory) -> PreparedTables:
    """Read the tables, check that they are the aligned ones, and fit the preprocessing.

    Raises:
        ConfigurationError: names the file or key and the fix.
    """
    agreement = config.agreement.training
    with _feature_store(config, runs) as store:
        contents: dict[str, TableContent] = {}
        train, preprocessing, summary, names = _train_table(role, config, runs, store, contents)
        test = (
            _test_table(config, runs, store, preprocessing, names, contents)
            if agreement.test_table
            else None
        )
    set_threads(config.training.threads, config.training.processes)
    device = pick_device(config.training.device, config.training.processes)
    if device.type == "cpu":
        enable_determinism()  # a resumed run ends with bit-for-bit the same weights
    log.info(
        "our table has %d numeric and %d categorical features, device %s",
        len(preprocessing.numeric_columns),
        len(preprocessing.categorical_columns),
        device,
        extra=for_owner(f"{summary.rows:,} rows"),
    )
    data = TrainingData(agreement, device, train, test)
    _log_steps(data.agreement, summary.union_size)
    return PreparedTables(preprocessing, data, summary, names or (), contents)


@contextmanager
def _feature_store(config: PartyConfig, runs: RunDirectory) -> Iterator[FeatureStore]:
    try:
        yield FeatureStore(config.training.table_bytes, FolderStorage(runs.work("train")))
    finally:
        runs.drop_work("train")  # files in use are unlinked already
        pa.default_memory_pool().release_unused()  # reading tables leaves much memory unused


def _train_table(
    role: Role,
    config: PartyConfig,
    runs: RunDirectory,
    store: FeatureStore,
    contents: dict[str, TableContent],
) -> tuple[TrainingTable, Preprocessing, AlignmentSummary, tuple[str, ...] | None]:
    """Return the table, its preprocessing, its alignment and the names of its classes."""
    alignment = runs.load_alignment("train")
    scan = scan_table(
        config.data.train,
        config.agreement.id_normalisation,
        config.data.preprocessing,
        store,
        with_labels=role.has_labels,
    )
    _check_same_table(alignment, scan.fingerprint, "train")
    if alignment.summary.sizes.shared_estimate <= 0:
        raise ConfigurationError(
            "data.train: the parties have nobody in common, so that no features match any labels "
            "and there is nothing to learn"
        )
    role.check_features(scan.preprocessing)
    labels = training_labels(scan.labels, config.agreement.training) if scan.labels else None
    parts = _table_parts(alignment, scan, store, labels)
    contents["train"] = table_content(scan, labels)
    return parts, scan.preprocessing, alignment.summary, labels.names if labels else None


def _test_table(
    config: PartyConfig,
    runs: RunDirectory,
    store: FeatureStore,
    preprocessing: Preprocessing,
    names: tuple[str, ...] | None,
    contents: dict[str, TableContent],
) -> TrainingTable:
    """Return the test table, preprocessed like the training table.

    It has labels if `names` lists the classes.
    """
    agreement, table = config.agreement.training, test_table_settings(config)
    alignment = runs.load_alignment("test")
    scan = scan_table(
        table,
        config.agreement.id_normalisation,
        config.data.preprocessing,
        store,
        known=preprocessing,
        with_labels=names is not None,
    )
    _check_same_table(alignment, scan.fingerprint, "test")
    _check_all_shared(alignment)
    labels = held_out_labels(scan.labels, agreement, names) if scan.labels and names else None
    contents["test"] = table_content(scan, labels)
    return _table_parts(alignment, scan, store, labels)


def table_content(scan: TableScan, labels: Labels | None) -> TableContent:
    """Return the fingerprints of a table that was read."""
    classes = array_fingerprint(labels.classes) if labels else None
    return TableContent(scan.features, classes, scan.stamp)


def _table_parts(
    alignment: Alignment, scan: TableScan, store: FeatureStore, labels: Labels | None
) -> TrainingTable:
    summary = alignment.summary
    return TrainingTable(
        Membership.of(alignment.rank_of_row, summary.union_size),
        summary.sizes,
        store.add(scan) if _has_features(scan.preprocessing) else None,
        labels.classes if labels else None,
    )


def _has_features(preprocessing: Preprocessing) -> bool:
    return bool(preprocessing.numeric_columns or preprocessing.categorical_columns)


def _check_same_table(alignment: Alignment, fingerprint: str, table: TableName) -> None:
    if alignment.summary.table_fingerprint != fingerprint:
        raise ConfigurationError(
            f"data.{table}: its IDs are not the ones that were aligned; restore the table, or "
            "align again with --force"
        )


def _check_all_shared(alignment: Alignment) -> None:
    """Check that the test tables can contain the same people, as far as private counts show."""
    rows, sizes = alignment.summary.rows, alignment.summary.sizes
    # Each party's random draws are at most `pool`, with half of it as the mean.
    may_share_all = abs(sizes.shared_estimate - rows) <= sizes.pool
    may_be_as_many = 0 <= sizes.peer - sizes.pool - rows <= 2 * sizes.pool
    if alignment.summary.own_dummies or not (may_share_all and may_be_as_many):
        about = "" if sizes.is_exact else "about "
        raise ConfigurationError(
            "data.test: the two test tables must contain the same people, without dummies; here "
            f"{rows:,} and {about}{sizes.peer_people_estimate:,} people have {about}"
            f"{max(sizes.shared_estimate, 0):,} in common"
        )


def _log_steps(agreement: TrainingAgreement, union_size: int) -> None:
    steps, batch_size = agreement.steps(union_size), agreement.known_batch_size
    log.info(
        "%s of %s, learning rate %g, %s",
        counted(steps, "step"),
        counted(batch_size, "UID"),
        agreement.learning_rate,
        agreement.rate_schedule,
    )
    if is_few(steps):
        log.warning("%s: %s", counted(steps, "step"), few_steps_advice(steps, batch_size))
