"""The first stage, the same for both roles: from tables of IDs to alignments on disk."""

from __future__ import annotations

import json
import logging
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from florist.common import freed_memory
from florist.common.data.table_ids import TableIds
from florist.common.disk.storage import FolderStorage
from florist.common.errors import ConfigurationError
from florist.common.groups import make_group
from florist.common.messages import PROTOCOL_VERSION
from florist.common.progress import CountedProgress
from florist.common.psu.custody import SecretsInMemory
from florist.common.psu.executor import make_executor
from florist.common.psu.hashed_ids import hashed_with_dummies
from florist.common.psu.journal import Journal
from florist.common.psu.limits import disk_needed, room_for_sorting
from florist.common.psu.opening import open_union
from florist.common.psu.work import UnionWork
from florist.common.release import RELEASE
from florist.common.run_directory import (
    FORMAT,
    Alignment,
    AlignmentSummary,
    RunDirectory,
)
from florist.common.stage import Stage
from florist.common.survival import run_with_peer

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.config import PartyConfig, Table
    from florist.common.data.ids import Ids
    from florist.common.progress import Progress
    from florist.common.psu.alignment import UnionView
    from florist.common.psu.executor import Executor
    from florist.common.role import Role
    from florist.common.run_directory import TableName
    from florist.common.session import Session
    from florist.common.stage import StageOptions

log = logging.getLogger("florist.align")


def align(
    role: Role, config: PartyConfig, options: StageOptions, progress: Progress
) -> dict[TableName, Alignment]:
    """Align each table with the peer's and save the results in the run directory.

    After a loss, of the line or of a party, it goes on from the exchanges that both have finished.
    Everything that can be refused is refused before the peer is called: files, IDs, settings, and a
    finished result in the way.
    """
    runs = RunDirectory(config.run_directory)
    stage = Stage(runs, "align", force=options.force)
    laps = Laps()
    secrets = SecretsInMemory()
    freed_memory.give_back()
    with runs.locked():
        if options.force or stage.is_over:
            runs.drop_work("align")
        stage.refuse_over()
        tables = _read_all(config)
        laps.end("read")
        group = make_group(config.agreement.group, config.compute.engine, config.compute.threads)
        log.info("group %s, engine %s", group.name, group.engine)
        with closing(group), closing(make_executor(config.compute, group)) as executor:

            def work(session: Session) -> None:
                laps.end("connect")
                aligner = Aligner(
                    role, config, executor, session, progress, laps, runs.work("align"), secrets
                )
                runs.save_alignments(
                    {
                        table: aligner.align(table, ids, ids.fingerprint)
                        for table, ids in tables.items()
                    }
                )

            run_with_peer(role, config, stage, work, plaintext=options.plaintext)
        runs.drop_work("align")
        return {table: runs.load_alignment(table) for table in tables}


@dataclass(frozen=True, slots=True)
class Aligner:
    """Takes one party's part in the unions of a session."""

    role: Role
    config: PartyConfig
    executor: Executor
    session: Session
    progress: Progress
    laps: Laps
    #: Where unions keep what they have done, to go on from after a loss.
    folder: Path
    secrets: SecretsInMemory

    def align(self, table: TableName, ids: Ids, fingerprint: str) -> Alignment:
        """The union of these IDs, with dummies as configured, and of the peer's.

        The ranks are in the folder, and are to be read before it is dropped.
        """
        counted = CountedProgress(self.progress, self.session.count_work)
        work = self._open(table, len(ids), fingerprint)
        if work.journal.ids is None:
            with counted.step(f"hashing our IDs ({table})") as step:
                dummies = self.config.alignment.dummies
                work.store_ids(hashed_with_dummies(self.executor, ids, dummies, step))
        self.laps.end("hash")
        view = self.role.run_psu(self.session, work, counted, table)
        self.laps.end("union")
        summary = self._summary(len(ids), fingerprint, view)
        return Alignment(summary, partial(view.places.parts, len(ids)))

    def _open(self, table: TableName, rows: int, fingerprint: str) -> UnionWork:
        """Where both are with this union."""
        settings, group = self.config.alignment, self.executor.group
        size = rows + settings.dummies
        storage = FolderStorage(self.folder / table)
        journal = Journal(storage, group.width, self._identity(table, fingerprint))
        channel = self.session.channel(f"{table}.psu.opening")
        held, done = open_union(channel, group, journal, self.secrets.held.get(table), size)
        self.secrets.held[table] = held
        limit = settings.memory_bytes
        storage.require(disk_needed(group.width, size, journal.peer_size, limit))
        room = room_for_sorting(limit, self.executor.memory)
        return UnionWork(self.executor, held.keys, journal, done, room)

    def _identity(self, table: TableName, fingerprint: str) -> bytes:
        """Of what is to be aligned with whom: another one begins anew."""
        config = self.config
        parts = (
            PROTOCOL_VERSION,
            self.role.name,
            config.party.name,
            config.party.peer,
            config.agreement.canonical(),
            table,
            fingerprint,
            config.alignment.dummies,
        )
        return sha256(json.dumps(parts).encode()).digest()

    def _summary(self, rows: int, fingerprint: str, view: UnionView) -> AlignmentSummary:
        config, traffic = self.config, self.session.traffic
        return AlignmentSummary(
            format=FORMAT,
            release=RELEASE,
            role=self.role.name,
            party=config.party.name,
            peer=config.party.peer,
            finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
            agreement=config.agreement.model_dump(mode="json"),
            engine=self.executor.group.engine,
            rows=rows,
            table_fingerprint=fingerprint,
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


def _read_all(config: PartyConfig) -> dict[TableName, TableIds]:
    """The IDs of every table that the agreement says there is, checked."""
    tables: dict[TableName, Table] = {"train": config.data.train}
    if config.agreement.training.test_table:
        if config.data.test_table is None:
            raise ConfigurationError(
                "data.test: missing; the agreement says that both parties have a test table "
                "(agreement.training.test_table)"
            )
        tables["test"] = config.data.test_table
    read: dict[TableName, TableIds] = {}
    for name, table in tables.items():
        storage = FolderStorage(config.run_directory)  # for files without a name
        read[name] = TableIds(table, config.agreement.id_normalisation, storage)
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
