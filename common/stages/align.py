"""The first stage, the same for both roles: from tables of IDs to alignments on disk."""

from __future__ import annotations

import json
import logging
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from florist.common.cluster.choose_runner import make_union_runner
from florist.common.core import allocator as freed_memory
from florist.common.core.errors import ConfigurationError
from florist.common.core.progress import CountedProgress
from florist.common.core.release import RELEASE
from florist.common.core.stage_timer import StageTimer
from florist.common.data.table_ids import TableIds
from florist.common.groups import make_group
from florist.common.psu.sealed_keys import SecretsInMemory
from florist.common.psu.union_runner import UnionTask
from florist.common.session.reconnect import run_with_peer
from florist.common.session.run_directory import (
    FORMAT,
    Alignment,
    AlignmentSummary,
    RunDirectory,
)
from florist.common.session.stage_state import StageState
from florist.common.storage.files import FolderStorage
from florist.common.transport.messages import PROTOCOL_VERSION

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.core.progress import Progress
    from florist.common.psu.alignment import UnionView
    from florist.common.psu.union_runner import UnionRunner
    from florist.common.session.run_directory import TableName
    from florist.common.session.session import Session
    from florist.common.session.stage_state import StageOptions
    from florist.common.settings.data import Table
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.role import Role
    from florist.common.storage.id_column import Ids

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
    stage = StageState(runs, "align", force=options.force)
    timer = StageTimer()
    secrets = SecretsInMemory()
    freed_memory.give_back()
    with runs.locked():
        if options.force or stage.is_complete:
            runs.drop_work("align")
        stage.refuse_complete()
        tables = _read_all(config)
        timer.end("read")
        group = make_group(config.agreement.group, config.compute.engine, config.compute.threads)
        log.info("group %s, engine %s", group.name, group.engine)
        with (
            closing(group),
            closing(make_union_runner(config, group, plaintext=options.plaintext)) as unions,
        ):

            def work(session: Session) -> None:
                timer.end("connect")
                aligner = Aligner(
                    role, config, unions, session, progress, timer, runs.work("align"), secrets
                )
                runs.save_alignments(
                    {
                        table: aligner.align(table, ids, ids.fingerprint)
                        for table, ids in tables.items()
                    }
                )

            run_with_peer(role, config, stage, work, plaintext=options.plaintext)
            unions.forget(runs.work("align"), tables)
        runs.drop_work("align")
        return {table: runs.load_alignment(table) for table in tables}


@dataclass(frozen=True, slots=True)
class Aligner:
    """Takes one party's part in the unions of a session."""

    role: Role
    config: PartyConfig
    unions: UnionRunner
    session: Session
    progress: Progress
    timer: StageTimer
    #: Where unions keep what they have done, to go on from after a loss.
    folder: Path
    secrets: SecretsInMemory

    def align(self, table: TableName, ids: Ids, fingerprint: str) -> Alignment:
        """The union of these IDs, with dummies as configured, and of the peer's.

        The ranks are in the folder, and are to be read before it is dropped.
        """
        view = self.unions.run(
            UnionTask(
                role=self.role,
                config=self.config,
                session=self.session,
                progress=CountedProgress(self.progress, self.session.count_work),
                timer=self.timer,
                table=table,
                ids=ids,
                identity=self._identity(table, fingerprint),
                folder=self.folder,
                secrets=self.secrets,
            )
        )
        summary = self._summary(len(ids), fingerprint, view)
        return Alignment(summary, partial(view.ranks.parts, len(ids)))

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
            engine=self.unions.engine,
            rows=rows,
            table_fingerprint=fingerprint,
            own_dummies=config.alignment.dummies,
            own_size=view.sizes.own,
            peer_size=view.sizes.peer,
            union_size=view.sizes.union,
            shared_size=view.sizes.shared,
            union_sha256=view.digest.hex(),
            seconds=dict(self.timer.seconds),
            bytes_sent=traffic.all_sent,
            bytes_received=traffic.all_received,
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
