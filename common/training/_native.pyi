import numpy.typing as npt
from numpy import float32, int64

def gather(
    table: npt.NDArray[float32],
    categories: npt.NDArray[int64],
    starts: npt.NDArray[int64],
    width: int,
    rows: npt.NDArray[float32],
    /,
) -> None: ...
def scatter_add(
    table: npt.NDArray[float32],
    categories: npt.NDArray[int64],
    starts: npt.NDArray[int64],
    width: int,
    rows: npt.NDArray[float32],
    /,
) -> None: ...
def sum_rows(
    categories: npt.NDArray[int64],
    starts: npt.NDArray[int64],
    width: int,
    rows: npt.NDArray[float32],
    found: npt.NDArray[int64],
    sums: npt.NDArray[float32],
    /,
) -> int: ...
