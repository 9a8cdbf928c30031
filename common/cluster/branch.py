"""A branch: a process of a party that does its part of a union with a branch of the peer.

The party's own process, its head, has agreed with the peer's on all that is to be agreed on. It
gives each branch its orders, its IDs and the secrets, and takes the ranks of its rows from it.
"""

from __future__ import annotations

import os
import pkgutil
import socket
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from florist.common.cluster.branch_messages import BranchResult, BranchStatus, ResumeState
from florist.common.cluster.branch_progress import RecordedProgress
from florist.common.cluster.worker_group import Mailbox, WorkerGroup
from florist.common.core import allocator as freed_memory
from florist.common.core.errors import (
    BranchLost,
    FloristError,
    InternalError,
    PeerLost,
    as_florist_error,
)
from florist.common.core.progress import CountedProgress
from florist.common.core.release import RELEASE
from florist.common.groups import make_group
from florist.common.groups.group import Exponent
from florist.common.psu.executor import LocalExecutor
from florist.common.psu.journal import IDS, Journal
from florist.common.psu.keys import Keys
from florist.common.psu.limits import disk_needed, room_for_sorting
from florist.common.psu.partitions import share
from florist.common.psu.ranks import RANK_BYTES
from florist.common.psu.stored_sets import arriving_set
from florist.common.psu.union_work import UnionWork
from florist.common.session.session import Patience, Session, make_hello
from florist.common.settings.network import Tls
from florist.common.storage.files import FolderStorage
from florist.common.storage.id_column import unpacked_ids
from florist.common.transport.channel import Traffic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from florist.common.cluster.branch_messages import BranchOrder, TlsContents, UnionRecord
    from florist.common.cluster.worker_group import GroupMember
    from florist.common.psu.ranks import StoredRanks
    from florist.common.psu.stored_sets import ArrivingSet
    from florist.common.psu.union_runner import UnionRole
    from florist.common.settings.party_config import PartyConfig

#: Seconds for the peer's branch to come: it was sent at the same moment.
CONNECT = 30.0

#: StoredRanks that are given at once.
RANKS_AT_ONCE = 1 << 17


