"""A union as a stage wants it done, and who does it: this process, or a party's branches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from florist.common.psu.hashed_ids import hashed_with_dummies
from florist.common.psu.journal import Journal
from florist.common.psu.limits import disk_needed, room_for_sorting
from florist.common.psu.union_handshake import open_union
from florist.common.psu.union_work import UnionWork
from florist.common.session.open_session import ConnectingRole
from florist.common.storage.files import FolderStorage

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from florist.common.core.progress import Progress
    from florist.common.core.stage_timer import StageTimer
    from florist.common.psu.alignment import UnionView
    from florist.common.psu.executor import Executor
    from florist.common.psu.sealed_keys import SecretsInMemory
    from florist.common.session.run_directory import TableName
    from florist.common.session.session import Session
    from florist.common.settings.party_config import PartyConfig
    from florist.common.storage.id_column import Ids
    from florist.common.transport.channel import Link


class UnionRole(ConnectingRole, Protocol):
    """What a union needs of a role."""

    @property
    def import_path(self) -> str:
        """Where another process finds the role: `module:name`."""
        ...

    def run_psu(self, link: Link, work: UnionWork, progress: Progress, table: str) -> UnionView:
        """Take the role's part in Algorithm 1."""
        ...


@dataclass(frozen=True, slots=True)
class UnionTask:
    """One table to be aligned, in one session."""

    role: UnionRole
    config: PartyConfig
    session: Session
    progress: Progress
    timer: StageTimer
    table: TableName
    ids: Ids
    #: Of what is aligned with whom: what was begun of any other is not gone on with.
    identity: bytes
    #: Where unions keep what they have done, to go on from after a loss.
    folder: Path
    secrets: SecretsInMemory

    @property
    def size(self) -> int:
        """How many elements our set has, dummies included."""
        return len(self.ids) + self.config.alignment.dummies


class UnionRunner(Protocol):
    """Does unions; whoever made it closes it."""

    @property
    def engine(self) -> str:
        """Of the group."""
        ...

    @property
    def name(self) -> str:
        """For people."""
        ...

    def run(self, task: UnionTask) -> UnionView:
        """The union of our IDs, with dummies as configured, and of the peer's.

        What both parties have done of it before is not done again. The view's places are in the
        task's folder, and are to be read before it is dropped.
        """
        ...

    def forget(self, folder: Path, tables: Iterable[TableName]) -> None:
        """These unions are over, for the peer too: nothing of them is kept beyond this machine."""
        ...

    def close(self) -> None:
        """End what it started."""
        ...


@dataclass(frozen=True, slots=True)
class LocalUnionRunner:
    """By this process, with the help of an executor."""

    executor: Executor

    @property
    def engine(self) -> str:
        return self.executor.group.engine

    @property
    def name(self) -> str:
        return self.executor.name

    def run(self, task: UnionTask) -> UnionView:
        work = self._open(task)
        if work.journal.ids is None:
            with task.progress.step(f"hashing our IDs ({task.table})") as step:
                dummies = task.config.alignment.dummies
                work.store_ids(hashed_with_dummies(self.executor, task.ids, dummies, step))
        task.timer.end("hash")
        view = task.role.run_psu(task.session, work, task.progress, task.table)
        task.timer.end("union")
        return view

    def _open(self, task: UnionTask) -> UnionWork:
        """Where both are with this union."""
        table, group, secrets = task.table, self.executor.group, task.secrets.by_table
        storage = FolderStorage(task.folder / table)
        journal = Journal(storage, group.width, task.identity)
        channel = task.session.channel(f"{table}.psu.opening")
        secrets[table], done = open_union(channel, group, journal, secrets.get(table), task.size)
        limit = task.config.alignment.memory_bytes
        storage.require(disk_needed(group.width, task.size, journal.peer_size, limit))
        room = room_for_sorting(limit, self.executor.memory)
        return UnionWork(self.executor, secrets[table].keys, journal, done, room)

    def forget(self, folder: Path, tables: Iterable[TableName]) -> None:
        """All of it is here."""

    def close(self) -> None:
        self.executor.close()
