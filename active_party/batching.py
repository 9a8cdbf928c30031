"""Requests that come while the model is at work are computed together.

There is no thread of its own and no timer: whoever finds the model idle computes at once, alone.
Whoever finds it at work waits; when it is free, one of those who wait computes for all of them, as
far as they fit into one batch, and wakes the others. So one request at a time costs nothing extra,
and the batches grow with the load.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from threading import Condition, Lock

import torch
from torch import Tensor

#: What a request brings: columns of rows, as many for each request; the answer has as many rows.
Columns = tuple[Tensor, ...]
Compute = Callable[..., Tensor]


class _Waiting:
    """A request in the queue."""

    __slots__ = ("answer", "columns", "error", "rows", "turn")

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.rows = len(columns[0])
        #: Of these at most one is set when it is woken; if none is, it is its turn to compute.
        self.answer: Tensor | None = None
        self.error: Exception | None = None
        self.turn = Lock()  # much cheaper than an Event
        self.turn.acquire()


class Batcher:
    """Calls `compute` from one thread at a time, with the rows of one request or of several."""

    def __init__(self, compute: Compute, max_rows: int, delay: float = 0.0) -> None:
        """`delay` is for those who waited: seconds that they wait on for others to join them."""
        self._compute = compute
        self._max_rows = max_rows
        self._delay = delay
        self._queue: deque[_Waiting] = deque()
        self._at_work = False
        self._changed = Condition(Lock())
        #: How often the model was called, and for how many requests.
        self.batches = 0
        self.requests = 0

    def __call__(self, *columns: Tensor) -> Tensor:
        """The answer for these rows; whatever `compute` raises for them is raised here."""
        waiting = None
        with self._changed:
            if self._at_work:
                waiting = _Waiting(columns)
                self._queue.append(waiting)
                self._changed.notify()
            else:
                self._at_work = True
        if waiting is None:
            try:
                return self._call(columns, 1)
            finally:
                self._hand_over()
        waiting.turn.acquire()
        if waiting.error is not None:
            raise waiting.error
        return self._lead(waiting) if waiting.answer is None else waiting.answer

    def _lead(self, own: _Waiting) -> Tensor:
        """Compute for `own` and those who wait behind it."""
        batch = [own]
        try:
            batch += self._collect(own.rows)
            if len(batch) == 1:
                return self._call(own.columns, 1)
            parts = [torch.cat(column) for column in zip(*(w.columns for w in batch), strict=True)]
            answers: list[Tensor] = self._call(tuple(parts), len(batch)).split(
                [w.rows for w in batch]
            )
            for waiting, answer in zip(batch[1:], answers[1:], strict=True):
                waiting.answer = answer
            return answers[0]
        except Exception as error:
            for waiting in batch[1:]:
                waiting.error = error
            raise
        finally:
            for waiting in batch[1:]:
                waiting.turn.release()
            self._hand_over()

    def _collect(self, rows: int) -> list[_Waiting]:
        """From the head of the queue, what fits beside so many rows."""
        found: list[_Waiting] = []
        deadline = time.monotonic() + self._delay if self._delay else 0.0
        with self._changed:
            while True:
                while self._queue and rows + self._queue[0].rows <= self._max_rows:
                    found.append(self._queue.popleft())
                    rows += found[-1].rows
                left = deadline - time.monotonic() if deadline else 0.0
                if self._queue or rows >= self._max_rows or left <= 0:
                    return found
                self._changed.wait(left)

    def _call(self, columns: Columns, requests: int) -> Tensor:
        self.batches += 1
        self.requests += requests
        with torch.inference_mode():
            return self._compute(*columns)

    def _hand_over(self) -> None:
        """Let the next in the queue compute, or nobody."""
        with self._changed:
            if self._queue:
                self._queue.popleft().turn.release()
            else:
                self._at_work = False
