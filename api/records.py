"""Rows of results that convert to an Arrow table or a pandas data frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Generic, TypeVar, get_args, get_type_hints, overload

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd
    import pyarrow as pa
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")


class Records(Sequence[R], Generic[R]):
    """An immutable sequence of dataclass instances of one type: the rows of a table.

    Example:
        >>> run.history[-1].auc
        0.71
        >>> run.history.to_pandas()
    """

    def __init__(self, row_type: type[R], rows: Iterable[R]) -> None:
        self._row_type = row_type
        self._rows = tuple(rows)

    @overload
    def __getitem__(self, index: int) -> R: ...
    @overload
    def __getitem__(self, index: slice) -> Records[R]: ...
    def __getitem__(self, index: int | slice) -> R | Records[R]:
        if isinstance(index, slice):
            return Records(self._row_type, self._rows[index])
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Records) and self._rows == other._rows

    def __hash__(self) -> int:
        return hash(self._rows)

    def __repr__(self) -> str:
        return f"Records({list(self._rows)!r})"

    def to_arrow(self) -> pa.Table:
        """Return a `pyarrow.Table` with one column per field."""
        import pyarrow as pa  # noqa: PLC0415 - loaded only when a table is wanted

        types = {int: pa.int64(), float: pa.float64(), str: pa.string()}
        hints = get_type_hints(self._row_type)
        # Of `float | None`, the first type counts: every column may hold nulls.
        schema = pa.schema(
            [(name, types[(*get_args(hint), hint)[0]]) for name, hint in hints.items()]
        )
        return pa.Table.from_pylist([asdict(row) for row in self._rows], schema=schema)

    def to_pandas(self) -> pd.DataFrame:
        """Return a `pandas.DataFrame` with one column per field.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        return self.to_arrow().to_pandas()
