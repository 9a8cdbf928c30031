"""A branch: a process of a party that computes a part of a union with a branch of the peer.

The party's main process, its head, negotiates with the peer's head. It sends each branch its
orders, its IDs and the secrets, and receives the ranks of the branch's rows.
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
from florist.common.core.allocator import return_freed_memory
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
from florist.common.psu.limits import disk_needed, memory_for_sorting
from florist.common.psu.partitions import share
from florist.common.psu.planted_pairs import PlantedPairs
from florist.common.psu.ranks import RANK_BYTES
from florist.common.psu.stored_sets import arriving_set
from florist.common.psu.union_protocol import merges
from florist.common.psu.union_work import UnionWork
from florist.common.session.session import Session, SessionTimeouts, make_hello
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

#: Seconds for the peer's branch to connect: both heads start their branches at the same time.
CONNECT = 30.0

#: Ranks in one reply.
RANKS_PER_REPLY = 1 << 17


class Branch:
    """Executes the orders of its head, one attempt after another; called from several threads."""

    def __init__(self, group: str, engine: str, cores: int) -> None:
        """Raise ConfigurationError if the group cannot be used on this machine."""
        return_freed_memory()
        self._group = make_group(group, engine, cores)
        self._executor = LocalExecutor(self._group)
        self._current: _BranchAttempt | None = None

    @property
    def engine(self) -> str:
        return self._group.engine

    # -- called by the head ------------------------------------------------------------------------

    def recall(self, record: UnionRecord) -> ResumeState:
        """Return what is stored of a union, after reading and checking all of it."""
        journal = self._journal(record)
        if not journal.token or not journal.drop_damaged():
            return ResumeState(token=b"", finished=(), has_ids=False)
        finished, ids = tuple(journal.finished), journal.ids
        return ResumeState(token=journal.token, finished=finished, has_ids=ids is not None)

    def begin(self, order: BranchOrder, members: Sequence[GroupMember]) -> None:
        """Begin an attempt; `members` are all branches, of which our own entry is not used.

        Raises:
            ConfigurationError: the disk cannot be used.
        """
        self._leave()
        journal = self._journal(order.record)
        if not order.resumes:
            journal.begin_part(order.token, order.peer_size)
        limit = order.config.alignment.memory_bytes
        width, sizes = self._group.width, (order.size, order.peer_size)
        we_merge = merges(order.merging, self._role(order).name)
        journal.storage.require_space(disk_needed(width, *sizes, limit, we_merge, order.count))
        attempt = _BranchAttempt(order, journal, list(members))
        if not order.has_ids:
            rows = share(order.size, order.number, order.count)
            attempt.ids = attempt.files.enter_context(
                arriving_set(journal.storage, IDS, width, rows)
            )
        self._current = attempt

    def take_ids(self, count: int, packed: bytes) -> int:
        """Take more of our IDs, in row order; return how many."""
        self._attempt.arriving.append(self._group.hash_ids(unpacked_ids(packed, count)))
        return count

    def end_ids(self) -> None:
        """Store the hashed IDs, which are complete."""
        self._attempt.journal.keep_ids(self._attempt.arriving.end())

    def listening_address(self, host: str, first_port: int) -> str:
        """Return where this branch listens on its machine, as `host:port`."""
        if first_port:
            port = first_port + self._attempt.order.number
        else:
            with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
                probe.bind((host, 0))
                port = probe.getsockname()[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def run(self, address: str, rendezvous: bytes) -> BranchResult:
        """Compute our part with the peer's branch that dials or listens at `address`.

        `rendezvous` is the name both heads have given this attempt; the peer's branch has it too.
        """
        attempt, order = self._attempt, self._attempt.order
        role = self._role(order)
        with ExitStack() as stack:
            config = _at_address(order, address, stack)
            link = stack.enter_context(
                role.connect(config, order.tls is None, min(CONNECT, config.timeouts.connect))
            )
            hello = make_hello(
                role.name,
                RELEASE,
                config.agreement.canonical(),
                f"align-branch-{order.number}-{rendezvous.hex()}",
            )
            times = SessionTimeouts(config.timeouts.silence, config.timeouts.stall)
            session = stack.enter_context(Session(link, hello, times))
            attempt.follow(session)
            try:
                return self._run(role, session, attempt)
            except BaseException as error:
                attempt.wake(as_florist_error(error))
                raise

    def _run(self, role: UnionRole, session: Session, attempt: _BranchAttempt) -> BranchResult:
        order = attempt.order

        def check() -> None:
            if session.failure is not None:
                raise session.failure

        if attempt.ids is not None:
            attempt.ids.watch(check)
        members = [*attempt.members]
        members[order.number] = attempt.mailbox
        work = UnionWork(
            self._executor,
            Keys(*map(Exponent, order.keys)),
            attempt.journal,
            order.done,
            memory_for_sorting(order.config.alignment.memory_bytes),
            WorkerGroup(order.number, attempt.mailbox, members, check),
            attempt.ids,
            PlantedPairs(order.config.agreement.union.planted_pairs, order.token),
            order.merging,
        )
        progress = CountedProgress(attempt.progress, session.count_work)
        view = role.run_psu(session, work, progress, order.table)
        attempt.ranks = view.ranks
        return BranchResult(sizes=view.sizes, digest=view.digest)

    def status(self) -> BranchStatus:
        """Return how far this attempt is."""
        attempt = self._current
        steps = attempt.progress.snapshot() if attempt else {}
        traffic = attempt.session.traffic if attempt and attempt.session else Traffic()
        return BranchStatus(steps=steps, sent=traffic.sent, received=traffic.received)

    def ranks(self, start: int) -> bytes:
        """Return some ranks of our rows from row `start` on, as they are stored."""
        ranks = self._attempt.ranks
        if ranks is None:
            raise InternalError("a branch was asked for ranks before it had computed them")
        with ranks.stored.storage.reading(ranks.stored.name) as file:
            file.seek(start * RANK_BYTES)
            return file.read(RANKS_PER_REPLY * RANK_BYTES)

    def stop(self, reason: str) -> None:
        """End the attempt in progress, if any."""
        if self._current is not None:
            self._current.stop(PeerLost(reason))

    def forget(self, folder: Path) -> None:
        """Delete what is stored of a union that is complete."""
        self._leave()
        FolderStorage(folder).clear()

    def close(self) -> None:
        """End the attempt and release the group; files stay on disk."""
        self._leave()
        self._group.close()

    # -- called by other branches of the party -----------------------------------------------------

    def mailbox(self, attempt: bytes) -> Mailbox:
        """Return our mailbox in that attempt.

        Raises:
            BranchLost: this branch is in another attempt, or in none.
        """
        if self._current is None or self._current.order.attempt != attempt:
            raise BranchLost("a branch of ours is in another attempt, or in none")
        return self._current.mailbox

    # ----------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """End the attempt in progress, if any, and close its files."""
        if self._current is not None:
            self._current.stop(PeerLost("this attempt has ended"))
            self._current.files.close()
            self._current = None

    @property
    def _attempt(self) -> _BranchAttempt:
        if self._current is None:
            raise BranchLost("a branch of ours was lost")
        return self._current

    def _role(self, order: BranchOrder) -> UnionRole:
        role: UnionRole = pkgutil.resolve_name(order.import_path)
        return role

    def _journal(self, record: UnionRecord) -> Journal:
        return Journal(FolderStorage(record.folder), self._group.width, record.identity)


@dataclass(slots=True, eq=False, repr=False)
class _BranchAttempt:
    """The state of a branch in one attempt at a union."""

    order: BranchOrder
    journal: Journal
    members: list[GroupMember]
    mailbox: Mailbox = field(default_factory=Mailbox)
    progress: RecordedProgress = field(default_factory=RecordedProgress)
    files: ExitStack = field(default_factory=ExitStack)
    #: Our IDs, if the head still sends them.
    ids: ArrivingSet | None = None
    ranks: StoredRanks | None = None
    session: Session | None = None
    failure: FloristError | None = None

    @property
    def arriving(self) -> ArrivingSet:
        if self.ids is None:
            raise InternalError("a branch that has stored its IDs was sent them again")
        return self.ids

    def follow(self, session: Session) -> None:
        """Make `session` fail when this attempt is stopped."""
        self.session = session
        if self.failure is not None:
            session.fail(self.failure)

    def stop(self, error: FloristError) -> None:
        """End it, whatever it is doing."""
        self.failure = self.failure or error
        if self.session is not None:
            self.session.fail(error)
        self.wake(error)

    def wake(self, error: FloristError) -> None:
        """Make every waiting thread raise `error`."""
        self.mailbox.fail(error)
        if self.ids is not None:
            self.ids.fail(error)


def _at_address(order: BranchOrder, address: str, stack: ExitStack) -> PartyConfig:
    """Return the party's configuration with another address, and its TLS files in memory."""
    tls = None if order.tls is None else _in_memory(order.tls, stack)
    network = order.config.network.model_copy(update={"address": address, "tls": tls})
    return order.config.model_copy(update={"network": network})


def _in_memory(contents: TlsContents, stack: ExitStack) -> Tls:
    """Put the TLS files into anonymous memory files, so that the key is not on a disk."""

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
        peer_authority=(
            None
            if contents.peer_authority is None
            else path("peer-authority", contents.peer_authority)
        ),
        peer_key_sha256=contents.peer_key_sha256,
    )
