"""Compute requests that arrive while the model is busy together, in one batch.

There is no extra thread and no timer. A request that finds the model idle is computed immediately
by its own thread. A request that finds it busy waits. When the model is free, one of the waiting
threads computes all waiting requests that fit into a batch, and wakes the others. A single request
thus has no overhead, and batches grow with the load.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from threading import Condition, Lock

import torch
from torch import Tensor

#: The input of a request: tensors with one row per prediction; the same number in all requests.
Columns = tuple[Tensor, ...]
Compute = Callable[..., Tensor]


class _Waiting:
    """A request in the queue."""

    __slots__ = ("answer", "columns", "error", "rows", "turn")

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.rows = len(columns[0])
        #: At most one of these two is set when the thread is woken. If none is, it must compute.
        self.answer: Tensor | None = None
        self.error: Exception | None = None
        self.turn = Lock()  # much cheaper than an Event
        self.turn.acquire()


class Batcher:
    """Calls `compute` from one thread at a time, with the rows of one or several requests."""

    def __init__(self, compute: Compute, max_rows: int, delay: float = 0.0) -> None:
        """Compute at most `max_rows` rows together.

        Args:
            compute: the model; its result has one row per row of the input.
            max_rows: per batch; a larger request is computed alone.
            delay: seconds for which a request that had to wait waits for others to join it.
        """
        self._compute = compute
        self._max_rows = max_rows
        self._delay = delay
        self._queue: deque[_Waiting] = deque()
        self._busy = False
        self._changed = Condition(Lock())
        #: The number of calls of `compute`, and of requests.
        self.batches = 0
        self.requests = 0

    def __call__(self, *columns: Tensor) -> Tensor:
        """Compute the predictions for these rows; errors of `compute` are raised here."""
        waiting = None
        with self._changed:
            if self._busy:
                waiting = _Waiting(columns)
                self._queue.append(waiting)
                self._changed.notify()
            else:
                self._busy = True
        if waiting is None:
            try:
                return self._call(columns, 1)
            finally:
                self._hand_over()
        waiting.turn.acquire()
        if waiting.error is not None:
            raise waiting.error
        return self._compute_batch(waiting) if waiting.answer is None else waiting.answer

    def _compute_batch(self, own: _Waiting) -> Tensor:
        """Compute `own` and the requests that wait behind it."""
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
        """Take requests from the head of the queue that fit in a batch with `rows` rows."""
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
        """Let the next request in the queue compute, if there is one."""
        with self._changed:
            if self._queue:
                self._queue.popleft().turn.release()
            else:
                self._busy = False
