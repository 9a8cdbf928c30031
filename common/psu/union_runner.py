"""The interface through which a stage runs unions, and the runner for a single process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from florist.common.psu.hashed_ids import DummyIds, hashed_with_dummies
from florist.common.psu.journal import Journal
from florist.common.psu.limits import disk_needed, memory_for_sorting
from florist.common.psu.union_handshake import open_union
from florist.common.psu.union_work import UnionWork
from florist.common.session.open_session import ConnectingRole
from florist.common.storage.files import FolderStorage

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from florist.common.core.progress import Progress
    from florist.common.core.stage_timer import StageTimer
    from florist.common.psu.executor import Executor
    from florist.common.psu.keys import OwnSecrets
    from florist.common.psu.sealed_keys import SecretsInMemory
    from florist.common.psu.union_view import UnionView
    from florist.common.session.alignment_result import TableName
    from florist.common.session.session import Session
    from florist.common.settings.party_config import PartyConfig
    from florist.common.storage.id_column import Ids
    from florist.common.transport.channel import Link


class UnionRole(ConnectingRole, Protocol):
    """What a union needs from a role."""

    @property
    def import_path(self) -> str:
        """The import path of the role for other processes, `module:name`."""
        ...

    @property
    def listens(self) -> bool:
        """Whether the role listens for connections; otherwise it dials."""
        ...

    def run_psu(self, link: Link, work: UnionWork, progress: Progress, table: str) -> UnionView:
        """Run the role's side of Algorithm 1."""
        ...


@dataclass(frozen=True, slots=True)
class UnionTask:
    """A table to align in one session."""

    role: UnionRole
    config: PartyConfig
    session: Session
    progress: Progress
    timer: StageTimer
    table: TableName
    ids: Ids
    #: Identifies the two parties and tables; a stored union of any others is not resumed.
    identity: bytes
    #: Where unions store their progress, to resume after an interruption.
    folder: Path
    secrets: SecretsInMemory

    @property
    def size(self) -> int:
        """The size of our set, dummies included."""
        return len(self.ids) + self.config.alignment.dummies


class UnionRunner(Protocol):
    """Runs unions; the creator closes it."""

    @property
    def engine(self) -> str:
        """The engine of the group."""
        ...

    @property
    def name(self) -> str:
        """A description for logs and reports."""
        ...

    def run(self, task: UnionTask) -> UnionView:
        """Compute the union of our IDs, with dummies as configured, and the peer's.

        Exchanges that both parties completed earlier are skipped. The view's ranks are stored in
        the task's folder; read them before it is deleted.
        """
        ...

    def forget(self, folder: Path, tables: Iterable[TableName]) -> None:
        """Delete what other machines have stored of these unions, which both parties completed."""
        ...

    def close(self) -> None:
        """Release the resources of the runner."""
        ...


@dataclass(frozen=True, slots=True)
class LocalUnionRunner:
    """Runs unions in this process, with an executor."""

    executor: Executor

    @property
    def engine(self) -> str:
        return self.executor.group.engine

    @property
    def name(self) -> str:
        return self.executor.name

    def run(self, task: UnionTask) -> UnionView:
        work, own = self._open(task)
        if work.journal.ids is None:
            with task.progress.step(f"hashing our IDs ({task.table})") as step:
                dummies = DummyIds(own.dummy_key, task.config.alignment.dummies)
                work.store_ids(hashed_with_dummies(self.executor, task.ids, dummies, step))
        task.timer.end("hash")
        view = task.role.run_psu(task.session, work, task.progress, task.table)
        task.timer.end("union")
        return view

    def _open(self, task: UnionTask) -> tuple[UnionWork, OwnSecrets]:
        """Agree with the peer on where to resume or start over."""
        table, group, secrets = task.table, self.executor.group, task.secrets.by_table
        storage = FolderStorage(task.folder / table)
        journal = Journal(storage, group.width, task.identity)
        channel = task.session.channel(f"{table}.psu.opening")
        secrets[table], done = open_union(channel, group, journal, secrets.get(table), task.size)
        limit = task.config.alignment.memory_bytes
        storage.require_space(disk_needed(group.width, task.size, journal.peer_size, limit))
        memory = memory_for_sorting(limit, self.executor.memory)
        own = secrets[table].own
        return UnionWork(self.executor, own.keys, journal, done, memory), own

    def forget(self, folder: Path, tables: Iterable[TableName]) -> None:
        """Do nothing: everything is stored on this machine."""

    def close(self) -> None:
        self.executor.close()
