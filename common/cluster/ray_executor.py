"""An executor that does a union's heavy computation on a party's own Ray cluster.

Ray starts, schedules and restarts the workers. This module does what Ray must not be trusted with,
the sealing (`sealed_jobs.py`), and what Ray does not do: it sends the job of a lost worker to
another one immediately. A job has no effect but its answer, so it may be executed more than once.
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
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

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
from florist.common.core.priority_pool import PriorityPool, current_priority
from florist.common.psu.executor import LocalExecutor
from florist.common.psu.set_stream import CHUNK_BYTES
from florist.common.storage.element_sets import sorted_set
from florist.common.storage.id_column import packed_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
    from pathlib import Path

    import numpy.typing as npt
    from ray import ObjectRef

    from florist.common.cluster.ray_cluster import RemoteMethod
    from florist.common.cluster.ray_worker import Greeting
    from florist.common.cluster.sealed_jobs import SealedSession
    from florist.common.groups.group import Exponent, Group
    from florist.common.storage.elements import Elements
    from florist.common.storage.id_column import IdColumn

log = logging.getLogger("florist.align")

S = TypeVar("S", bound="Sized")

#: Jobs that a worker has at a time: one in progress, and one that is ready when it is done.
JOBS_PER_WORKER = 2

#: The most chunks in a job: large enough that Ray's overhead per call is small beside the work, and
#: small enough that a worker needs only a quarter of a second with the fastest group.
PARTS_PER_JOB = 4

#: The most chunks of one stream in progress; there are up to five streams.
MAX_IN_FLIGHT = 256
_STREAMS = 5

#: Seconds without any worker after which the run ends.
WORKER_TIMEOUT = 120.0

#: Seconds after which a worker that does not answer is restarted.
_JOB_TIMEOUT = 600.0

#: How many workers one job may lose before the job is taken to be the cause.
_MAX_LOSSES = 8

_WORKER_LOST = "a worker of the Ray cluster was lost; others take over its work"

#: Fewer rows are sorted locally: sending them would take longer.
_SORT_LOCALLY_BELOW = 1 << 16
#: Larger ranges, whose rows all have the same first bytes, are sorted locally too.
_MAX_SORT_BYTES = 1 << 22


class WorkerActor(Protocol):
    """Ray's handle of a `Worker`."""

    @property
    def handshake(self) -> RemoteMethod[Greeting]: ...

    @property
    def run(self) -> RemoteMethod[bytes]: ...


