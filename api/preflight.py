"""Checks of everything that a party needs for a run, before the run starts."""

from __future__ import annotations

import shutil
import socket
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from florist.api.config import as_config
from florist.api.party import ROLES, resolve_role
from florist.common.audit.measured_figures import own_features_notice
from florist.common.cluster.choose_runner import make_union_runner
from florist.common.core.errors import ConfigurationError, FloristError
from florist.common.core.release import RELEASE
from florist.common.core.text import counted
from florist.common.core.units import shown_bytes, shown_seconds
from florist.common.data.column_report import INSPECTED_ROWS, inspect_table
from florist.common.groups import make_group
from florist.common.privacy.count_noise import exact_fraction
from florist.common.privacy.ledger import ledger_folder, open_ledger, shown, total_cost
from florist.common.psu.estimates import UnionCost, estimate_union, measure_speed
from florist.common.psu.padded_set import most_padding
from florist.common.session.open_session import own_credentials
from florist.common.session.run_directory import RunDirectory
from florist.common.session.session import PREFLIGHT, Session, SessionTimeouts, make_hello
from florist.common.session.stage_state import STAGES
from florist.common.settings.addresses import split_address
from florist.common.settings.agreement import AUTO_AGGREGATE_FROM
from florist.common.settings.party_config import PartyConfig
from florist.common.stages.expectations import (
    expected_evaluation,
    expected_test,
    few_steps_advice,
    is_few,
    likely_union,
)
from florist.common.stages.stage_table import STAGE_TABLE, incomplete_stages
from florist.common.stages.table_validation import TableValidation, check_label_setting
from florist.common.stages.validation import (
    check_evaluation_settings,
    check_training_settings,
    planned_aggregate,
    planned_sizes,
    table_ids,
)
from florist.common.transport.certificate_check import check_certificates
from florist.common.transport.peer_identity import read_identity
from florist.common.transport.peer_unavailable import PeerUnavailable
from florist.common.transport.tls_probe import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from florist.api.config import AnyPath
    from florist.common.core.roles import RoleName
    from florist.common.data.table_ids import TableIds
    from florist.common.session.alignment_result import TableName
    from florist.common.session.stage_state import StageName
    from florist.common.settings.data import Table
    from florist.common.stages.role import Role

#: Warnings about columns that are shown; `florist inspect` shows all.
_MAX_WARNINGS = 5

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
    #: Whether the check could not be made, because of a problem that another check reports.
    skipped: bool = False


def preflight(
    config: PartyConfig | AnyPath,
    on_check: Callable[[Check], object] | None = None,
    *,
    role: RoleName | None = None,
) -> list[Check]:
    """Check everything that a party needs, without starting a run.

    Checks the configuration, all tables with their IDs, columns and labels, compute engine, run
    directory and disk space, privacy ledger, certificates, and the status page's address. If the
    peer is up, also compares the agreements. A failed check does not prevent the checks after it;
    each problem is reported once.

    Args:
        config: this party's configuration, or the path of its file.
        on_check: called with each result as soon as it is known.
        role: as for `run_party`. If the configuration does not name it either, a party with a
            label column is taken to be the active one.

    Returns:
        One result per check. An invalid configuration file is the only result.

    Example:
        >>> for check in florist.preflight("active.yml"):
        ...     print("ok" if check.passed else "FAILED", check.name, check.message)
    """
    results = []
    for check in _checks(config, role):
        results.append(check)
        if on_check is not None:
            on_check(check)
    return results


def _checks(config: PartyConfig | AnyPath, role: RoleName | None) -> Iterator[Check]:
    try:
        settings = as_config(config)
        party_role = _role(settings, role)
    except FloristError as error:
        yield Check("configuration", passed=False, message=error.reason)
        return
    source = "" if isinstance(config, PartyConfig) else f"{Path(config)}: "
    party = settings.party
    known = "" if role or settings.role else " (by its label setting; set `role` to be sure)"
    yield Check(
        "configuration",
        passed=True,
        message=f"{source}{party.name}, the {party_role.name} party{known}; peer {party.peer}",
    )
    yield from PartyChecks(settings, party_role).run()


def _role(config: PartyConfig, given: RoleName | None) -> Role:
    """Return the role; without one, that of a party with or without labels."""
    if given is None and config.role is None:
        given = "passive" if config.data.train.label is None else "active"
    return resolve_role(given, config)


