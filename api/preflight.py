"""Checks of everything that a party needs for a run, before the run starts."""

from __future__ import annotations

import shutil
import socket
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from florist.api.config import as_config
from florist.common.audit.measured_figures import own_features_notice
from florist.common.cluster.choose_runner import make_union_runner
from florist.common.core.errors import ConfigurationError, FloristError
from florist.common.core.release import RELEASE
from florist.common.core.units import shown_bytes, shown_seconds
from florist.common.data.feature_store import FeatureStore
from florist.common.data.scan_table import scan_table
from florist.common.data.table_ids import TableIds
from florist.common.groups import make_group
from florist.common.privacy.count_noise import exact_fraction
from florist.common.privacy.ledger import ledger_folder, open_ledger, shown, total_cost
from florist.common.psu.estimates import UnionCost, estimate_union, measure_speed
from florist.common.psu.padded_set import most_padding
from florist.common.session.open_session import own_credentials
from florist.common.session.run_directory import RunDirectory
from florist.common.session.session import PREFLIGHT, Session, SessionTimeouts, make_hello
from florist.common.session.stage_state import StageState
from florist.common.settings.addresses import split_address
from florist.common.settings.agreement import AUTO_AGGREGATE_FROM
from florist.common.settings.party_config import PartyConfig
from florist.common.stages.evaluation_union import releases
from florist.common.storage.files import FolderStorage
from florist.common.transport.certificate_check import check_certificates
from florist.common.transport.peer_identity import read_identity
from florist.common.transport.peer_unavailable import PeerUnavailable
from florist.common.transport.tls_probe import probe
from florist.passive_party.role import PASSIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from florist.api.config import AnyPath
    from florist.common.data.scan_table import TableScan
    from florist.common.session.alignment_result import TableName
    from florist.common.settings.agreement import AggregatePrivacy
    from florist.common.settings.data import Table

