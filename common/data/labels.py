"""Convert the label column to classes, numbered from 0."""

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

    from florist.common.data.raw_table import RawTable


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Labels:
    """The class of each row, and the names of the classes in the table."""

    classes: npt.NDArray[np.int64]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.classes)

    def __repr__(self) -> str:
        return f"Labels({len(self)} rows, {len(self.names)} classes)"


def read_labels(raw: RawTable, classes: int = 2, *, names: tuple[str, ...] | None = None) -> Labels:
    """Determine the class of each row.

    Two classes are written 0 and 1, or false and true. More classes are integers from 0, or any
    text, numbered in sorted order.

    Args:
        raw: a table with a label column.
        classes: the number of classes, at least 2.
        names: the class names of the training table, for any other table, which need not have all
            of them.

    Raises:
        ConfigurationError: labels are missing, all the same, or of other classes; names the file,
            the column and a few of the values.
    """
    reader = LabelReader(raw.source, raw.label_column)
    assert raw.label is not None
    reader.add(raw.label)
    return reader.labels(classes, names=names)


class LabelReader:
    """Reads a label column part by part; see `read_labels`."""

    def __init__(self, source: str, column: str | None) -> None:
        """Start without rows.

        Raises:
            ConfigurationError: `column` is None.
        """
        if column is None:
            raise ConfigurationError(
                f"{source}: the label column is not specified; set `label` under `data.train`"
            )
        self._where = f"{source}, column {quoted(column)}"
        #: The distinct texts, numbered in order of appearance.
        self._numbers: dict[str, int] = {}
        self._rows: list[npt.NDArray[np.int32]] = []
        self._missing = 0

    def add(self, column: pa.ChunkedArray) -> None:
        """Add the labels of the next rows.

        Raises:
            ConfigurationError: the labels have no text form.
        """
        texts = pc.utf8_trim_whitespace(as_categories(column, self._where))
        self._missing += pc.sum(pc.equal(texts, "")).as_py() or 0
        distinct = pc.unique(texts)
        numbers = np.array(
            [self._numbers.setdefault(text, len(self._numbers)) for text in distinct.to_pylist()],
            dtype=np.int32,
        )
        self._rows.append(numbers[pc.index_in(texts, value_set=distinct).to_numpy()])

    def labels(self, classes: int = 2, *, names: tuple[str, ...] | None = None) -> Labels:
        """Return the labels of all rows, at least one.

        Raises:
            ConfigurationError: as `read_labels`.
        """
        where, texts = self._where, list(self._numbers)
        if self._missing:
            raise ConfigurationError(
                f"{where}: labels are missing in {self._missing:,} of "
                f"{sum(map(len, self._rows)):,} rows; add the labels or remove the rows"
            )
        if len(texts) == 1:
            raise ConfigurationError(
                f"{where}: is {quoted(texts[0])} in every row; training needs rows of different "
                "classes"
            )
        class_of, class_names = _numbered(texts, classes, names, where)
        return Labels(class_of[np.concatenate(self._rows)], class_names)


def _numbered(
    texts: Sequence[str], classes: int, names: tuple[str, ...] | None, where: str
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Return the class of each text, and the names of all classes."""
    digits = tuple(map(str, range(classes)))
    found = [_as_boolean(text) if classes == 2 else _as_integer(text) for text in texts]
    numbers = [number for number in found if number is not None]
    if len(numbers) == len(texts) and names in (None, digits):
        if min(numbers) < 0 or max(numbers) >= classes:
            raise ConfigurationError(
                f"{where}: must be integers from 0 to {classes - 1} but contains "
                f"{quoted_few(texts, 5)}; renumber the classes, or correct "
                "`agreement.training.classes`"
            )
        return np.array(numbers, dtype=np.int64), digits
    if classes == 2:
        raise ConfigurationError(
            f"{where}: must be 0 or 1 (or false or true) but contains {quoted_few(texts, 5)}; "
            "write 0 and 1, or correct `label`"
        )
    class_names = tuple(sorted(texts)) if names is None else names
    if len(class_names) != classes:
        raise ConfigurationError(
            f"{where}: contains {len(class_names):,} classes, {quoted_few(class_names, 5)}, but "
            f"`agreement.training.classes` is {classes:,}; correct one of them"
        )
    class_of = {name: number for number, name in enumerate(class_names)}
    if unknown := [text for text in texts if text not in class_of]:
        raise ConfigurationError(
            f"{where}: contains classes that the training table does not have: "
            f"{quoted_few(unknown, 5)}; remove those rows"
        )
    return np.array([class_of[text] for text in texts], dtype=np.int64), class_names


def _as_boolean(text: str) -> int | None:
    number = {"false": 0, "true": 1}.get(text.lower(), _as_integer(text))
    return number if number in (0, 1) else None


def _as_integer(text: str) -> int | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None
