"""Communication between the training processes of one party: rows, and sums of gradients.

It uses torch.distributed's backends directly (gloo on CPUs, nccl on GPUs) instead of the default
process group, of which a process has only one: both parties may run in one process. It does not use
`DistributedDataParallel`, which divides gradients by the number of processes, while losses here are
already divided by the rows of the batch; which does not support `torch.autograd.grad`, needed for
the gradients that are sent to the peer; and which needs rows for every process in every pass. As
there, gradients are summed over all processes before each step.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import torch
from torch import nn
from torch.distributed import FileStore  # type: ignore[attr-defined] # documented, not exported
from torch.distributed.distributed_c10d import ProcessGroupGloo

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.training.embedding_rows import sum_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor

    from florist.common.core.clock import Clock

#: Time limit in seconds for each operation of the group; a micro-batch takes far less.
TIME_LIMIT = 120.0

#: Seconds between checks that all processes are alive, while a GPU operation runs.
_POLL_INTERVAL = 1e-4


class ProcessGroupError(Exception):
    """Another process ended or did not answer in time."""


def open_store(path: str, size: int, time_limit: float) -> FileStore:
    """Open the rendezvous file of `size` processes; no other user may have access to it."""
    store = FileStore(path, size)
    store.set_timeout(timedelta(seconds=time_limit))
    return store


class ProcessGroup:
    """The training processes of one party, all on this machine.

    All methods raise ProcessGroupError.
    """

    def __init__(
        self,
        store: FileStore,
        rank: int,
        size: int,
        device: torch.device,
        *,
        time_limit: float = TIME_LIMIT,
        all_alive: Callable[[], bool] = lambda: True,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Join the group; return when all processes have joined.

        Args:
            store: the processes' rendezvous.
            rank: of this process.
            size: number of processes.
            device: of this process's tensors.
            time_limit: in seconds, for each operation.
            all_alive: polled while a GPU waits for another one, because nccl does not notice that a
                process ended.
            clock: the clock for that.

        Raises:
            ProcessGroupError: a process did not join in time.
        """
        self.size = size
        self.device = device
        self._time_limit = time_limit
        self._all_alive = all_alive
        self._clock = clock
        with _translated_errors():
            self._backend = _make_backend(store, rank, size, device, time_limit)

    @contextmanager
    def sending(self, rows: Iterable[tuple[int, Tensor]]) -> Iterator[None]:
        """Send tensors to ranks while the context runs; wait for completion at its end."""
        # Referenced until completion: the backend reads their memory meanwhile.
        outgoing = [(to, tensor.contiguous()) for to, tensor in rows if tensor.numel()]
        with _translated_errors():
            works = [self._backend.send([tensor], to, 0) for to, tensor in outgoing]
        yield
        for work in works:
            self._wait(work)

    def receive(self, tensor: Tensor, sender: int) -> Tensor:
        """Receive into a contiguous tensor, and return it."""
        if tensor.numel():
            with _translated_errors():
                work = self._backend.recv([tensor], sender, 0)
            self._wait(work)
        return tensor

    def broadcast(self, tensor: Tensor) -> None:
        """Copy rank 0's values into the tensors of all ranks."""
        if tensor.numel():
            with _translated_errors():
                work = self._backend.broadcast(tensor.view(-1), 0)
            self._wait(work)

    def sum(self, tensor: Tensor) -> None:
        """Replace each rank's tensor by the sum over all ranks, bitwise the same on each."""
        with _translated_errors():
            work = self._backend.allreduce([tensor])
        self._wait(work)

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all ranks, which have the same shape, in rank order."""
        tensors = [torch.empty_like(tensor) for _ in range(self.size)]
        with _translated_errors():
            work = self._backend.allgather([tensors], [tensor])
        self._wait(work)
        return tensors

    def abort(self) -> None:
        """Cancel pending operations."""
        self._backend.abort()

    def _wait(self, work: _Work) -> None:
        if self.device.type == "cuda":  # there `wait` only blocks the stream, without a time limit
            deadline = self._clock.now() + self._time_limit
            while not work.is_completed():
                if not self._all_alive() or self._clock.now() > deadline:
                    raise ProcessGroupError
                self._clock.sleep(_POLL_INTERVAL)
        with _translated_errors():
            work.wait()


class _Work(Protocol):
    """A pending operation of a backend."""

    def is_completed(self) -> bool: ...

    def wait(self) -> bool: ...


class _Backend(Protocol):
    """The operations of torch's backends that are used here; torch's type stubs lack them."""

    def send(self, tensors: list[Tensor], to: int, tag: int, /) -> _Work: ...

    def recv(self, tensors: list[Tensor], sender: int, tag: int, /) -> _Work: ...

    def broadcast(self, tensor: Tensor, root: int, /) -> _Work: ...

    def allreduce(self, tensors: list[Tensor], /) -> _Work: ...

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], /) -> _Work: ...

    def abort(self) -> None: ...


def _make_backend(
    store: FileStore, rank: int, size: int, device: torch.device, time_limit: float
) -> _Backend:
    limit = timedelta(seconds=time_limit)
    if device.type == "cuda":
        from torch.distributed import ProcessGroupNCCL  # noqa: PLC0415 - missing in some builds

        torch.cuda.set_device(device)
        options = ProcessGroupNCCL.Options()
        options._timeout = limit  # noqa: SLF001 - the only way to set it
        return ProcessGroupNCCL(store, rank, size, options)  # type: ignore[return-value]
    plain = ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # noqa: SLF001 - as above
    plain._devices = [ProcessGroupGloo.create_device(hostname="127.0.0.1")]  # noqa: SLF001
    plain._timeout = limit  # noqa: SLF001
    return ProcessGroupGloo(store, rank, size, plain)  # type: ignore[return-value]


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # torch's errors, subclasses included
        raise ProcessGroupError(str(error)) from None


def shares(rows: int, size: int) -> list[slice]:
    """Split the rows, in order, into nearly equal shares; the last ranks may get none."""
    starts = [-(-rows * rank // size) for rank in range(size + 1)]
    return [slice(start, stop) for start, stop in pairwise(starts)]


def sum_gradients(group: ProcessGroup, model: nn.Module) -> None:
    """Sum the gradients over all ranks, bitwise the same on each; every rank must call it."""
    tables = [m.weight for m in model.modules() if isinstance(m, nn.Embedding) and m.sparse]
    sparse = {id(table) for table in tables}
    dense = [parameter for parameter in model.parameters() if id(parameter) not in sparse]
    for dtype in sorted({parameter.dtype for parameter in dense}, key=str):
        _sum_dense(group, [parameter for parameter in dense if parameter.dtype is dtype])
    for table in tables:
        _join_sparse(group, table)


def _sum_dense(group: ProcessGroup, parameters: list[nn.Parameter]) -> None:
    # In one tensor, because each sum costs a round between the processes.
    flat = torch.cat(
        [
            # None means that this rank had no rows.
            (torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1)
            for p in parameters
        ]
    )
    group.sum(flat)
    sizes = [parameter.numel() for parameter in parameters]
    for parameter, gradient in zip(parameters, flat.split(sizes), strict=True):
        parameter.grad = gradient.view_as(parameter)


def _join_sparse(group: ProcessGroup, table: Tensor) -> None:
    """Concatenate the rows and values of all ranks, in rank order; the optimiser adds them up."""
    width = table.shape[1]
    rows = torch.empty(0, dtype=torch.int64, device=table.device)
    values = table.new_empty(0, width)
    if table.grad is not None:
        # Summed first, because frequent categories occur many times in a batch.
        rows, values = sum_rows(table.grad._indices()[0], table.grad._values())  # noqa: SLF001
    counts = [int(count) for count in group.all_gather(rows.new_tensor([len(rows)]))]
    longest = max(counts)
    if not longest:
        return
    padded_rows, padded_values = rows.new_zeros(longest), values.new_zeros(longest, width)
    padded_rows[: len(rows)], padded_values[: len(rows)] = rows, values
    all_rows, all_values = group.all_gather(padded_rows), group.all_gather(padded_values)
    table.grad = torch.sparse_coo_tensor(
        torch.cat([r[:count] for r, count in zip(all_rows, counts, strict=True)])[None],
        torch.cat([v[:count] for v, count in zip(all_values, counts, strict=True)]),
        table.shape,
        check_invariants=False,
    )
