"""The first stage, the same for both roles: from tables of IDs to alignments on disk."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from florist.common.data.tables import fingerprint, read_table_ids
from florist.common.errors import ConfigurationError
from florist.common.groups import make_group
from florist.common.meeting import meet
from florist.common.progress import CountedProgress
from florist.common.psu.hashed_ids import hashed_with_dummies
from florist.common.psu.keys import Keys
from florist.common.release import RELEASE
from florist.common.run_directory import (
    FORMAT,
    Alignment,
    AlignmentSummary,
    RunDirectory,
)

if TYPE_CHECKING:
    from florist.common.config import PartyConfig, Table
    from florist.common.data.ids import IdColumn
    from florist.common.groups.group import Group
    from florist.common.progress import Progress
    from florist.common.psu.alignment import UnionView
    from florist.common.role import Role
    from florist.common.run_directory import TableName
    from florist.common.session import Session

log = logging.getLogger("florist.align")

STAGE = "align"


@dataclass(frozen=True, slots=True)
class StageOptions:
    """What the command line decides."""

    plaintext: bool = False
    force: bool = False
    resume: bool = False


def align(
    role: Role, config: PartyConfig, options: StageOptions, progress: Progress
) -> dict[TableName, Alignment]:
    """Align each table with the peer's and save the results in the run directory.

    Everything that can be refused is refused before the peer is called: files, IDs, settings, and a
    finished result in the way. Both parties save before they part, so a peer that fails to is
    reported here too, and this side's result stays.
    """
    runs = RunDirectory(config.run_directory)
    laps = Laps()
    with runs.locked():
        runs.refuse_finished(runs.alignment, force=options.force)
        tables = _read_all(config)
        laps.end("read")
        group = make_group(config.agreement.group, config.compute.engine, config.compute.threads)
        log.info("group %s, engine %s", group.name, group.engine)
        with (
            closing(group),
            meet(role, config, STAGE, plaintext=options.plaintext) as session,
        ):
            laps.end("connect")
            aligner = Aligner(role, config, group, session, progress, laps)
            alignments = {table: aligner.align(table, ids) for table, ids in tables.items()}
            runs.save_alignments(alignments, force=options.force)
    return alignments


@dataclass(frozen=True, slots=True)
class Aligner:
    """Takes one party's part in the unions of a session."""

    role: Role
    config: PartyConfig
    group: Group
    session: Session
    progress: Progress
    laps: Laps

    def align(self, table: TableName, ids: IdColumn) -> Alignment:
        """The union of these IDs, with dummies as configured, and of the peer's."""
        counted = CountedProgress(self.progress, self.session.count_work)
        dummies = self.config.alignment.dummies
        with counted.step(f"hashing our IDs ({table})") as step:
            elements = hashed_with_dummies(self.group, ids, dummies, step)
        self.laps.end("hash")
        keys = Keys.fresh(self.group)
        view = self.role.run_psu(self.session, self.group, elements, keys, counted, table)
        self.laps.end("union")
        return Alignment(self._summary(ids, view), view.rank_of_own[: len(ids)])

    def _summary(self, ids: IdColumn, view: UnionView) -> AlignmentSummary:
        config, traffic = self.config, self.session.traffic
        return AlignmentSummary(
            format=FORMAT,
            release=RELEASE,
            role=self.role.name,
            party=config.party.name,
            peer=config.party.peer,
            finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
            agreement=config.agreement.model_dump(mode="json"),
            engine=self.group.engine,
            rows=len(ids),
            table_fingerprint=fingerprint(ids),
            own_dummies=config.alignment.dummies,
            own_size=view.sizes.own,
            peer_size=view.sizes.peer,
            union_size=view.sizes.union,
            shared_size=view.sizes.shared,
            union_sha256=view.digest.hex(),
            seconds=dict(self.laps.seconds),
            bytes_sent=traffic.sent,
            bytes_received=traffic.received,
        )


def _read_all(config: PartyConfig) -> dict[TableName, IdColumn]:
    """The IDs of every table that the agreement says there is."""
    tables: dict[TableName, Table] = {"train": config.data.train}
    if config.agreement.training.test_table:
        if config.data.test_table is None:
            raise ConfigurationError(
                "data.test: missing; the agreement says that both parties have a test table "
                "(agreement.training.test_table)"
            )
        tables["test"] = config.data.test_table
    read: dict[TableName, IdColumn] = {}
    for name, table in tables.items():
        read[name] = read_table_ids(table, config.agreement.id_normalisation)
        log.info("%s IDs read from the %s table", f"{len(read[name]):,}", name)
    return read


class Laps:
    """Wall-clock seconds of each part; a part that comes again adds up."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def end(self, part: str) -> None:
        now = time.monotonic()
        self.seconds[part] = round(self.seconds.get(part, 0.0) + now - self._last, 3)
        self._last = now