class RayExecutor:
    """Uses workers with one core each, on the party's own cluster."""

    def __init__(
        self,
        group: Group,
        *,
        folder: Path | None = None,
        engine: str = "auto",
        address: str = "auto",
        workers: int = 0,
    ) -> None:
        """Connect, and wait for the first worker; the others join as they start.

        Args:
            group: the group on this machine.
            folder: see `ray_cluster.join`.
            engine: the engine of the workers' group.
            address: see `ray_cluster.join`.
            workers: the number of workers; 0 means one per core of the cluster.

        Raises:
            ConfigurationError: there is no such cluster, or a worker cannot be used.
        """
        self.group = group
        self._joined = ray_cluster.join(address, workers, folder)
        import ray  # noqa: PLC0415 - an extra; installed, as we have joined the cluster

        self._ray = ray
        self._closed = False
        workers = workers or int(ray.cluster_resources().get("CPU", 0))
        #: One job per worker; the second job of each worker comes from another stream.
        self.max_in_flight = min(MAX_IN_FLIGHT, PARTS_PER_JOB * workers + 2)
        self._slots = JOBS_PER_WORKER * workers
        self._arrivals = count(1)
        self._turn = Lock()
        #: Free slots, or an error for whoever waits for a slot.
        self._idle: SimpleQueue[_Slot | FloristError] = SimpleQueue()
        remote = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=0)(Worker)
        self._actors = [
            cast("WorkerActor", remote.remote(group.name, engine)) for _ in range(workers)
        ]
        self._threads = PriorityPool(max(1, self._slots), "ray-job")
        try:
            for actor in self._actors * JOBS_PER_WORKER:
                self._open_slot(actor, first=True)
            first = self._take_idle()
        except BaseException:
            self.close()
            raise
        self._idle.put(first)
        self.name = f"ray, {workers} workers"
        log.info("executor %s, engine %s", self.name, first.engine)

    @property
    def memory(self) -> int:
        # Inputs and results; exchanges in order have as many again in each of two windows.
        waiting = (2 * _STREAMS + 2) * self.max_in_flight
        # Sealed, in both directions.
        at_workers = 2 * min(_STREAMS * self.max_in_flight, self._slots * PARTS_PER_JOB)
        return (waiting + at_workers) * CHUNK_BYTES

    # -- the interface of an executor --------------------------------------------------------------

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
        return LocalExecutor(self.group).checked(chunks)  # sending them would take as long

    def sorted(self, rows: Elements) -> Elements:
        if len(rows) < _SORT_LOCALLY_BELOW:
            return sorted_set(rows)
        width = rows.shape[1]
        # Rows are grouped by their first two bytes. The groups can be sorted separately, and
        # consecutive groups together.
        prefixes = np.ascontiguousarray(rows[:, :2]).view(">u2")[:, 0].astype(np.uint16)
        ranged = rows.take(np.argsort(prefixes, kind="stable"), axis=0)
        ranges = [
            ranged[start:end] for start, end in pairwise(_cuts(prefixes, CHUNK_BYTES // width))
        ]
        sent = [each for each in ranges if each.nbytes <= _MAX_SORT_BYTES]

        def job(ranges: Sequence[Elements]) -> Job:
            return Job(Kind.SORT, width, _buffers(ranges))

        back = self._each(sent, job, width)
        for each in ranges:
            each[:] = sorted_set(each) if each.nbytes > _MAX_SORT_BYTES else next(back)
        return ranged

    def close(self) -> None:
        self._closed = True
        with suppress(Empty):
            while True:
                self._idle.get_nowait()
        self._idle.put(InternalError("the executor was closed"))
        for actor in self._actors:
            ray_cluster.kill(actor, restart=False)  # calls in progress fail, and find the error
        self._threads.close()  # waiting jobs fail with it too
        if self._joined:
            ray_cluster.leave()

    # -- jobs --------------------------------------------------------------------------------------

    def _each(
        self, items: Iterable[S], job: Callable[[Sequence[S]], Job], width: int
    ) -> Prefetched[Elements]:
        """Yield the results for each item: as many rows of `width` bytes as it has."""
        queue: deque[_Part[S]] = deque()
        priority = current_priority()  # jobs are started by another thread

        def start(item: S) -> Future[Elements]:
            part = _Part(item)
            queue.append(part)
            self._threads.submit(partial(self._run_next, queue, job, width), priority)
            return part.result

        return Prefetched(items, start, self.max_in_flight)

    def _run_next(
        self, queue: deque[_Part[S]], job: Callable[[Sequence[S]], Job], width: int
    ) -> None:
        """Send the first item of the queue as a job, with more items if many are waiting."""
        parts: list[_Part[S]] = []
        try:
            # One thread at a time: whenever this is the bottleneck, more items wait, and jobs grow.
            with self._turn:
                if not (parts := _taken(queue, 1)):
                    return  # another job has taken it
                slot = self._take_idle()
                parts += _taken(queue, self._share(1 + len(queue)) - 1)
                call = self._send(slot, job([part.item for part in parts]))
            rows = _rows(self._answer(call), width)
        except BaseException as error:  # noqa: BLE001 - raised by whoever takes the results
            if isinstance(error, ProtocolViolation) and len(parts) > 1:
                for part in parts:  # to find the invalid one
                    self._run_next(deque([part]), job, width)
            else:
                for part in parts:
                    part.fail(error)
            return
        end = 0
        for part in parts:
            start, end = end, end + len(part.item)
            part.give(rows[start:end])

    def _share(self, waiting: int) -> int:
        """Return how many waiting parts make a job, so that every free worker gets some."""
        free_workers = (1 + self._idle.qsize()) / JOBS_PER_WORKER
        return min(PARTS_PER_JOB, math.ceil(waiting / free_workers))

    def _answer(self, call: _Call) -> memoryview:
        """Return the result of a job, from any worker.

        Raises:
            ProtocolViolation: the peer's elements are invalid.
            ConfigurationError: no worker is left.
        """
        for losses in count(1):
            try:
                answer = self._receive(call)
            except _WorkerLost:
                self._open_slot(call.slot.actor)  # free again when its worker is
                if losses == _MAX_LOSSES:
                    break
                with self._turn:
                    call = self._send(self._take_idle(), call.job)
                continue
            except BaseException:
                self._idle.put(call.slot)
                raise
            self._idle.put(call.slot)
            return _result(answer)
        raise InternalError(
            f"{_MAX_LOSSES} workers of the Ray cluster ended during the same job; see the "
            "cluster's logs"
        )

    def _send(self, slot: _Slot, job: Job) -> _Call:
        try:
            sealed = slot.session.seal(job.to_bytes())
            return _Call(slot, job, sealed[:NONCE_BYTES], slot.actor.run.remote(slot.name, sealed))
        except BaseException:
            self._idle.put(slot)
            raise

    def _receive(self, call: _Call) -> bytes:
        slot, exceptions = call.slot, self._ray.exceptions
        try:
            answer = self._ray.get(call.answer, timeout=_JOB_TIMEOUT)
            if answer == UNKNOWN_SESSION:  # it was restarted
                log.warning(_WORKER_LOST)
                raise _WorkerLost
            return slot.session.open(answer, answers=call.nonce)
        except exceptions.RayTaskError as error:
            raise InternalError(f"a worker of the Ray cluster failed: {error}") from None
        except exceptions.GetTimeoutError:
            log.warning("a worker of the Ray cluster does not answer and is restarted")
            ray_cluster.kill(slot.actor, restart=True)
            raise _WorkerLost from None
        except exceptions.RayError:
            if not self._closed:
                log.warning(_WORKER_LOST)
            raise _WorkerLost from None
        except UnsealError:
            raise InternalError(
                "the answer of a worker of the Ray cluster cannot be decrypted"
            ) from None

    def _take_idle(self) -> _Slot:
        slot: _Slot | FloristError
        try:
            slot = self._idle.get(timeout=WORKER_TIMEOUT)
        except Empty:
            slot = ConfigurationError(
                f"compute.executor: the Ray cluster has had no worker for {WORKER_TIMEOUT:.0f} s; "
                "check it with `ray status`, then start again: the run resumes where it stopped"
            )
        if isinstance(slot, FloristError):
            self._idle.put(slot)  # for other threads too
            raise slot
        return slot

    def _open_slot(self, actor: WorkerActor, *, first: bool = False) -> None:
        """Exchange keys with a worker, once it is up; then add a free slot."""
        ours = KeyExchange()

        def greeted(greeting: Future[Greeting]) -> None:
            if self._closed:
                return
            if (error := greeting.exception()) is not None:
                log.warning("a worker of the Ray cluster cannot be restarted")
                if first:
                    reason = " ".join(str(error).split())[-300:]
                    self._idle.put(ray_cluster.unusable_node(f"a worker cannot start: {reason}"))
                return
            theirs = greeting.result()
            if why := incompatibility(theirs):
                self._idle.put(ray_cluster.unusable_node(why))
            else:
                session = ours.as_driver(theirs["public"])
                self._idle.put(_Slot(actor, ours.public, session, theirs["engine"]))
                if first and next(self._arrivals) == self._slots:
                    log.info("all workers of the Ray cluster are up")

        # Ray retries until the worker is up: it may be about to be restarted.
        greeting = actor.handshake.options(max_task_retries=-1).remote(ours.public)
        greeting.future().add_done_callback(greeted)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Slot:
    """Room for one job at a worker, with its own session."""

    actor: WorkerActor
    #: Our public key, by which the worker finds the session.
    name: bytes
    session: SealedSession
    engine: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Call:
    """A job that was sent to a worker; it can be sent again."""

    slot: _Slot
    job: Job
    #: The nonce of the sealed job, which the answer refers to.
    nonce: bytes
    answer: ObjectRef[bytes]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Part(Generic[S]):
    """One item of a stream, and the future of its result."""

    item: S
    result: Future[Elements] = field(default_factory=Future)

    def give(self, rows: Elements) -> None:
        if self.result.set_running_or_notify_cancel():  # otherwise it was cancelled
            self.result.set_result(rows)

    def fail(self, error: BaseException) -> None:
        if self.result.set_running_or_notify_cancel():
            self.result.set_exception(error)


def _taken(queue: deque[_Part[S]], most: int) -> list[_Part[S]]:
    """Take the first parts of the queue that are not cancelled."""
    parts: list[_Part[S]] = []
    while queue and len(parts) < most:
        if not (part := queue.popleft()).result.cancelled():
            parts.append(part)
    return parts


class _WorkerLost(Exception):  # noqa: N818 - it reads as what happened
    """The worker is gone, or was restarted."""


def _result(answer: bytes) -> memoryview:
    result, outcome = memoryview(answer)[:-1], answer[-1]
    if outcome == Outcome.VIOLATION:
        raise ProtocolViolation(bytes(result).decode())
    if outcome == Outcome.FAILED:
        raise InternalError(f"a worker of the Ray cluster failed: {bytes(result).decode()}")
    return result


def _cuts(prefixes: npt.NDArray[np.uint16], rows: int) -> list[int]:
    """Return where rows sorted by these prefixes can be cut into parts of about `rows`."""
    ends = np.cumsum(np.bincount(prefixes, minlength=1 << 16))
    wanted = np.arange(rows, len(prefixes), rows)
    cuts = np.unique(ends[np.searchsorted(ends, wanted)])
    return [0, *cuts[cuts < len(prefixes)].tolist(), len(prefixes)]


def _buffers(rows: Sequence[Elements]) -> list[memoryview]:
    return [np.ascontiguousarray(each).data for each in rows]


def _rows(data: memoryview, width: int) -> Elements:
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, width)
