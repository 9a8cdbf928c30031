"""`florist preflight`: everything that a run needs, checked one by one before it starts."""

from __future__ import annotations

import shutil
import socket
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from florist.common.cluster.choose_runner import make_union_runner
from florist.common.core.errors import ConfigurationError, FloristError
from florist.common.core.release import RELEASE
from florist.common.data.feature_store import FeatureStore
from florist.common.data.scan_table import scan_table
from florist.common.data.table_ids import TableIds
from florist.common.groups import make_group
from florist.common.psu.limits import disk_needed
from florist.common.session.run_directory import RunDirectory
from florist.common.session.session import PREFLIGHT, Session, SessionTimeouts, make_hello
from florist.common.session.stage_state import StageState
from florist.common.settings.addresses import split_address
from florist.common.settings.loader import load_config
from florist.common.storage.files import FolderStorage
from florist.common.transport.certificates import inspect
from florist.common.transport.credentials import NotYet
from florist.passive_party.role import PASSIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rich.console import Console

    from florist.common.settings.agreement import Normalisation
    from florist.common.settings.data import Table
    from florist.common.settings.party_config import PartyConfig

#: Seconds that the address is given to answer.
ANSWER = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: good or bad, what was looked at, and what was seen or is to be done."""

    good: bool
    what: str
    seen: str


def check_all(config_path: Path) -> Iterator[Finding]:
    """Look at everything; a later check is made even if an earlier one failed, where it can be."""
    try:
        config = load_config(config_path)
    except FloristError as error:
        yield Finding(False, "configuration", error.reason)
        return
    yield Finding(
        True, "configuration", f"{config_path}: {config.party.name}, peer {config.party.peer}"
    )
    checks: dict[str, Callable[[PartyConfig], str]] = {
        "IDs": _ids,
        "columns": _columns,
        "engine": _engine,
        "run directory": _run_directory,
        "certificates": _certificates,
        "address and peer": _peer,
        "status page": _status_page,
    }
    for what, check in checks.items():
        try:
            yield Finding(True, what, check(config))
        except FloristError as error:
            yield Finding(False, what, error.reason)


def print_findings(findings: Iterator[Finding], console: Console) -> bool:
    """Print each as it comes; whether all were good."""
    all_good = True
    for finding in findings:
        all_good &= finding.good
        console.print("[green]✓[/]" if finding.good else "[red]✗[/]", end=" ")
        console.print(
            f"{finding.what}: {finding.seen}", markup=False, highlight=False, soft_wrap=True
        )
    return all_good


def _ids(config: PartyConfig) -> str:
    held_out = config.data.test_table, config.data.evaluation_table
    tables = [config.data.train, *(table for table in held_out if table is not None)]
    normalisation, folder = config.agreement.id_normalisation, config.run_directory
    counts = [_count_ids(table, normalisation, folder) for table in tables]
    seen = (
        f"{table.path}, column {table.id_column}: {count:,}"
        for table, count in zip(tables, counts, strict=True)
    )
    return f"{'; '.join(seen)}, all different, none empty"


@cache
def _count_ids(table: Table, normalisation: Normalisation, run_directory: Path) -> int:
    return len(TableIds(table, normalisation, FolderStorage(run_directory)))


def _columns(config: PartyConfig) -> str:
    """What training would read: features, and labels where there is a label column."""
    table = config.data.train
    found = scan_table(
        table,
        config.agreement.id_normalisation,
        config.data.preprocessing,
        FeatureStore(0, FolderStorage(config.run_directory)),
        with_labels=table.label is not None,
    )
    numeric, categorical = found.preprocessing.sizes
    seen = f"{numeric} numeric, {categorical} categorical"
    if found.labels is None:
        return f"{seen}, no label"
    labels = found.labels.labels(config.agreement.training.classes)
    return f"{seen}, label {table.label} of {len(labels.names)} classes"


def _engine(config: PartyConfig) -> str:
    compute = config.compute
    with (
        closing(make_group(config.agreement.group, compute.engine, compute.threads)) as group,
        closing(make_union_runner(config, group, plaintext=False)) as unions,
    ):
        return f"group {group.name} with {unions.engine}, executor {unions.name}"


def _run_directory(config: PartyConfig) -> str:
    runs = RunDirectory(config.run_directory)
    with runs.locked():
        StageState(runs, "align").refuse_complete()
    free = shutil.disk_usage(config.run_directory).free
    needed = _disk_for_aligning(config)
    seen = (
        f"{free / 1e9:.1f} GB free, {needed / 1e9:.1f} GB needed to align, if the peer has as many "
        "people as we have"
    )
    if needed > free:
        raise ConfigurationError(f"{config.run_directory}: {seen}; make room, or name another")
    return f"{config.run_directory} can be written, {seen}"


def _disk_for_aligning(config: PartyConfig) -> int:
    """Bytes, for the largest of the unions plus what those before it leave."""
    with closing(make_group(config.agreement.group, config.compute.engine, 1)) as group:
        width = group.width
    normalisation, settings = config.agreement.id_normalisation, config.alignment
    sizes = [
        _count_ids(table, normalisation, config.run_directory) + settings.dummies
        for table in (config.data.train, config.data.test_table)
        if table is not None
    ]
    limit, branches = settings.memory_bytes, config.agreement.branches
    return sum(disk_needed(width, size, size, limit, branches) for size in sizes)


def _certificates(config: PartyConfig) -> str:
    tls = config.network.tls
    if tls is None:
        return "none: the run will start only with --insecure-plaintext, for tests"
    report = inspect(tls.authority, tls.certificate, tls.key, config.party.name)
    report.require()
    soon = f". {'; '.join(report.warnings)}" if report.warnings else ""
    return f"{tls.certificate}: ours, valid for {report.days_left} days{soon}"


def _peer(config: PartyConfig) -> str:
    """As the passive party would: dial, and if someone answers, shake hands and compare."""
    try:
        with PASSIVE.connect(config, config.network.tls is None, ANSWER) as link:
            hello = make_hello("passive", RELEASE, config.agreement.canonical(), PREFLIGHT)
            with Session(link, hello, SessionTimeouts(config.timeouts.silence)):
                return f"{config.party.peer} is up at {config.network.address}; we agree"
    except NotYet as error:
        is_free = _can_listen(config.network.address)
        where = "is free for an active party here" if is_free else "is not on this machine"
        return f"{error.reason}: the peer is not up (yet); the address {where}"


def _status_page(config: PartyConfig) -> str:
    address = config.observability.address
    if address is None:
        return "none: observability.address is not set"
    if not _can_listen(address):
        raise ConfigurationError(
            f"observability.address: {address} is in use, or not of this machine; name another"
        )
    return f"{address} is free"


def _can_listen(address: str) -> bool:
    host, port = split_address(address)
    try:
        with socket.create_server((host, port), family=_family(host)):
            return True
    except OSError:
        return False


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
