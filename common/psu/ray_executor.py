"""A union's heavy work on a party's own Ray cluster.

Ray starts the workers, places them and restarts them. Here is what it must not be trusted with, the
sealing (`sealed_jobs.py`), and what it does not do: a job of a worker that is lost goes to another
one, at once. A job has no effect beyond its answer, so it does not matter how often it is done.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from florist.common.errors import (
    ConfigurationError,
    FloristError,
    InternalError,
    ProtocolViolation,
)
from florist.common.groups.element_sets import sorted_set
from florist.common.psu import ray_cluster
from florist.common.psu.ahead import Ahead
from florist.common.psu.executor import LocalExecutor
from florist.common.psu.ray_worker import STRANGER, Worker, packed_ids
from florist.common.psu.sealed_jobs import Introduction, Job, Kind, Outcome, UnsealError
from florist.common.psu.set_stream import CHUNK_BYTES
from florist.common.release import RELEASE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from florist.common.data.ids import IdColumn
    from florist.common.groups.group import Elements, Exponent, Group
    from florist.common.psu.ray_worker import Greeting
    from florist.common.psu.sealed_jobs import Conversation

log = logging.getLogger("florist.align")

S = TypeVar("S")

#: Jobs that a worker has at a time: one that it does, and one that is there when it is done.
JOBS_PER_WORKER = 2

#: Jobs of one stream that may be under way, at most; there are up to five streams.
MOST_AHEAD = 32
_STREAMS = 5

#: Seconds without any worker after which the run ends.
PATIENCE = 120.0

#: Seconds after which a worker that does not answer is restarted.
_JOB_PATIENCE = 600.0

#: Workers that one job may cost before it is taken to be the cause.
_MOST_LOSSES = 8

#: Fewer rows are sorted here: sending them takes longer.
_SORTED_HERE_BELOW = 1 << 16
#: Bytes that a worker sorts at once, and the most that it is given if rows are much alike.
_SORT_BYTES = 1 << 20
_SORT_BYTES_MOST = 1 << 24


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
        count = workers or int(ray.cluster_resources().get("CPU", 0))
        self._limit = min(MOST_AHEAD, JOBS_PER_WORKER * count + 2)
        #: Those that have nothing to do; or an error, for whoever looks for one.
        self._idle: SimpleQueue[_Seat | FloristError] = SimpleQueue()
        remote = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=0)(Worker)
        self._actors: list[Any] = [remote.remote(group.name, engine) for _ in range(count)]
        self._threads = ThreadPoolExecutor(
            max(1, min(JOBS_PER_WORKER * count, _STREAMS * MOST_AHEAD)),
            thread_name_prefix="ray-job",
        )
        try:
            for actor in self._actors * JOBS_PER_WORKER:
                self._introduce(actor, first=True)
            first = self._take_idle()
        except BaseException:
            self.close()
            raise
        self._idle.put(first)
        self.name = f"ray, {count} workers"
        log.info("executor %s, engine %s", self.name, first.engine)

    @property
    def memory(self) -> int:
        # What goes, sealed; what comes, sealed.
        return _STREAMS * self._limit * 4 * CHUNK_BYTES

    # -- what it is for ----------------------------------------------------------------------------

    def hashed(self, batches: Iterable[IdColumn]) -> Iterator[Elements]:
        width = self.group.width

        def hash_one(batch: IdColumn) -> Elements:
            return _rows(self._do(Job(Kind.HASH, len(batch), packed_ids(batch))), width)

        return self._each(hash_one, batches)

    def raised(
        self, chunks: Iterable[Elements], exponent: Exponent, *, check: bool
    ) -> Iterator[Elements]:
        width = self.group.width
        kind = Kind.CHECK_AND_RAISE if check else Kind.RAISE

        def raise_one(chunk: Elements) -> Elements:
            return _rows(self._do(Job(kind, width, chunk.tobytes(), exponent)), width)

        return self._each(raise_one, chunks)

    def checked(self, chunks: Iterable[Elements]) -> Iterator[Elements]:
        return LocalExecutor(self.group).checked(chunks)  # sending them takes as long

    def sorted(self, rows: Elements) -> Elements:
        if len(rows) < _SORTED_HERE_BELOW:
            return sorted_set(rows)
        width = rows.shape[1]
        # By their first two bytes, rows fall into ranges that can be sorted one by one.
        begins = np.ascontiguousarray(rows[:, :2]).view(">u2")[:, 0].astype(np.uint16)
        ranged = rows.take(np.argsort(begins, kind="stable"), axis=0)
        spans = list(pairwise(_cuts(begins, _SORT_BYTES // width)))

        def sort_one(span: tuple[int, int]) -> Elements:
            part = ranged[slice(*span)]
            if part.nbytes > _SORT_BYTES_MOST:
                return sorted_set(part)
            return _rows(self._do(Job(Kind.SORT, width, part.tobytes())), width)

        for span, part in zip(spans, self._each(sort_one, spans), strict=True):
            ranged[slice(*span)] = part
        return ranged

    def close(self) -> None:
        self._closed = True
        while not self._idle.empty():
            self._idle.get()
        self._idle.put(InternalError("the cluster's work was ended"))
        for actor in self._actors:
            self._ray.kill(actor)  # calls under way fail, and find the error above
        self._threads.shutdown(cancel_futures=True)
        if self._joined:
            ray_cluster.leave()

    def _each(self, work: Callable[[S], Elements], items: Iterable[S]) -> Ahead[Elements]:
        """`work` done with each item, some of it ahead."""
        return Ahead(items, lambda item: self._threads.submit(work, item), self._limit)

    # -- jobs --------------------------------------------------------------------------------------

    def _do(self, job: Job) -> bytes:
        """The result, from whichever worker.

        Raises:
            ProtocolViolation: the peer's elements are not what they must be.
            ConfigurationError: no worker is left.
        """
        plain = job.to_bytes()
        for _ in range(_MOST_LOSSES):
            seat = self._take_idle()
            try:
                answer = self._ask(seat, plain)
            except _Lost:
                self._introduce(seat.actor)  # its seat is back when its worker is
                continue
            except BaseException:
                self._idle.put(seat)
                raise
            self._idle.put(seat)
            return _result(answer)
        raise InternalError(
            f"{_MOST_LOSSES} workers of the Ray cluster ended while they did the same job; the "
            "cluster's logs may tell why"
        )

    def _ask(self, seat: _Seat, plain: bytes) -> bytes:
        exceptions = self._ray.exceptions
        sealed = seat.conversation.seal(plain)
        try:
            answer: bytes = self._ray.get(
                seat.actor.run.remote(seat.name, sealed), timeout=_JOB_PATIENCE
            )
            if answer == STRANGER:  # it was restarted
                raise _Lost
            return seat.conversation.open(answer, answers=sealed)
        except exceptions.RayTaskError as error:
            raise InternalError(f"a worker of the Ray cluster failed: {error}") from None
        except exceptions.GetTimeoutError:
            log.warning("a worker of the Ray cluster does not answer and is restarted")
            self._ray.kill(seat.actor, no_restart=False)
            raise _Lost from None
        except exceptions.RayError:
            if not self._closed:
                log.warning("a worker of the Ray cluster was lost; others do its work")
            raise _Lost from None
        except UnsealError:
            raise InternalError("a worker of the Ray cluster sealed its answer wrongly") from None

    def _take_idle(self) -> _Seat:
        try:
            seat = self._idle.get(timeout=PATIENCE)
        except Empty:
            raise ConfigurationError(
                f"compute.executor: the Ray cluster has had no worker for {PATIENCE:.0f} s; look "
                "at it with `ray status`, then start again: the run goes on"
            ) from None
        if isinstance(seat, FloristError):
            self._idle.put(seat)  # for the others too
            raise seat
        return seat

    def _introduce(self, actor: Any, *, first: bool = False) -> None:  # noqa: ANN401 - Ray's own
        """Agree on keys with a worker, once it is up; then there is a seat more."""
        ours = Introduction()

        def is_there(greeting: Future[Greeting]) -> None:
            if self._closed:
                return
            if (error := greeting.exception()) is not None:
                log.warning("a worker of the Ray cluster is gone for good")
                if first:
                    reason = " ".join(str(error).split())[-300:]
                    self._idle.put(_cannot_work(f"a worker cannot start: {reason}"))
                return
            theirs = greeting.result()
            if theirs["release"] != RELEASE:
                self._idle.put(_cannot_work(f"a node has release {theirs['release']} of FLORIST"))
            elif theirs["obstacle"]:
                self._idle.put(_cannot_work(f"on a node, {theirs['obstacle']}"))
            else:
                conversation = ours.as_driver(theirs["public"])
                self._idle.put(_Seat(actor, ours.public, conversation, theirs["engine"]))

        # Tried again by Ray until the worker is there: it may be about to be restarted.
        introduced = actor.introduce.options(max_task_retries=-1).remote(ours.public)
        introduced.future().add_done_callback(is_there)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Seat:
    """A place for a job at a worker, with keys of its own."""

    actor: Any
    #: How the worker knows with whom it speaks.
    name: bytes
    conversation: Conversation
    engine: str


class _Lost(Exception):  # noqa: N818 - it reads as what happened
    """The worker is gone, or is another one than we spoke with."""


def _result(answer: bytes) -> bytes:
    outcome, rest = answer[0], answer[1:]
    if outcome == Outcome.VIOLATION:
        raise ProtocolViolation(rest.decode())
    if outcome == Outcome.FAILED:
        raise InternalError(f"a worker of the Ray cluster failed: {rest.decode()}")
    return rest


def _cannot_work(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"compute.executor: {why}; every node of the Ray cluster needs FLORIST {RELEASE} and what "
        "it needs, in the environment that Ray was started in"
    )


def _cuts(begins: np.ndarray[Any, np.dtype[np.uint16]], rows: int) -> list[int]:
    """Where rows ordered by their first two bytes can be cut into parts of about `rows`."""
    ends = np.cumsum(np.bincount(begins, minlength=1 << 16))
    wanted = np.arange(rows, len(begins), rows)
    cuts = np.unique(ends[np.searchsorted(ends, wanted)])
    return [0, *cuts[cuts < len(begins)].tolist(), len(begins)]


def _rows(data: bytes, width: int) -> Elements:
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, width)
