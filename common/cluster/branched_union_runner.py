"""A party's head: has its branches do a union together.

The head speaks with the peer's head, in the session. They agree on where to go on and under which
secrets, as parties alone do, and on how their branches meet. All else is between branches.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

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
from florist.common.psu.alignment import UnionView
from florist.common.psu.hashed_ids import random_ids
from florist.common.psu.journal import Journal
from florist.common.psu.partitions import blocks_dealt
from florist.common.psu.ranks import RANK_BYTES, RANKS, StoredRanks
from florist.common.psu.stored_sets import StoredSet, writing_set
from florist.common.psu.union_handshake import open_union
from florist.common.storage.files import FolderStorage
from florist.common.storage.id_column import IdColumn, packed_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from florist.common.cluster.branch_messages import BranchResult, BranchStatus
    from florist.common.groups.group import Group
    from florist.common.psu.sealed_keys import UnionSecrets
    from florist.common.psu.union_runner import UnionTask
    from florist.common.session.run_directory import TableName
    from florist.common.session.session import Session
    from florist.common.storage.id_column import Ids
    from florist.common.transport.messages import Step

#: Seconds between two looks at how far branches are.
_LOOK = 1.0
#: Seconds for the peer to say why, when all that we see is that connections broke.
_GRACE = 2.0
#: Seconds for branches to end what they do when they are told to stop.
_STOPPING = 40.0


class RemoteBranch(Protocol):
    """A `Branch` in another process."""

    def call(self, method: str, *arguments: object) -> Any:  # noqa: ANN401 - as `Branch` gives it
        """What its method gives, or raises.

        Raises:
            BranchLost: the process was lost.
        """
        ...

    def begin(self, order: BranchOrder) -> None:
        """As `Branch.begin`, with its siblings."""
        ...

    def host(self) -> str:
        """The address of the machine that it is on, for the peer's branches."""
        ...


class Cluster(Protocol):
    """Where branches run."""

    @property
    def engine(self) -> str:
        """Of theirs."""
        ...

    @property
    def name(self) -> str:
        """For people."""
        ...

    def branches(self) -> Sequence[RemoteBranch]:
        """All of them, each there and able to work; for one attempt at a union.

        Raises:
            ConfigurationError: they are not.
        """
        ...

    def close(self) -> None:
        """End them."""
        ...