def _free_disk(path: Path) -> int:
    return shutil.disk_usage(path).free


class PartyChecks:
    """The checks of one party, whose configuration is valid."""

    def __init__(
        self,
        config: PartyConfig,
        role: Role | None = None,
        free_disk: Callable[[Path], int] = _free_disk,
    ) -> None:
        """`free_disk` returns the number of free bytes on the file system of a folder."""
        self._config = config
        self._role = role or _role(config, None)
        self._free_disk = free_disk
        self._tables = TableValidation(self._role, config)

    def run(self) -> Iterator[Check]:
        """Make the checks in order, one at a time."""
        agreement = self._config.agreement
        checks: dict[str, Callable[[], str]] = {
            "settings": self._settings,
            "IDs": self._ids,
            "columns": self._columns,
            **({"test table": self._test_table} if agreement.training.test_table else {}),
            **({"evaluation table": self._evaluation_table} if agreement.evaluation.table else {}),
            "column report": self._column_report,
            "training": self._training,
            "engine": self._engine,
            "alignment": self._alignment,
            "run directory": self._run_directory,
            "privacy ledger": self._ledger,
            "certificates": self._certificates,
            "address and peer": self._peer,
            "status page": self._status_page,
        }
        reported: dict[str, str] = {}
        for name, check in checks.items():
            try:
                yield Check(name, passed=True, message=check())
            except FloristError as error:
                if (first := reported.setdefault(error.reason, name)) == name:
                    yield Check(name, passed=False, message=error.reason, examples=error.examples)
                else:
                    because = f"not checked, because of the problem reported at {first!r}"
                    yield Check(name, passed=False, message=because, skipped=True)

    def _settings(self) -> str:
        """Check what needs no table."""
        check_label_setting(self._role, self._config)
        check_training_settings(self._role, self._config)
        if self._config.agreement.evaluation.table:
            check_evaluation_settings(self._config)
        return f"complete for the stages {', '.join(self._stages)}"

    @property
    def _stages(self) -> list[StageName]:
        """The stages of a whole run."""
        return [name for name in STAGES if STAGE_TABLE[name].is_needed(self._config)]

    @property
    def _plan(self) -> list[StageName]:
        """The stages that a run with `--stage all` would do now."""
        return incomplete_stages(self._config)

    @cached_property
    def _settings_of_tables(self) -> dict[TableName, Table]:
        data, agreement = self._config.data, self._config.agreement
        tables: dict[TableName, Table | None] = {
            "train": data.train,
            "test": data.test_table if agreement.training.test_table else None,
            "evaluation": data.evaluation_table if agreement.evaluation.table else None,
        }
        return {name: table for name, table in tables.items() if table is not None}

    @cached_property
    def _table_ids(self) -> dict[TableName, TableIds]:
        """The IDs of each table, which must be unique and non-empty.

        The IDs of a table that is valid as a whole need not be read again.
        """
        validate = {
            "train": self._tables.train,
            "test": self._tables.test,
            "evaluation": self._tables.evaluation,
        }
        found = {}
        for name, table in self._settings_of_tables.items():
            with suppress(ConfigurationError):  # it is reported by the check of the table
                validate[name]()
            found[name] = table_ids(self._config, name, table, self._tables.checked_ids)
        return found

    @property
    def _id_counts(self) -> dict[TableName, int]:
        return {name: len(ids) for name, ids in self._table_ids.items()}

    def _ids(self) -> str:
        tables = self._settings_of_tables
        counts = (
            f"{tables[name].path}, column {tables[name].id_column}: {count:,}"
            for name, count in self._id_counts.items()
        )
        return f"{'; '.join(counts)}; unique and non-empty"

    def _columns(self) -> str:
        """Show what training reads: features, and at the active party labels."""
        table, train = self._config.data.train, self._tables.train()
        features = train.preprocessing.features
        numeric, categorical = len(features.numeric), len(features.categorical)
        found = f"{numeric} numeric, {categorical} categorical"
        if features.dates:
            found += f", {len(features.dates)} with dates"
        if not train.class_names:
            return f"{found}, no label"
        return f"{found}, label {table.label} with {len(train.class_names)} classes"

    def _test_table(self) -> str:
        table = self._tables.test()
        rows = counted(table.rows, "row")
        return f"{rows}; columns as in the training table; {expected_test(table)}"

    def _evaluation_table(self) -> str:
        table = self._tables.evaluation()
        rows, expected = counted(table.rows, "row"), expected_evaluation(self._config, table)
        return f"{rows}; columns as in the training table; {expected}"

    def _column_report(self) -> str:
        """Show the format of the IDs and what looks like a mistake, without any value."""
        config = self._config
        report = inspect_table(
            config.data.train,
            config.agreement.id_normalisation,
            config.data.preprocessing,
            max_rows=INSPECTED_ROWS,
        )
        ids = "" if report.ids is None else f"IDs: {report.ids.describe()}. "
        warnings = [f"column {name}: {each.text}" for name, each in report.warnings]
        if not warnings:
            return f"{ids}No warnings; `florist inspect` shows the columns"
        shown = "; ".join(warnings[:_MAX_WARNINGS])
        return f"{ids}Warnings: {len(warnings)}; `florist inspect` shows the values. {shown}"

    def _training(self) -> str:
        """Show what `auto` stands for, and what features of an active party could reveal."""
        train = self._tables.train()
        union = likely_union(train.rows)
        agreed = self._config.agreement.training.resolved(union)
        steps = agreed.steps(union)
        text = (
            f"if the union has {counted(union, 'person', 'people')}, {counted(steps, 'step')} of "
            f"{agreed.known_batch_size:,} with a learning rate of up to "
            f"{agreed.known_learning_rate:g}; {agreed.stand_ins} stand-ins, "
            f"{counted(agreed.wire_width, 'number')} per person"
        )
        if is_few(steps):
            text += f"; {few_steps_advice(steps, agreed.known_batch_size)}"
        columns = len(train.preprocessing.features.names)
        if not self._role.has_labels or not columns:
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
        path, plan = self._config.run_directory, self._plan
        runs = RunDirectory(path)
        with runs.locked():
            pass
        if not plan:
            return f"{path} contains a finished run of all stages: nothing is left to do"
        state = f"{path} is writable"
        if plan != self._stages:
            done = [name for name in self._stages if name not in plan]
            state += (
                f"; {' and '.join(done)} {'is' if len(done) == 1 else 'are'} complete, and a run "
            )
            state += f"continues with {plan[0]}"
        if "align" not in plan:
            return state
        free, needed = self._free_disk(path), self._cost.disk
        disk = (
            f"{free / 1e9:.1f} GB free; alignment needs {needed / 1e9:.1f} GB if the peer's tables "
            "are as large as ours"
        )
        if needed > free:
            raise ConfigurationError(
                f"{path}: {disk}; free some space, or choose another run_directory"
            )
        return f"{state}; {disk}"

    def _ledger(self) -> str:
        """Check the difference guard and the budget for the stages that are left to do."""
        config, plan = self._config, self._plan
        sizes = planned_sizes(config, plan)
        used = {name: self._table_ids[name] for name in sizes}
        total = sum(sizes.values())
        aggregate, certain = planned_aggregate(self._role, config, plan, self._id_counts["train"])
        with open_ledger(config) as ledger:
            ledger.prepare(used)
            ledger.check_budget(total, aggregate if certain else None)
            spent = total_cost(ledger.charges)
            fits = certain or _passes(lambda: ledger.check_budget(total, aggregate))
        run = "a run of all stages" if plan == self._stages else "the rest of the run"
        text = (
            f"{ledger_folder(config)}: "
            f"{'exact sizes were announced' if spent is None else shown(spent) + ' spent'}; "
            f"{run} announces {counted(total, 'size')}"
        )
        if total and (union := config.agreement.union.privacy) is not None:
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

    @cached_property
    def _cost(self) -> UnionCost:
        """The cost of aligning all tables."""
        config = self._config
        compute = config.compute
        with closing(make_group(config.agreement.group, compute.engine, compute.threads)) as group:
            width, speed = group.width, measure_speed(group)
        counts = (count for name, count in self._id_counts.items() if name != "evaluation")
        costs = (
            estimate_union(config, count + most_padding(config), width, speed) for count in counts
        )
        return sum(costs, start=UnionCost(0.0, 0, 0))

    def _certificates(self) -> str:
        tls = self._config.network.tls
        if tls is None:
            return "none: the run starts only with --insecure-plaintext, for tests"
        report = check_certificates(
            tls.authority,
            tls.certificate,
            tls.key,
            self._config.party.name,
            peer_authority=tls.peer_authority,
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
            with ROLES["passive"].connect(config, plaintext, TIMEOUT) as link:
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
