"""The head of a party: runs a union on the party's branches.

The head talks to the peer's head in the session. They agree on where to resume and under which
secrets, as parties without branches do, and on how branches connect. The branches do the rest.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from florist.common.cluster.branch_addresses import NAME_BYTES, agree_on_rendezvous
from florist.common.cluster.branch_messages import (
    BranchOrder,
    ResumeState,
    TlsContents,
    UnionRecord,
)
from florist.common.cluster.branch_progress import MergedProgress
from florist.common.core.errors import (
    BranchLost,
    FloristError,
    InternalError,
    TransportError,
)
from florist.common.psu import partitions
from florist.common.psu.journal import Journal
from florist.common.psu.partitions import blocks_dealt
from florist.common.psu.ranks import RANK_BYTES, RANKS, StoredRanks
from florist.common.psu.stored_sets import StoredSet, writing_set
from florist.common.psu.union_handshake import open_union
from florist.common.psu.union_view import UnionView
from florist.common.storage.files import FolderStorage
from florist.common.storage.id_column import packed_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from florist.common.cluster.branch_messages import BranchResult
    from florist.common.cluster.remote_branch import RemoteBranch
    from florist.common.groups.group import Group
    from florist.common.privacy.commitment import SetCommitment
    from florist.common.psu.padded_set import PaddedIds
    from florist.common.psu.sealed_keys import UnionSecrets
    from florist.common.psu.union_runner import UnionTask
    from florist.common.session.alignment_result import TableName
    from florist.common.session.session import Session
    from florist.common.transport.messages import Step, UnionAnnouncement

T = TypeVar("T")

#: Seconds between two requests for the status of the branches.
_STATUS_SECONDS = 1.0
#: Seconds for the peer to give its reason, when all that we see is broken connections.
_REASON_SECONDS = 2.0
#: Seconds for branches to end their attempt after they are told to stop.
_STOP_SECONDS = 40.0


class Cluster(Protocol):
    """Where branches run."""

    @property
    def engine(self) -> str:
        """The engine of the branches' group."""
        ...

    @property
    def name(self) -> str:
        """A description for logs and reports."""
        ...

    def branches(self) -> Sequence[RemoteBranch]:
        """Return all branches, up and usable, for one attempt at a union.

        Raises:
            ConfigurationError: not all of them are.
        """
        ...

    def close(self) -> None:
        """End the branches."""
        ...


class BranchedUnionRunner:
    """Runs unions on `agreement.branches` branches."""

    def __init__(self, cluster: Cluster, group: Group, *, plaintext: bool) -> None:
        self._cluster = cluster
        self._group = group
        self._plaintext = plaintext

    @property
    def engine(self) -> str:
        return self._cluster.engine

    @property
    def name(self) -> str:
        return self._cluster.name

    def close(self) -> None:
        self._cluster.close()

    def forget(self, folder: Path, tables: Iterable[TableName]) -> None:
        with suppress(FloristError):  # a branch that is lost leaves its files
            for number, branch in enumerate(self._cluster.branches()):
                for table in tables:
                    branch.forget(_folder(folder, table, number))

    def run(self, task: UnionTask) -> UnionView:
        branches = self._cluster.branches()
        # Each branch runs, takes IDs and is asked for its status, while one more thread reads IDs.
        with ThreadPoolExecutor(3 * len(branches) + 1, thread_name_prefix="branch") as threads:
            return _HeadAttempt(task, self._group, branches, threads, self._plaintext).run()