class BranchedUnionRunner:
    """UnionRunner by branches, `agreement.branches` of them."""

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
        with suppress(FloristError):  # a branch that is gone leaves its files
            for number, branch in enumerate(self._cluster.branches()):
                for table in tables:
                    branch.call("forget", _folder(folder, table, number))

    def run(self, task: UnionTask) -> UnionView:
        branches = self._cluster.branches()
        # Each runs, takes IDs and is asked how far it is, while one more thread reads.
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
        memories: list[ResumeState] = self._each("recall", [(record,) for record in self._records])
        joint = JointJournal(journal, memories)
        channel = task.session.channel(f"{task.table}.psu.opening")
        kept = task.secrets.by_table.get(task.table)
        held, done = open_union(channel, self.group, joint, kept, task.size)
        task.secrets.by_table[task.table] = held
        self._begin(joint, held, done)
        try:
            addresses, meeting = agree_on_rendezvous(channel, self._addresses(), len(self.branches))
            feeding = None if joint.has_ids else self.threads.submit(self._send_ids)
            findings = self._run_branches(addresses, meeting, feeding)
        except BaseException:
            self._stop()
            raise
        view = self._joined_view(findings)
        task.timer.end("union")
        return view

    @property
    def _storage(self) -> FolderStorage:
        """The head's own."""
        return FolderStorage(self.task.folder / self.task.table)

    @property
    def _records(self) -> list[UnionRecord]:
        task = self.task
        return [
            UnionRecord(folder=_folder(task.folder, task.table, number), identity=task.identity)
            for number in range(len(self.branches))
        ]

    # -- its parts ---------------------------------------------------------------------------------

    def _begin(self, joint: JointJournal, held: UnionSecrets, done: frozenset[Step]) -> None:
        """Give all branches their orders."""
        task, tls = self.task, self.task.config.network.tls
        first, *others = self._records
        order = BranchOrder(
            import_path=task.role.import_path,
            config=task.config,
            tls=None if self.plaintext or tls is None else TlsContents.of(tls),
            table=task.table,
            record=first,
            number=0,
            count=len(self.branches),
            token=held.token,
            attempt=secrets.token_bytes(NAME_BYTES),
            goes_on=joint.goes_on,
            done=done,
            has_ids=joint.has_ids,
            keys=(held.keys.first, held.keys.second, held.keys.third),
            size=task.size,
            peer_size=joint.peer_size,
        )
        orders = [order] + [
            order.model_copy(update={"number": number, "record": record})
            for number, record in enumerate(others, start=1)
        ]
        self._wait(
            [
                self.threads.submit(branch.begin, each)
                for branch, each in zip(self.branches, orders, strict=True)
            ]
        )

    def _send_ids(self) -> None:
        """Each block of our IDs, dummies included, to the branch whose it is."""
        task = self.task
        under_way: list[Future[int] | None] = [None] * len(self.branches)
        with task.progress.step(f"hashing our IDs ({task.table})") as step:
            step.expect(task.size)

            def settle(number: int) -> None:
                if (before := under_way[number]) is not None:
                    step.advance(before.result())

            blocks = blocks_of_ids(task.ids, task.config.alignment.dummies)
            dealt = blocks_dealt(task.size, len(self.branches))
            for (number, rows), ids in zip(dealt, blocks, strict=True):
                assert len(ids) == rows
                settle(number)  # a branch gets its IDs in order
                call = self.branches[number].call
                packed = b"".join(packed_ids([ids]))
                under_way[number] = self.threads.submit(call, "take_ids", rows, packed)
            for number in range(len(self.branches)):
                settle(number)
        self._each("end_ids", [()] * len(self.branches))

    def _addresses(self) -> Sequence[str]:
        """Where our branches listen; none if they dial."""
        if self.task.role.name == "passive":
            return ()
        port = self.task.config.compute.ray_branch_port
        hosts = [branch.host() for branch in self.branches]
        found: list[str] = self._each("listening_address", [(host, port) for host in hosts])
        return found

    def _run_branches(
        self, addresses: Sequence[str], meeting: bytes, feeding: Future[None] | None
    ) -> list[BranchResult]:
        """To their ends; they begin while their IDs are still on the way."""
        runs: list[Future[BranchResult]] = [
            self.threads.submit(branch.call, "run", address, meeting)
            for branch, address in zip(self.branches, addresses, strict=True)
        ]
        under_way: list[Future[Any]] = [*runs, *([feeding] if feeding else [])]
        with MergedProgress(self.task.progress, self.task.session.traffic) as mirror:
            while True:
                left = [each for each in under_way if not each.done()]
                is_cut_off = bool(left) and self.task.session.failure is not None
                if (first := _errors(under_way)) or is_cut_off:
                    self._stop()
                    wait(under_way, _STOPPING)
                    raise _reason([*first, *_errors(under_way)], self.task.session)
                self._show(mirror)
                if not left:
                    break
                wait(left, _LOOK, FIRST_COMPLETED)
        return [run.result() for run in runs]

    def _show(self, mirror: MergedProgress) -> None:
        with suppress(BranchLost):  # whoever does its work is told
            statuses: list[BranchStatus] = self._each("status", [()] * len(self.branches))
            mirror.show(statuses)

    def _joined_view(self, findings: Sequence[BranchResult]) -> UnionView:
        """As a party alone would have it: with the ranks of all rows, here."""
        if len(sizes := {finding.sizes for finding in findings}) != 1:
            raise InternalError("our branches have found unions of different sizes")
        whole = sizes.pop()
        hands = [_RankReader(branch) for branch in self.branches]
        with writing_set(self._storage, RANKS) as writer:
            for number, rows in blocks_dealt(whole.own, len(hands)):
                data = hands[number].take(rows * RANK_BYTES)
                writer.append(np.frombuffer(data, dtype=np.uint8).reshape(rows, RANK_BYTES))
        ranks = StoredSet(self._storage, RANKS, RANK_BYTES, writer.tally.facts)
        digest = hashlib.sha256(b"".join(finding.digest for finding in findings)).digest()
        return UnionView(StoredRanks(ranks), digest, whole)

    # -- calls -------------------------------------------------------------------------------------

    def _each(self, method: str, arguments: Sequence[tuple[object, ...]]) -> list[Any]:
        """Of every branch, at once."""
        return self._wait(
            [
                self.threads.submit(branch.call, method, *given)
                for branch, given in zip(self.branches, arguments, strict=True)
            ]
        )

    @staticmethod
    def _wait(calls: Sequence[Future[Any]]) -> list[Any]:
        wait(calls)
        return [call.result() for call in calls]

    def _stop(self) -> None:
        """End what branches do."""

        def stop(branch: RemoteBranch) -> None:
            with suppress(FloristError):
                branch.call("stop", "the party has ended this attempt")

        wait([self.threads.submit(stop, branch) for branch in self.branches], _STOPPING)


