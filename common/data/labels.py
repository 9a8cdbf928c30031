"""The label column as classes: 0 up to the number of classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import quoted, quoted_few
from florist.common.data.column_values import as_categories

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from florist.common.data.tables import RawTable


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Labels:
    """The class of each row, and what the table calls each class."""

    classes: npt.NDArray[np.int64]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.classes)

    def __repr__(self) -> str:
        return f"Labels({len(self)} rows, {len(self.names)} classes)"


def read_labels(raw: RawTable, classes: int = 2, *, names: tuple[str, ...] | None = None) -> Labels:
    """The class of each row.

    Two classes are 0 and 1, or false and true. More are whole numbers from 0, or else any text,
    numbered in its sorted order.

    Args:
        raw: with a label column.
        classes: how many there are, at least 2.
        names: those of the training table, for any other table: it need not have all of them.

    Raises:
        ConfigurationError: labels are missing, all the same, or of other classes; names the file,
            the column and a few of the values.
    """
    reader = LabelReader(raw.source, raw.label_column)
    assert raw.label is not None
    reader.add(raw.label)
    return reader.labels(classes, names=names)


class LabelReader:
    """As `read_labels`, of a column that comes in parts."""

    def __init__(self, source: str, column: str | None) -> None:
        """Start with no rows.

        Raises:
            ConfigurationError: there is no such column.
        """
        if column is None:
            raise ConfigurationError(
                f"{source}: no column is known to hold the label; name it as `label` under "
                "`data.train`"
            )
        self._where = f"{source}, column {quoted(column)}"
        #: The place of each text, in the order in which they first came.
        self._place_of: dict[str, int] = {}
        self._places: list[npt.NDArray[np.int32]] = []
        self._missing = 0

    def add(self, column: pa.ChunkedArray) -> None:
        """The next rows.

        Raises:
            ConfigurationError: they have no text.
        """
        texts = pc.utf8_trim_whitespace(as_categories(column, self._where))
        self._missing += pc.sum(pc.equal(texts, "")).as_py() or 0
        distinct = pc.unique(texts)
        places = np.array(
            [self._place_of.setdefault(text, len(self._place_of)) for text in distinct.to_pylist()],
            dtype=np.int32,
        )
        self._places.append(places[pc.index_in(texts, value_set=distinct).to_numpy()])

    def labels(self, classes: int = 2, *, names: tuple[str, ...] | None = None) -> Labels:
        """Of all rows, one at least.

        Raises:
            ConfigurationError: as `read_labels`.
        """
        where, texts = self._where, list(self._place_of)
        if self._missing:
            raise ConfigurationError(
                f"{where}: labels are missing in {self._missing:,} of "
                f"{sum(map(len, self._places)):,} rows; take those rows out, or give them labels"
            )
        if len(texts) == 1:
            raise ConfigurationError(
                f"{where}: is {quoted(texts[0])} in every row; a model can learn only from rows of "
                "different classes"
            )
        numbers, called = _numbered(texts, classes, names, where)
        return Labels(numbers[np.concatenate(self._places)], called)


def _numbered(
    texts: Sequence[str], classes: int, names: tuple[str, ...] | None, where: str
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """The class of each text, and the names of all classes."""
    digits = tuple(map(str, range(classes)))
    found = [_yes_or_no(text) if classes == 2 else _whole_number(text) for text in texts]
    numbers = [number for number in found if number is not None]
    if len(numbers) == len(texts) and names in (None, digits):
        if min(numbers) < 0 or max(numbers) >= classes:
            raise ConfigurationError(
                f"{where}: must be whole numbers from 0 to {classes - 1}, and holds "
                f"{quoted_few(texts, 5)}; number the classes anew, or mend "
                "`agreement.training.classes`"
            )
        return np.array(numbers, dtype=np.int64), digits
    if classes == 2:
        raise ConfigurationError(
            f"{where}: must be 0 or 1 (or false or true), and holds {quoted_few(texts, 5)}; write "
            "0 and 1 there, or name the column of the label"
        )
    called = tuple(sorted(texts)) if names is None else names
    if len(called) != classes:
        raise ConfigurationError(
            f"{where}: holds {len(called):,} classes, {quoted_few(called, 5)}, where "
            f"`agreement.training.classes` is {classes:,}; mend the one or the other"
        )
    place_of = {name: place for place, name in enumerate(called)}
    if unknown := [text for text in texts if text not in place_of]:
        raise ConfigurationError(
            f"{where}: holds {quoted_few(unknown, 5)}, which the training table does not have; "
            "take those rows out"
        )
    return np.array([place_of[text] for text in texts], dtype=np.int64), called


def _yes_or_no(text: str) -> int | None:
    number = {"false": 0, "true": 1}.get(text.lower(), _whole_number(text))
    return number if number in (0, 1) else None


def _whole_number(text: str) -> int | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None