#: Seconds to wait for an answer at the peer's address.
TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    Attributes:
        name: what was checked, such as "certificates".
        passed: whether the run can use it.
        message: what was found; if the check failed, what to fix.
        examples: IDs of the party's own table that illustrate the message. Show them to the
            owner of the table only; do not log them.
    """

    name: str
    passed: bool
    message: str
    examples: str = ""


def preflight(
    config: PartyConfig | AnyPath, on_check: Callable[[Check], object] | None = None
) -> list[Check]:
    """Check everything that a party needs, without starting a run.

    Checks the configuration, IDs, columns, compute engine, run directory and disk space, privacy
    ledger, certificates, and the status page's address. If the peer is up, also compares the
    agreements. A failed check does not prevent the checks after it.

    Args:
        config: this party's configuration, or the path of its file.
        on_check: called with each result as soon as it is known.

    Returns:
        One result per check. An invalid configuration file is the only result.

    Example:
        >>> for check in florist.preflight("active.yml"):
        ...     print("ok" if check.passed else "FAILED", check.name, check.message)
    """
    results = []
    for check in _checks(config):
        results.append(check)
        if on_check is not None:
            on_check(check)
    return results


def _checks(config: PartyConfig | AnyPath) -> Iterator[Check]:
    try:
        settings = as_config(config)
    except FloristError as error:
        yield Check("configuration", passed=False, message=error.reason)
        return
    source = "" if isinstance(config, PartyConfig) else f"{Path(config)}: "
    party = settings.party
    yield Check("configuration", passed=True, message=f"{source}{party.name}, peer {party.peer}")
    yield from PartyChecks(settings).run()


def _free_disk(path: Path) -> int:
    return shutil.disk_usage(path).free


class PartyChecks:
    """The checks of one party, whose configuration is valid."""

    def __init__(self, config: PartyConfig, free_disk: Callable[[Path], int] = _free_disk) -> None:
        """`free_disk` returns the number of free bytes on the file system of a folder."""
        self._config = config
        self._free_disk = free_disk

    def run(self) -> Iterator[Check]:
        """Make the checks in order, one at a time."""
        checks: dict[str, Callable[[], str]] = {
            "IDs": self._ids,
            "columns": self._columns,
            "training": self._training,
            "engine": self._engine,
            "alignment": self._alignment,
            "run directory": self._run_directory,
            "privacy ledger": self._ledger,
            "certificates": self._certificates,
            "address and peer": self._peer,
            "status page": self._status_page,
        }
        for name, check in checks.items():
            try:
                yield Check(name, passed=True, message=check())
            except FloristError as error:
                yield Check(name, passed=False, message=error.reason, examples=error.examples)

    @cached_property
    def _table_ids(self) -> dict[TableName, TableIds]:
        """The IDs of each table, which must be unique and non-empty."""
        data, folder = self._config.data, FolderStorage(self._config.run_directory)
        tables: dict[TableName, Table | None] = {
            "train": data.train,
            "test": data.test_table,
            "evaluation": data.evaluation_table,
        }
        normalisation = self._config.agreement.id_normalisation
        return {
            name: TableIds(table, normalisation, folder)
            for name, table in tables.items()
            if table is not None
        }

    @property
    def _id_counts(self) -> dict[Table, int]:
        data = self._config.data
        tables = {"train": data.train, "test": data.test_table, "evaluation": data.evaluation_table}
        counts = {tables[name]: len(ids) for name, ids in self._table_ids.items()}
        return {table: count for table, count in counts.items() if table is not None}

    def _ids(self) -> str:
        counts = (
            f"{table.path}, column {table.id_column}: {count:,}"
            for table, count in self._id_counts.items()
        )
        return f"{'; '.join(counts)}; unique and non-empty"

    @cached_property
    def _scan(self) -> TableScan:
        config = self._config
        table = config.data.train
        return scan_table(
            table,
            config.agreement.id_normalisation,
            config.data.preprocessing,
            FeatureStore(0, FolderStorage(config.run_directory)),
            with_labels=table.label is not None,
        )

    def _columns(self) -> str:
        """Scan what training would read: features, and labels if there is a label column."""
        config, scan = self._config, self._scan
        table = config.data.train
        features = scan.preprocessing.features
        numeric, categorical = len(features.numeric), len(features.categorical)
        found = f"{numeric} numeric, {categorical} categorical"
        if scan.labels is None:
            return f"{found}, no label"
        labels = scan.labels.labels(config.agreement.training.classes)
        return f"{found}, label {table.label} with {len(labels.names)} classes"

    def _training(self) -> str:
        """Show what `auto` stands for, and what features of an active party could reveal."""
        config = self._config
        people = self._scan.rows
        union = people + people // 2
        agreed = config.agreement.training.resolved(union)
        text = (
            f"if the union has {union:,} people, {agreed.steps(union):,} steps of "
            f"{agreed.known_batch_size:,} with a learning rate of up to "
            f"{agreed.known_learning_rate:g}; {agreed.stand_ins} stand-ins, "
            f"{agreed.wire_width} number(s) per person"
        )
        features = self._scan.preprocessing.features
        columns = len(features.numeric) + len(features.categorical)
        if config.data.train.label is None or not columns:
            return text
        return f"{text}; {own_features_notice(columns)}"

    def _engine(self) -> str:
        config = self._config
        compute = config.compute
        with (
            closing(make_group(config.agreement.group, compute.engine, compute.threads)) as group,
            closing(make_union_runner(config, group, plaintext=False)) as unions,
        ):
            return f"group {group.name}, engine {unions.engine}, executor {unions.name}"

    def _alignment(self) -> str:
        union, cost = self._config.agreement.union, self._cost
        return (
            f"protocol {union.protocol}; if the peer's tables are as large as ours and half of the "
            f"people are shared: {shown_seconds(cost.seconds)} of computing on this machine, "
            f"{shown_bytes(cost.traffic)} of traffic in both directions"
        )

    def _run_directory(self) -> str:
        path = self._config.run_directory
        runs = RunDirectory(path)
        with runs.locked():
            StageState(runs, "align").refuse_complete()
        free, needed = self._free_disk(path), self._cost.disk
        disk = (
            f"{free / 1e9:.1f} GB free; alignment needs {needed / 1e9:.1f} GB if the peer's tables "
            "are as large as ours"
        )
        if needed > free:
            raise ConfigurationError(
                f"{path}: {disk}; free some space, or choose another run_directory"
            )
        return f"{path} is writable; {disk}"

    def _ledger(self) -> str:
        """Check the difference guard and the budget for a run of all stages."""
        config = self._config
        agreement = config.agreement
        announced = {
            "train": 1,
            "test": int(agreement.training.test_table),
            "evaluation": releases(config) if agreement.evaluation.table else 0,
        }
        used = {name: ids for name, ids in self._table_ids.items() if announced[name]}
        sizes = sum(announced[name] for name in used)
        aggregate, certain = self._aggregate
        with open_ledger(config) as ledger:
            ledger.prepare(used)
            ledger.check_budget(sizes, aggregate if certain else None)
            spent = total_cost(ledger.charges)
            fits = certain or _passes(lambda: ledger.check_budget(sizes, aggregate))
        text = (
            f"{ledger_folder(config)}: "
            f"{'exact sizes were announced' if spent is None else shown(spent) + ' spent'}; a run "
            f"of all stages announces {sizes} size(s)"
        )
        if (union := agreement.union.privacy) is not None:
            text += f" at epsilon {union.epsilon:g} each"
        if aggregate is None:
            return text
        cost = exact_fraction(aggregate.epsilon), exact_fraction(aggregate.delta)
        text += (
            f", and releases a label aggregate at {shown(cost)}"
            if certain
            else f". If the union has at least {AUTO_AGGREGATE_FROM:,} people, it also releases a "
            f"label aggregate at {shown(cost)}"
        )
        return text if fits else f"{text}: more than is left of privacy.budget"

    @property
    def _aggregate(self) -> tuple[AggregatePrivacy | None, bool]:
        """The most that our label aggregate can cost, and whether it certainly costs that."""
        training, table = self._config.agreement.training, self._config.data.train
        if table.label is None or training.most_aggregate_privacy is None:
            return None, True
        # The union has all of our people, and others.
        known = training.resolved(self._id_counts[table]).known_aggregate_privacy
        return training.most_aggregate_privacy, known is not None

    @cached_property
    def _cost(self) -> UnionCost:
        """The cost of aligning all tables."""
        config = self._config
        compute, data = config.compute, config.data
        with closing(make_group(config.agreement.group, compute.engine, compute.threads)) as group:
            width, speed = group.width, measure_speed(group)
        tables = [table for table in (data.train, data.test_table) if table is not None]
        costs = (
            estimate_union(config, self._id_counts[table] + most_padding(config), width, speed)
            for table in tables
        )
        return sum(costs, start=UnionCost(0.0, 0, 0))

    def _certificates(self) -> str:
        tls = self._config.network.tls
        if tls is None:
            return "none: the run starts only with --insecure-plaintext, for tests"
        report = check_certificates(
            tls.authority, tls.certificate, tls.key, self._config.party.name
        )
        report.require()
        warnings = f". {'; '.join(report.warnings)}" if report.warnings else ""
        return (
            f"{tls.certificate}: valid for {report.days_left} days; the SHA-256 of our public key, "
            f"for the peer's network.tls.peer_key_sha256, is {report.key_sha256}{warnings}"
        )

    def _peer(self) -> str:
        """Connect as the passive party would; if the peer answers, compare the agreements."""
        config = self._config
        plaintext = config.network.tls is None
        try:
            certificate = probe(
                config.network.address,
                own_credentials(config, plaintext=plaintext),
                config.party.peer,
                TIMEOUT,
            )
            key = "" if certificate is None else _peer_key(config, certificate)
            with PASSIVE.connect(config, plaintext, TIMEOUT) as link:
                hello = make_hello("passive", RELEASE, config.agreement.canonical(), PREFLIGHT)
                with Session(link, hello, SessionTimeouts(config.timeouts.silence)):
                    return f"{config.party.peer} is up at {config.network.address}; we agree{key}"
        except PeerUnavailable as error:
            is_local = _can_listen(config.network.address)
            where = "is free on this machine" if is_local else "is not on this machine"
            return f"{error.reason}: the peer is not up yet; the address {where}"

    def _status_page(self) -> str:
        address = self._config.observability.address
        if address is None:
            return "none: observability.address is not set"
        if not _can_listen(address):
            raise ConfigurationError(
                f"observability.address: {address} is in use, or is not an address of this "
                "machine; choose another"
            )
        return f"{address} is free"


def _peer_key(config: PartyConfig, certificate: bytes) -> str:
    """The digest of the peer's key, and whether it is pinned."""
    pinned = config.network.tls is not None and config.network.tls.peer_key_sha256 is not None
    state = "as configured" if pinned else "network.tls.peer_key_sha256 is not set"
    return f"; the SHA-256 of its public key is {read_identity(certificate).key_sha256} ({state})"


def _passes(check: Callable[[], None]) -> bool:
    try:
        check()
    except ConfigurationError:
        return False
    return True


def _can_listen(address: str) -> bool:
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family):
            return True
    except OSError:
        return False