class Branch:
    """Takes orders from the head, one attempt after the other; called from several threads."""

    def __init__(self, group: str, engine: str, cores: int) -> None:
        """Raises ConfigurationError where the group cannot work here."""
        freed_memory.give_back()
        self._group = make_group(group, engine, cores)
        self._executor = LocalExecutor(self._group)
        self._at: _BranchAttempt | None = None

    @property
    def engine(self) -> str:
        return self._group.engine

    # -- as the head calls it ----------------------------------------------------------------------

    def recall(self, record: UnionRecord) -> ResumeState:
        """What there is of a union; reads all of it."""
        journal = self._journal(record)
        if not journal.token or not journal.drop_unsound():
            return ResumeState(token=b"", finished=(), has_ids=False)
        finished, ids = tuple(journal.finished), journal.ids
        return ResumeState(token=journal.token, finished=finished, has_ids=ids is not None)

    def begin(self, order: BranchOrder, members: Sequence[GroupMember]) -> None:
        """Begin an attempt; `members` are all siblings, our own place among them is not used.

        Raises:
            ConfigurationError: the disk cannot be used.
        """
        self._leave()
        journal = self._journal(order.record)
        if not order.goes_on:
            journal.begin(order.token, b"", order.peer_size)
        limit = order.config.alignment.memory_bytes
        width, sizes = self._group.width, (order.size, order.peer_size)
        journal.storage.require(disk_needed(width, *sizes, limit, branches=order.count))
        at = _BranchAttempt(order, journal, list(members))
        if not order.has_ids:
            rows = share(order.size, order.number, order.count)
            at.ids = at.files.enter_context(arriving_set(journal.storage, IDS, width, rows))
        self._at = at

    def take_ids(self, count: int, packed: bytes) -> int:
        """More of our IDs, in their order; how many there were."""
        self._attempt.arriving.append(self._group.hash_ids(unpacked_ids(packed, count)))
        return count

    def end_ids(self) -> None:
        """There are no more."""
        self._attempt.journal.keep_ids(self._attempt.arriving.end())

    def listening_address(self, host: str, first_port: int) -> str:
        """Where this branch is to listen on this machine."""
        if first_port:
            port = first_port + self._attempt.order.number
        else:
            with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
                probe.bind((host, 0))
                port = probe.getsockname()[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def run(self, address: str, meeting: bytes) -> BranchResult:
        """Take our part, with the peer's branch that dials or listens at `address`.

        `meeting` is a name that both heads have given this attempt; the peer's branch has it too.
        """
        at, order = self._attempt, self._attempt.order
        role: UnionRole = pkgutil.resolve_name(order.import_path)
        with ExitStack() as stack:
            config = _at_address(order, address, stack)
            link = stack.enter_context(
                role.connect(config, order.tls is None, min(CONNECT, config.timeouts.connect))
            )
            hello = make_hello(
                role.name,
                RELEASE,
                config.agreement.canonical(),
                f"align-branch-{order.number}-{meeting.hex()}",
            )
            times = Patience(config.timeouts.silence, config.timeouts.stall)
            session = stack.enter_context(Session(link, hello, times))
            at.follow(session)
            try:
                return self._run(role, session, at)
            except BaseException as error:
                at.wake(as_florist_error(error))
                raise

    def _run(self, role: UnionRole, session: Session, at: _BranchAttempt) -> BranchResult:
        order = at.order

        def check() -> None:
            if session.failure is not None:
                raise session.failure

        if at.ids is not None:
            at.ids.watch(check)
        members = [*at.members]
        members[order.number] = at.mailbox
        work = UnionWork(
            self._executor,
            Keys(*map(Exponent, order.keys)),
            at.journal,
            order.done,
            room_for_sorting(order.config.alignment.memory_bytes),
            WorkerGroup(order.number, at.mailbox, members, check),
            at.ids,
        )
        progress = CountedProgress(at.progress, session.count_work)
        view = role.run_psu(session, work, progress, order.table)
        at.ranks = view.ranks
        return BranchResult(sizes=view.sizes, digest=view.digest)

    def status(self) -> BranchStatus:
        """How far this attempt is."""
        at = self._at
        steps = at.progress.snapshot() if at else {}
        traffic = at.session.traffic if at and at.session else Traffic()
        return BranchStatus(steps=steps, sent=traffic.sent, received=traffic.received)

    def ranks(self, start: int) -> bytes:
        """Those of our rows from `start` on, as they are stored; some."""
        ranks = self._attempt.ranks
        if ranks is None:
            raise InternalError("a branch was asked for ranks before it had found them")
        with ranks.stored.storage.reading(ranks.stored.name) as file:
            file.seek(start * RANK_BYTES)
            return file.read(RANKS_AT_ONCE * RANK_BYTES)

    def stop(self, reason: str) -> None:
        """End what is under way."""
        if self._at is not None:
            self._at.stop(PeerLost(reason))

    def forget(self, folder: Path) -> None:
        """A union is over: nothing of it is kept on disk."""
        self._leave()
        FolderStorage(folder).clear()

    def close(self) -> None:
        """End it; what it has on disk stays."""
        self._leave()
        self._group.close()

    # -- as siblings do ----------------------------------------------------------------------------

    def mailbox(self, attempt: bytes) -> Mailbox:
        """Ours in that attempt.

        Raises:
            BranchLost: there is another one now, or none.
        """
        if self._at is None or self._at.order.attempt != attempt:
            raise BranchLost("a branch of ours is in no attempt, or in another one")
        return self._at.mailbox

    # ----------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """There is no attempt any more."""
        if self._at is not None:
            self._at.stop(PeerLost("this attempt is over"))
            self._at.files.close()
            self._at = None

    @property
    def _attempt(self) -> _BranchAttempt:
        if self._at is None:
            raise BranchLost("a branch of ours was lost")
        return self._at

    def _journal(self, record: UnionRecord) -> Journal:
        return Journal(FolderStorage(record.folder), self._group.width, record.identity)


@dataclass(slots=True, eq=False, repr=False)
class _BranchAttempt:
    order: BranchOrder
    journal: Journal
    members: list[GroupMember]
    mailbox: Mailbox = field(default_factory=Mailbox)
    progress: RecordedProgress = field(default_factory=RecordedProgress)
    files: ExitStack = field(default_factory=ExitStack)
    #: Our IDs, where they have yet to come.
    ids: ArrivingSet | None = None
    ranks: StoredRanks | None = None
    session: Session | None = None
    failure: FloristError | None = None

    @property
    def arriving(self) -> ArrivingSet:
        if self.ids is None:
            raise InternalError("a branch that has its IDs gets them again")
        return self.ids

    def follow(self, session: Session) -> None:
        """The session that ends when this does."""
        self.session = session
        if self.failure is not None:
            session.fail(self.failure)

    def stop(self, error: FloristError) -> None:
        """End it, whatever it is about."""
        self.failure = self.failure or error
        if self.session is not None:
            self.session.fail(error)
        self.wake(error)

    def wake(self, error: FloristError) -> None:
        """Let nobody wait any more."""
        self.mailbox.fail(error)
        if self.ids is not None:
            self.ids.fail(error)


def _at_address(order: BranchOrder, address: str, stack: ExitStack) -> PartyConfig:
    """The party's configuration with another address; TLS's files are in memory."""
    tls = None if order.tls is None else _in_memory(order.tls, stack)
    network = order.config.network.model_copy(update={"address": address, "tls": tls})
    return order.config.model_copy(update={"network": network})


def _in_memory(contents: TlsContents, stack: ExitStack) -> Tls:
    def path(name: str, content: bytes) -> Path:
        handle = os.memfd_create(name, os.MFD_CLOEXEC)
        stack.callback(os.close, handle)
        os.fchmod(handle, 0o600)
        os.write(handle, content)
        return Path(f"/proc/self/fd/{handle}")

    return Tls(
        authority=path("authority", contents.authority),
        certificate=path("certificate", contents.certificate),
        key=path("key", contents.key),
    )