@dataclass(frozen=True, slots=True)
class _HeadAttempt:
    """One attempt at a union."""

    task: UnionTask
    group: Group
    branches: Sequence[RemoteBranch]
    threads: ThreadPoolExecutor
    plaintext: bool

    def run(self) -> UnionView:
        task, journal = self.task, Journal(self._storage, self.group.width, self.task.identity)
        states = self._each(lambda branch, number: branch.recall(self._record(number)))
        joint = JointJournal(journal, states)
        channel = task.session.channel(f"{task.table}.psu.opening")
        known = task.secrets.by_table.get(task.table)
        union_secrets, done = open_union(channel, self.group, joint, known, task, task.exchanges)
        task.secrets.by_table[task.table] = union_secrets
        ids = task.padded_ids(union_secrets)
        self._begin(joint, union_secrets, done, len(ids))
        try:
            addresses, rendezvous = agree_on_rendezvous(
                channel, self._addresses(), len(self.branches)
            )
            sending = None if joint.has_ids else self.threads.submit(self._send_ids, ids)
            results = self._run_branches(addresses, rendezvous, sending)
        except BaseException:
            self._stop()
            raise
        view = task.completed(self._joined_view(results), union_secrets, journal)
        task.timer.end("union")
        return view

    @property
    def _storage(self) -> FolderStorage:
        """The storage of the head."""
        return FolderStorage(self.task.folder / self.task.table)

    def _record(self, number: int) -> UnionRecord:
        task = self.task
        return UnionRecord(folder=_folder(task.folder, task.table, number), identity=task.identity)

    # -- the parts of an attempt -------------------------------------------------------------------

    def _begin(
        self, joint: JointJournal, union_secrets: UnionSecrets, done: frozenset[Step], size: int
    ) -> None:
        """Give all branches their orders; our set has `size` IDs."""
        task, tls, keys = self.task, self.task.config.network.tls, union_secrets.keys
        first = BranchOrder(
            import_path=task.role.import_path,
            config=task.config,
            tls=None if self.plaintext or tls is None else TlsContents.of(tls),
            table=task.table,
            record=self._record(0),
            number=0,
            count=len(self.branches),
            token=union_secrets.token,
            attempt=secrets.token_bytes(NAME_BYTES),
            resumes=joint.resumes,
            done=done,
            has_ids=joint.has_ids,
            keys=(keys.first, keys.second, keys.third, keys.planting),
            merging=task.merging_party(size, joint.peer_size),
            size=size,
            peer_size=joint.peer_size,
        )

        def begin(branch: RemoteBranch, number: int) -> None:
            own = {"number": number, "record": self._record(number)}
            branch.begin(first.model_copy(update=own))

        self._each(begin)

    def _send_ids(self, own: PaddedIds) -> None:
        """Send each block of our IDs and padding to its branch."""
        task = self.task
        in_progress: list[Future[int] | None] = [None] * len(self.branches)
        with task.progress.step(f"hashing our IDs ({task.table})") as step:
            step.expect(len(own))

            def settle(number: int) -> None:
                if (previous := in_progress[number]) is not None:
                    step.advance(previous.result())

            blocks = own.batches(partitions.BLOCK_ROWS)
            dealt = blocks_dealt(len(own), len(self.branches))
            for (number, rows), ids in zip(dealt, blocks, strict=True):
                assert len(ids) == rows
                settle(number)  # a branch takes its IDs in order
                packed = b"".join(packed_ids([ids]))
                take_ids = self.branches[number].take_ids
                in_progress[number] = self.threads.submit(take_ids, rows, packed)
            for number in range(len(self.branches)):
                settle(number)
        self._each(lambda branch, _: branch.end_ids())

    def _addresses(self) -> Sequence[str]:
        """Return where our branches listen; nothing if they dial."""
        if not self.task.role.listens:
            return ()
        port = self.task.config.compute.ray_branch_port
        hosts = [branch.host() for branch in self.branches]
        return self._each(lambda branch, number: branch.listening_address(hosts[number], port))

    def _run_branches(
        self, addresses: Sequence[str], rendezvous: bytes, sending: Future[None] | None
    ) -> list[BranchResult]:
        """Run all branches to the end; they start while their IDs are still being sent."""
        results: dict[int, BranchResult] = {}

        def run(number: int, branch: RemoteBranch, address: str) -> None:
            results[number] = branch.run(address, rendezvous)

        pairs = zip(self.branches, addresses, strict=True)
        calls = [self.threads.submit(run, number, *pair) for number, pair in enumerate(pairs)]
        calls += [sending] if sending else []
        with MergedProgress(self.task.progress, self.task.session.traffic) as progress:
            while True:
                pending = [call for call in calls if not call.done()]
                is_cut_off = bool(pending) and self.task.session.failure is not None
                if (first := _errors(calls)) or is_cut_off:
                    self._stop()
                    wait(calls, _STOP_SECONDS)
                    raise _reason([*first, *_errors(calls)], self.task.session)
                self._show(progress)
                if not pending:
                    break
                wait(pending, _STATUS_SECONDS, FIRST_COMPLETED)
        return [results[number] for number in range(len(self.branches))]

    def _show(self, progress: MergedProgress) -> None:
        with suppress(BranchLost):  # the branch's run raises it too
            progress.show(self._each(lambda branch, _: branch.status()))

    def _joined_view(self, results: Sequence[BranchResult]) -> UnionView:
        """Return the view of the whole party, with the ranks of all rows in our storage."""
        if len(sizes := {result.sizes for result in results}) != 1:
            raise InternalError("our branches have computed unions of different sizes")
        whole = sizes.pop()
        readers = [_RankReader(branch) for branch in self.branches]
        with writing_set(self._storage, RANKS) as writer:
            for number, rows in blocks_dealt(whole.own, len(readers)):
                data = readers[number].take(rows * RANK_BYTES)
                writer.append(np.frombuffer(data, dtype=np.uint8).reshape(rows, RANK_BYTES))
        ranks = StoredSet(self._storage, RANKS, RANK_BYTES, writer.tally.facts)
        digest = hashlib.sha256(b"".join(result.digest for result in results)).digest()
        return UnionView(StoredRanks(ranks), digest, whole)

    # -- calls -------------------------------------------------------------------------------------

    def _each(self, call: Callable[[RemoteBranch, int], T]) -> list[T]:
        """Call every branch with its number, concurrently; return the results in order."""
        calls = [
            self.threads.submit(call, branch, number) for number, branch in enumerate(self.branches)
        ]
        wait(calls)
        return [each.result() for each in calls]

    def _stop(self) -> None:
        """End what the branches are doing."""

        def stop(branch: RemoteBranch) -> None:
            with suppress(FloristError):
                branch.stop("the party has ended this attempt")

        wait([self.threads.submit(stop, branch) for branch in self.branches], _STOP_SECONDS)