class JointJournal:
    """What all branches have of a union, as `open_union` takes it for one party's."""

    def __init__(self, journal: Journal, memories: Sequence[ResumeState]) -> None:
        """`journal` is the head's: it has the sealed secrets, and no sets."""
        self._journal = journal
        self._memories = memories
        #: Whether branches go on with what they have.
        self.goes_on = True

    @property
    def token(self) -> bytes:
        ours = self._journal.token
        return ours if all(memory.token == ours for memory in self._memories) else b""

    def drop_unsound(self) -> bool:
        """Branches have, when they were asked."""
        return True

    @property
    def finished(self) -> list[int]:
        first, *rest = (set(memory.finished) for memory in self._memories)
        return sorted(first.intersection(*rest))

    @property
    def has_ids(self) -> bool:
        """Whether each branch still has its hashed IDs."""
        return self.goes_on and all(memory.has_ids for memory in self._memories)

    @property
    def peer_size(self) -> int:
        return self._journal.peer_size

    @property
    def sealed(self) -> bytes:
        return self._journal.sealed

    def begin(self, token: bytes, sealed: bytes, peer_size: int) -> None:
        """As `Journal.begin`; branches are told with their orders."""
        self.goes_on = False
        self._journal.begin(token, sealed, peer_size)


class _RankReader:
    """The ranks of a branch's rows, in their order."""

    def __init__(self, branch: RemoteBranch) -> None:
        self._branch = branch
        self._taken = 0
        self._rest = b""

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        while len(self._rest) < size:
            start = (self._taken + len(self._rest)) // RANK_BYTES
            if not (more := self._branch.call("ranks", start)):
                raise InternalError("a branch has fewer ranks than rows")
            self._rest += more
        taken, self._rest = self._rest[:size], self._rest[size:]
        self._taken += size
        return taken


def blocks_of_ids(ids: Ids, dummies: int) -> Iterator[IdColumn]:
    """Our IDs, then our dummies, in blocks as they are dealt: nothing shows where IDs end."""
    rows = partitions.BLOCK_ROWS
    for batch in ids.batches(rows):
        block = batch
        if missing := min(rows - len(batch), dummies):
            block = IdColumn.joined([batch, random_ids(missing)])
            dummies -= missing
        yield block
    for start in range(0, dummies, rows):
        yield random_ids(min(rows, dummies - start))


def _folder(folder: Path, table: TableName, branch: int) -> Path:
    """Where a branch keeps a union, on its own machine."""
    return folder / table / f"branch-{branch}"


def _errors(calls: Sequence[Future[Any]]) -> list[BaseException]:
    return [error for call in calls if call.done() and (error := call.exception()) is not None]


def _reason(errors: Sequence[BaseException], session: Session) -> FloristError:
    """Why an attempt ended: rather what someone said than that a connection broke."""
    said = [each for each in errors if not isinstance(each, TransportError)]
    said += [each for each in errors if isinstance(each, BranchLost)]
    deadline = time.monotonic() + _GRACE
    while not said and session.failure is None and time.monotonic() < deadline:
        time.sleep(0.05)
    error = next(iter((*said, session.failure or errors[0])))
    return error if isinstance(error, FloristError) else InternalError(f"a branch failed: {error}")
