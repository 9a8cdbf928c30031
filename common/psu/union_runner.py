"""The interface through which a stage runs unions, and the runner for a single process."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from florist.common.psu.hashed_ids import hashed_ids
from florist.common.psu.journal import Journal
from florist.common.psu.limits import disk_needed, memory_for_sorting
from florist.common.psu.padded_set import PaddedSet, noise_of
from florist.common.psu.planted_pairs import PlantedPairs
from florist.common.psu.union_handshake import AnnouncedSet, open_union
from florist.common.psu.union_protocol import EXCHANGES, Sizes, merges, merging_party
from florist.common.psu.union_work import UnionWork
from florist.common.session.open_session import ConnectingRole
from florist.common.storage.files import FolderStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from florist.common.core.progress import Progress
    from florist.common.core.roles import RoleName
    from florist.common.core.stage_timer import StageTimer
    from florist.common.groups.group import Group
    from florist.common.psu.exchanges import Exchange
    from florist.common.psu.executor import Executor
    from florist.common.psu.keys import OwnSecrets
    from florist.common.psu.padded_set import PaddedIds
    from florist.common.psu.sealed_keys import SecretsInMemory, UnionSecrets
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
        """Run the role's side of a union, by the agreed protocol."""
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
    #: Called once per new union with the size of our padded set, just before we announce it.
    before_announcing: Callable[[int], None] = lambda _size: None

    def padded_ids(self, union: UnionSecrets) -> PaddedIds:
        """Return our set in a union that is open, padding included."""
        return self._padded_set.ids(union.token, union.own)

    def planted_pairs(self, union: UnionSecrets) -> PlantedPairs:
        """Return the planted pairs of a union that is open."""
        return PlantedPairs(self.config.agreement.union.planted_pairs, union.token)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The exchanges of the agreed protocol."""
        return EXCHANGES[self.config.agreement.union.protocol]

    def merging_party(self, own: int, peer: int) -> RoleName | None:
        """Return the party that merges sets of these sizes; None by Algorithm 1."""
        sizes = Sizes.of(self.role.name, own, peer)
        return merging_party(self.config.agreement.union.protocol, sizes)

    def completed(self, view: UnionView, union: UnionSecrets, journal: Journal) -> UnionView:
        """Return the view of a complete union with all that the exchanges do not know."""
        merging = self.merging_party(view.sizes.own, view.sizes.peer)
        commitment = journal.commitment(union.own.commitment_key)
        view = replace(view, commitment=commitment, merging=merging)
        if (noise := self._padded_set.noise) is None:
            return view
        # Both parties have drawn from the same distribution.
        deviation = math.sqrt(2) * noise.deviation
        sizes = replace(view.sizes, pool=noise.pool_size, shared_deviation=deviation)
        return replace(view, sizes=sizes)

    # -- as the handshake needs it -----------------------------------------------------------------

    def draw_secrets(self, group: Group) -> OwnSecrets:
        """Return fresh secrets for a new union."""
        return self._padded_set.draw_secrets(group)

    def announce(self, token: bytes, own: OwnSecrets) -> AnnouncedSet:
        """Return what we announce about our set."""
        ids = self._padded_set.ids(token, own)
        commitment = ids.commit(own.commitment_key)
        self.before_announcing(len(ids))
        return AnnouncedSet(len(ids), commitment)

    @property
    def _padded_set(self) -> PaddedSet:
        noise = noise_of(self.config.agreement.union.privacy)
        return PaddedSet(self.ids, self.role.name, self.config.alignment.dummies, noise)


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
        work, union = self._open(task)
        if work.journal.ids is None:
            with task.progress.step(f"hashing our IDs ({task.table})") as step:
                work.store_ids(hashed_ids(self.executor, task.padded_ids(union), step))
        task.timer.end("hash")
        view = task.role.run_psu(task.session, work, task.progress, task.table)
        task.timer.end("union")
        return task.completed(view, union, work.journal)

    def _open(self, task: UnionTask) -> tuple[UnionWork, UnionSecrets]:
        """Agree with the peer on where to resume or start over."""
        table, group, secrets = task.table, self.executor.group, task.secrets.by_table
        storage = FolderStorage(task.folder / table)
        journal = Journal(storage, group.width, task.identity)
        channel = task.session.channel(f"{table}.psu.opening")
        union, done = open_union(channel, group, journal, secrets.get(table), task, task.exchanges)
        secrets[table] = union
        size, limit = len(task.padded_ids(union)), task.config.alignment.memory_bytes
        merging = task.merging_party(size, journal.peer_size)
        sizes = size, journal.peer_size
        we_merge = merges(merging, task.role.name)
        storage.require_space(disk_needed(group.width, *sizes, limit, we_merge))
        work = UnionWork(
            self.executor,
            union.keys,
            journal,
            done,
            memory_for_sorting(limit, self.executor.memory),
            planted=task.planted_pairs(union),
            merging=merging,
        )
        return work, union

    def forget(self, folder: Path, tables: Iterable[TableName]) -> None:
        """Do nothing: everything is stored on this machine."""

    def close(self) -> None:
        self.executor.close()
