"""A union's heavy work on a party's own Ray cluster.

Ray starts the workers, places them and restarts them. Here is what it must not be trusted with, the
sealing (`sealed_jobs.py`), and what it does not do: a job of a worker that is lost goes to another
one, at once. A job has no effect beyond its answer, so it does not matter how often it is done.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count, pairwise
from queue import Empty, SimpleQueue
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from florist.common.cluster import ray_cluster
from florist.common.cluster.ray_worker import UNKNOWN_SESSION, Worker, incompatibility
from florist.common.cluster.sealed_jobs import (
    NONCE_BYTES,
    Job,
    KeyExchange,
    Kind,
    Outcome,
    UnsealError,
)
from florist.common.core.errors import (
    ConfigurationError,
    FloristError,
    InternalError,
    ProtocolViolation,
)
from florist.common.core.prefetch import Prefetched
from florist.common.core.priority_pool import PriorityPool, current_rank
from florist.common.psu.executor import LocalExecutor
from florist.common.psu.set_stream import CHUNK_BYTES
from florist.common.storage.element_sets import sorted_set
from florist.common.storage.id_column import packed_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence, Sized

    from florist.common.cluster.ray_worker import Greeting
    from florist.common.cluster.sealed_jobs import SealedSession
    from florist.common.groups.group import Exponent, Group
    from florist.common.storage.elements import Elements
    from florist.common.storage.id_column import IdColumn

log = logging.getLogger("florist.align")

S = TypeVar("S", bound="Sized")

#: Jobs that a worker has at a time: one that it does, and one that is there when it is done.
JOBS_PER_WORKER = 2

#: Chunks that a job has at most: what Ray takes of this process for a call is then small beside the
#: work, and a worker is done with it in a quarter of a second with the fastest group.
PARTS_PER_JOB = 4

#: Chunks of one stream that may be under way, at most; there are up to five streams.
MOST_AHEAD = 256
_STREAMS = 5

#: Seconds without any worker after which the run ends.
PATIENCE = 120.0

#: Seconds after which a worker that does not answer is restarted.
_JOB_PATIENCE = 600.0

#: Workers that one job may cost before it is taken to be the cause.
_MOST_LOSSES = 8

_WORKER_LOST = "a worker of the Ray cluster was lost; others do its work"

#: Fewer rows are sorted here: sending them takes longer.
_SORTED_HERE_BELOW = 1 << 16
#: Larger ranges of rows, which are then much alike, are sorted here too.
_SORT_BYTES_MOST = 1 << 22


class RayExecutor:
    """Workers with one core each, on a cluster that is this party's own."""

    def __init__(
        self, group: Group, *, engine: str = "auto", address: str = "auto", workers: int = 0
    ) -> None:
        """Connect, and wait for the first worker; the others join as they come up.

        Args:
            group: on this machine.
            engine: of the workers.
            address: as in `ray_cluster.join`.
            workers: 0 stands for as many as the cluster has cores.

        Raises:
            ConfigurationError: there is no such cluster, or a worker cannot work.
        """
        self.group = group
        self._joined = ray_cluster.join(address, workers)
        import ray  # noqa: PLC0415 - an extra; it is there, as we have joined

        self._ray = ray
        self._closed = False
        workers = workers or int(ray.cluster_resources().get("CPU", 0))
        #: A job for each worker; that there are two is for several streams together.
        self.ahead = min(MOST_AHEAD, PARTS_PER_JOB * workers + 2)
        self._seats = JOBS_PER_WORKER * workers
        self._arrivals = count(1)
        self._turn = Lock()
        #: Those that have nothing to do; or an error, for whoever looks for one.
        self._idle: SimpleQueue[_Seat | FloristError] = SimpleQueue()
        remote = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=0)(Worker)
        self._actors: list[Any] = [remote.remote(group.name, engine) for _ in range(workers)]
        self._threads = PriorityPool(max(1, self._seats), "ray-job")
        try:
            for actor in self._actors * JOBS_PER_WORKER:
                self._introduce(actor, first=True)
            first = self._take_idle()
        except BaseException:
            self.close()
            raise
        self._idle.put(first)
        self.name = f"ray, {workers} workers"
        log.info("executor %s, engine %s", self.name, first.engine)

    @property
    def memory(self) -> int:
        # As they came, and as they are given; in order, as many again wait in each of two windows.
        waiting = (2 * _STREAMS + 2) * self.ahead
        # Sealed, there and back.
        at_workers = 2 * min(_STREAMS * self.ahead, self._seats * PARTS_PER_JOB)
        return (waiting + at_workers) * CHUNK_BYTES

    # -- what it is for ----------------------------------------------------------------------------

    def hashed(self, batches: Iterable[IdColumn]) -> Iterator[Elements]:
        def job(columns: Sequence[IdColumn]) -> Job:
            return Job(Kind.HASH, sum(map(len, columns)), packed_ids(columns))

        return self._each(batches, job, self.group.width)

    def raised(
        self, chunks: Iterable[Elements], exponent: Exponent, *, check: bool
    ) -> Iterator[Elements]:
        width = self.group.width
        kind = Kind.CHECK_AND_RAISE if check else Kind.RAISE

        def job(chunks: Sequence[Elements]) -> Job:
            return Job(kind, width, _buffers(chunks), exponent)

        return self._each(chunks, job, width)

    def checked(self, chunks: Iterable[Elements]) -> Iterator[Elements]:
        return LocalExecutor(self.group).checked(chunks)  # sending them takes as long

    def sorted(self, rows: Elements) -> Elements:
        if len(rows) < _SORTED_HERE_BELOW:
            return sorted_set(rows)
        width = rows.shape[1]
        # By their first two bytes, rows fall into ranges that can be sorted one by one, and several
        # that follow each other as one.
        begins = np.ascontiguousarray(rows[:, :2]).view(">u2")[:, 0].astype(np.uint16)
        ranged = rows.take(np.argsort(begins, kind="stable"), axis=0)
        ranges = [ranged[start:end] for start, end in pairwise(_cuts(begins, CHUNK_BYTES // width))]
        sent = [each for each in ranges if each.nbytes <= _SORT_BYTES_MOST]

        def job(ranges: Sequence[Elements]) -> Job:
            return Job(Kind.SORT, width, _buffers(ranges))

        back = self._each(sent, job, width)
        for each in ranges:
            each[:] = sorted_set(each) if each.nbytes > _SORT_BYTES_MOST else next(back)
        return ranged

    def close(self) -> None:
        self._closed = True
        with suppress(Empty):
            while True:
                self._idle.get_nowait()
        self._idle.put(InternalError("the cluster's work was ended"))
        for actor in self._actors:
            self._ray.kill(actor)  # calls under way fail, and find the error above
        self._threads.close()  # what waits fails with it too
        if self._joined:
            ray_cluster.leave()

    # -- jobs --------------------------------------------------------------------------------------

    def _each(
        self, items: Iterable[S], job: Callable[[Sequence[S]], Job], width: int
    ) -> Prefetched[Elements]:
        """What the jobs give for each item: as many rows of `width` bytes as it has."""
        line: deque[_Part[S]] = deque()
        rank = current_rank()  # begun by another thread

        def begin(item: S) -> Future[Elements]:
            part = _Part(item)
            line.append(part)
            self._threads.submit(partial(self._work_off, line, job, width), rank)
            return part.result

        return Prefetched(items, begin, self.ahead)

    def _work_off(
        self, line: deque[_Part[S]], job: Callable[[Sequence[S]], Job], width: int
    ) -> None:
        """Do what has waited longest in the line; and more of it, if much waits."""
        parts: list[_Part[S]] = []
        try:
            # One at a time: whenever that is what takes long, more waits, and jobs become larger.
            with self._turn:
                if not (parts := _taken(line, 1)):
                    return  # it was in a job before
                seat = self._take_idle()
                parts += _taken(line, self._share(1 + len(line)) - 1)
                call = self._send(seat, job([part.item for part in parts]))
            rows = _rows(self._answer(call), width)
        except BaseException as error:  # noqa: BLE001 - whoever takes the results is told
            if isinstance(error, ProtocolViolation) and len(parts) > 1:
                for part in parts:  # to tell it of the right one
                    self._work_off(deque([part]), job, width)
            else:
                for part in parts:
                    part.fail(error)
            return
        end = 0
        for part in parts:
            start, end = end, end + len(part.item)
            part.give(rows[start:end])

    def _share(self, waiting: int) -> int:
        """How many parts of those that wait make a job: no worker is to be left without any."""
        free_workers = (1 + self._idle.qsize()) / JOBS_PER_WORKER
        return min(PARTS_PER_JOB, math.ceil(waiting / free_workers))

    def _answer(self, call: _Call) -> memoryview:
        """The result, from whichever worker.

        Raises:
            ProtocolViolation: the peer's elements are not what they must be.
            ConfigurationError: no worker is left.
        """
        for losses in count(1):
            try:
                answer = self._receive(call)
            except _Lost:
                self._introduce(call.seat.actor)  # its seat is back when its worker is
                if losses == _MOST_LOSSES:
                    break
                with self._turn:
                    call = self._send(self._take_idle(), call.job)
                continue
            except BaseException:
                self._idle.put(call.seat)
                raise
            self._idle.put(call.seat)
            return _result(answer)
        raise InternalError(
            f"{_MOST_LOSSES} workers of the Ray cluster ended while they did the same job; the "
            "cluster's logs may tell why"
        )

    def _send(self, seat: _Seat, job: Job) -> _Call:
        try:
            sealed = seat.conversation.seal(job.to_bytes())
            return _Call(seat, job, sealed[:NONCE_BYTES], seat.actor.run.remote(seat.name, sealed))
        except BaseException:
            self._idle.put(seat)
            raise

    def _receive(self, call: _Call) -> bytes:
        seat, exceptions = call.seat, self._ray.exceptions
        try:
            answer: bytes = self._ray.get(call.answer, timeout=_JOB_PATIENCE)
            if answer == UNKNOWN_SESSION:  # it was restarted
                log.warning(_WORKER_LOST)
                raise _Lost
            return seat.conversation.open(answer, answers=call.nonce)
        except exceptions.RayTaskError as error:
            raise InternalError(f"a worker of the Ray cluster failed: {error}") from None
        except exceptions.GetTimeoutError:
            log.warning("a worker of the Ray cluster does not answer and is restarted")
            self._ray.kill(seat.actor, no_restart=False)
            raise _Lost from None
        except exceptions.RayError:
            if not self._closed:
                log.warning(_WORKER_LOST)
            raise _Lost from None
        except UnsealError:
            raise InternalError("a worker of the Ray cluster sealed its answer wrongly") from None

    def _take_idle(self) -> _Seat:
        seat: _Seat | FloristError
        try:
            seat = self._idle.get(timeout=PATIENCE)
        except Empty:
            seat = ConfigurationError(
                f"compute.executor: the Ray cluster has had no worker for {PATIENCE:.0f} s; look "
                "at it with `ray status`, then start again: the run goes on"
            )
        if isinstance(seat, FloristError):
            self._idle.put(seat)  # for the others too
            raise seat
        return seat

    def _introduce(self, actor: Any, *, first: bool = False) -> None:  # noqa: ANN401 - Ray's own
        """Agree on keys with a worker, once it is up; then there is a seat more."""
        ours = KeyExchange()

        def is_there(greeting: Future[Greeting]) -> None:
            if self._closed:
                return
            if (error := greeting.exception()) is not None:
                log.warning("a worker of the Ray cluster is gone for good")
                if first:
                    reason = " ".join(str(error).split())[-300:]
                    self._idle.put(ray_cluster.unusable_node(f"a worker cannot start: {reason}"))
                return
            theirs = greeting.result()
            if why := incompatibility(theirs):
                self._idle.put(ray_cluster.unusable_node(why))
            else:
                conversation = ours.as_driver(theirs["public"])
                self._idle.put(_Seat(actor, ours.public, conversation, theirs["engine"]))
                if first and next(self._arrivals) == self._seats:
                    log.info("all workers of the Ray cluster are there")

        # Tried again by Ray until the worker is there: it may be about to be restarted.
        introduced = actor.introduce.options(max_task_retries=-1).remote(ours.public)
        introduced.future().add_done_callback(is_there)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Seat:
    """A place for a job at a worker, with keys of its own."""

    actor: Any
    #: How the worker knows with whom it speaks.
    name: bytes
    conversation: SealedSession
    engine: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Call:
    """A job at a worker; it can be sent again."""

    seat: _Seat
    job: Job
    #: To which the answer is bound.
    nonce: bytes
    #: Ray's promise of it.
    answer: Any


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Part(Generic[S]):
    """What one item of a stream waits for."""

    item: S
    result: Future[Elements] = field(default_factory=Future)

    def give(self, rows: Elements) -> None:
        if self.result.set_running_or_notify_cancel():  # else nobody wants it any more
            self.result.set_result(rows)

    def fail(self, error: BaseException) -> None:
        if self.result.set_running_or_notify_cancel():
            self.result.set_exception(error)


def _taken(line: deque[_Part[S]], most: int) -> list[_Part[S]]:
    """The first of the line that are still wanted."""
    parts: list[_Part[S]] = []
    while line and len(parts) < most:
        if not (part := line.popleft()).result.cancelled():
            parts.append(part)
    return parts


class _Lost(Exception):  # noqa: N818 - it reads as what happened
    """The worker is gone, or is another one than we spoke with."""


def _result(answer: bytes) -> memoryview:
    result, outcome = memoryview(answer)[:-1], answer[-1]
    if outcome == Outcome.VIOLATION:
        raise ProtocolViolation(bytes(result).decode())
    if outcome == Outcome.FAILED:
        raise InternalError(f"a worker of the Ray cluster failed: {bytes(result).decode()}")
    return result


def _cuts(begins: np.ndarray[Any, np.dtype[np.uint16]], rows: int) -> list[int]:
    """Where rows ordered by their first two bytes can be cut into parts of about `rows`."""
    ends = np.cumsum(np.bincount(begins, minlength=1 << 16))
    wanted = np.arange(rows, len(begins), rows)
    cuts = np.unique(ends[np.searchsorted(ends, wanted)])
    return [0, *cuts[cuts < len(begins)].tolist(), len(begins)]


def _buffers(rows: Sequence[Elements]) -> list[memoryview]:
    return [np.ascontiguousarray(each).data for each in rows]


def _rows(data: memoryview, width: int) -> Elements:
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, width)
