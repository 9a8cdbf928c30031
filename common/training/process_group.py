"""What the training processes of one party exchange: rows there and back, sums of gradients.

torch.distributed's groups themselves (gloo on CPUs, nccl on GPUs), without its default group, of
which a process has but one: both parties may live in one process. Not its wrapper
`DistributedDataParallel`: that divides gradients by the number of processes, where losses here are
divided by the rows of the batch already; it knows no `torch.autograd.grad`, by which the gradients
for the peer are found apart from our own; and it wants rows for every process in every pass. The
sum of all gradients before each step is the same as in it.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.distributed import FileStore  # type: ignore[attr-defined] # documented there
from torch.distributed.distributed_c10d import ProcessGroupGloo

from florist.common.training.embedding_rows import sum_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor

#: Seconds for anything that the processes do together, at most: a part of a batch takes far less.
TIME_LIMIT = 120.0

#: Seconds between two looks at whether all processes live, while a GPU works.
_LOOK = 1e-4


class ProcessGroupError(Exception):
    """Another process ended, or did not answer in time."""


def open_store(path: str, size: int, time_limit: float) -> FileStore:
    """By which so many processes find each other: a file that no other user can reach."""
    store = FileStore(path, size)
    store.set_timeout(timedelta(seconds=time_limit))
    return store


class ProcessGroup:
    """This process among the training processes of one party, all on this machine."""

    def __init__(
        self,
        store: FileStore,
        rank: int,
        size: int,
        device: torch.device,
        *,
        time_limit: float = TIME_LIMIT,
        all_live: Callable[[], bool] = lambda: True,
    ) -> None:
        """Returns when all processes are there.

        Args:
            store: by which they find each other.
            rank: of this process.
            size: how many there are.
            device: of this process's tensors.
            time_limit: in seconds, for each exchange.
            all_live: asked while a GPU waits for another one, which does not see its end.

        Raises:
            ProcessGroupError: one did not come.
        """
        self.size = size
        self.device = device
        self._time_limit = time_limit
        self._all_live = all_live
        with _told():
            self._group = _make(store, rank, size, device, timedelta(seconds=time_limit))

    # The methods raise ProcessGroupError.

    @contextmanager
    def sending(self, rows: Iterable[tuple[int, Tensor]]) -> Iterator[None]:
        """Tensors on their way to ranks; at the end of the context they are there."""
        # Held until they are there: the group reads their memory meanwhile.
        leaving = [(to, tensor.contiguous()) for to, tensor in rows if tensor.numel()]
        with _told():
            works = [self._group.send([tensor], to, 0) for to, tensor in leaving]
        yield
        for work in works:
            self._wait(work)

    def receive(self, tensor: Tensor, sender: int) -> Tensor:
        """Fill a contiguous tensor."""
        if tensor.numel():
            with _told():
                work = self._group.recv([tensor], sender, 0)
            self._wait(work)
        return tensor

    def broadcast(self, tensor: Tensor) -> None:
        """Rank 0's values into all ranks' tensors."""
        if tensor.numel():
            with _told():
                work = self._group.broadcast(tensor.view(-1), 0)
            self._wait(work)

    def sum(self, tensor: Tensor) -> None:
        """All ranks' values into all ranks' tensors, to the last bit the same."""
        with _told():
            work = self._group.allreduce([tensor])
        self._wait(work)

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """All ranks' tensors, of one shape, in the order of ranks."""
        tensors = [torch.empty_like(tensor) for _ in range(self.size)]
        with _told():
            work = self._group.allgather([tensors], [tensor])
        self._wait(work)
        return tensors

    def abort(self) -> None:
        """Give up what is under way."""
        self._group.abort()

    def _wait(self, work: Any) -> None:  # noqa: ANN401 - torch's own
        if self.device.type == "cuda":  # or a wait would be the stream's, without a limit
            deadline = time.monotonic() + self._time_limit
            while not work.is_completed():
                if not self._all_live() or time.monotonic() > deadline:
                    raise ProcessGroupError
                time.sleep(_LOOK)
        with _told():
            work.wait()


def _make(store: FileStore, rank: int, size: int, device: torch.device, limit: timedelta) -> Any:  # noqa: ANN401 - torch has no types for what its groups do
    if device.type == "cuda":
        from torch.distributed import ProcessGroupNCCL  # noqa: PLC0415 - not in all builds

        torch.cuda.set_device(device)
        options = ProcessGroupNCCL.Options()
        options._timeout = limit  # noqa: SLF001 - its only way
        return ProcessGroupNCCL(store, rank, size, options)
    plain = ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # noqa: SLF001 - likewise
    plain._devices = [ProcessGroupGloo.create_device(hostname="127.0.0.1")]  # noqa: SLF001
    plain._timeout = limit  # noqa: SLF001
    return ProcessGroupGloo(store, rank, size, plain)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # torch's; its subclasses too
        raise ProcessGroupError(str(error)) from None


def shares(rows: int, size: int) -> list[slice]:
    """Rows shared out in their order, nearly equal; the last ranks may get none."""
    starts = [-(-rows * rank // size) for rank in range(size + 1)]
    return [slice(start, stop) for start, stop in pairwise(starts)]


def sum_gradients(group: ProcessGroup, model: nn.Module) -> None:
    """Give all ranks the sum of their gradients, to the last bit the same; call it on all."""
    tables = [m.weight for m in model.modules() if isinstance(m, nn.Embedding) and m.sparse]
    sparse = {id(table) for table in tables}
    dense = [parameter for parameter in model.parameters() if id(parameter) not in sparse]
    for dtype in sorted({parameter.dtype for parameter in dense}, key=str):
        _sum_dense(group, [parameter for parameter in dense if parameter.dtype is dtype])
    for table in tables:
        _join_sparse(group, table)


def _sum_dense(group: ProcessGroup, parameters: list[nn.Parameter]) -> None:
    # In one tensor: each sum costs a round over all processes.
    flat = torch.cat(
        [
            (torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1)  # None: it had no rows
            for p in parameters
        ]
    )
    group.sum(flat)
    sizes = [parameter.numel() for parameter in parameters]
    for parameter, gradient in zip(parameters, flat.split(sizes), strict=True):
        parameter.grad = gradient.view_as(parameter)


def _join_sparse(group: ProcessGroup, table: Tensor) -> None:
    """All ranks' rows and values, in the order of ranks; who updates the table adds them up."""
    width = table.shape[1]
    rows = torch.empty(0, dtype=torch.int64, device=table.device)
    values = table.new_empty(0, width)
    if table.grad is not None:
        # Once each: frequent categories are many times in a batch.
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