class JointJournal:
    """The stored state of all branches together, as `open_union` takes it from one party."""

    def __init__(self, journal: Journal, states: Sequence[ResumeState]) -> None:
        """`journal` is the head's: it has the sealed secrets, and no sets."""
        self._journal = journal
        self._states = states
        #: Whether branches resume from what they have stored.
        self.resumes = True

    @property
    def token(self) -> bytes:
        ours = self._journal.token
        return ours if all(state.token == ours for state in self._states) else b""

    def drop_damaged(self) -> bool:
        """Return True: each branch has dropped its own damaged sets in `recall`."""
        return True

    @property
    def finished(self) -> list[int]:
        first, *rest = (set(state.finished) for state in self._states)
        return sorted(first.intersection(*rest))

    @property
    def has_ids(self) -> bool:
        """Whether every branch still has its hashed IDs."""
        return self.resumes and all(state.has_ids for state in self._states)

    @property
    def peer_size(self) -> int:
        return self._journal.peer_size

    @property
    def sealed(self) -> bytes:
        return self._journal.sealed

    def begin(
        self, token: bytes, sealed: bytes, peer: UnionAnnouncement, own: SetCommitment
    ) -> None:
        """Start over, as `Journal.begin` does; branches start over with their orders."""
        self.resumes = False
        self._journal.begin(token, sealed, peer, own)


class _RankReader:
    """Reads the ranks of a branch's rows in order."""

    def __init__(self, branch: RemoteBranch) -> None:
        self._branch = branch
        self._taken = 0
        self._rest = b""

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        while len(self._rest) < size:
            start = (self._taken + len(self._rest)) // RANK_BYTES
            if not (more := self._branch.ranks(start)):
                raise InternalError("a branch has fewer ranks than rows")
            self._rest += more
        taken, self._rest = self._rest[:size], self._rest[size:]
        self._taken += size
        return taken


def _folder(folder: Path, table: TableName, branch: int) -> Path:
    """Return where a branch stores a union, on its own machine."""
    return folder / table / f"branch-{branch}"


def _errors(calls: Sequence[Future[None]]) -> list[BaseException]:
    return [error for call in calls if call.done() and (error := call.exception()) is not None]


def _reason(errors: Sequence[BaseException], session: Session) -> FloristError:
    """Return why an attempt ended, preferring a stated reason to a broken connection."""
    stated = [error for error in errors if not isinstance(error, TransportError)]
    stated += [error for error in errors if isinstance(error, BranchLost)]
    deadline = time.monotonic() + _REASON_SECONDS
    while not stated and session.failure is None and time.monotonic() < deadline:
        time.sleep(0.05)
    error = next(iter((*stated, session.failure or errors[0])))
    return error if isinstance(error, FloristError) else InternalError(f"a branch failed: {error}")
