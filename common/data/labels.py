"""Convert the label column to classes, numbered from 0."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow.compute as pc

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import quoted, quoted_few
from florist.common.data.column_values import DEFAULT_RULES, ValueRules, as_categories

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from florist.common.data.raw_table import RawTable
    from florist.common.settings.agreement import TrainingAgreement
    from florist.common.settings.data import Table

#: The name of the class of all texts other than `positive_label`.
ANY_OTHER = ""

#: A label column with more different texts than this has no classes.
MAX_DISTINCT = 10_000

#: With more different integers than this, or other numbers, a column is probably not a label.
_MANY, _MANY_FRACTIONS = 50, 10


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
    text, numbered in sorted order. With `names`, any number of classes are these texts.

    Args:
        raw: a table with a label column.
        classes: the number of classes, at least 2.
        names: the texts of the classes, not all of which must occur; `ANY_OTHER` stands for all
            other texts. For any table but the training table, the class names of that one.

    Raises:
        ConfigurationError: labels are missing, all the same, or of other classes; names the file,
            the column and a few of the values.
    """
    reader = LabelReader(raw.source, raw.label_column)
    assert raw.label is not None
    reader.add(raw.label)
    return reader.labels(classes, names=names)


def training_labels(reader: LabelReader, agreement: TrainingAgreement) -> Labels:
    """Return the labels of the training table.

    Raises:
        ConfigurationError: as `read_labels`.
    """
    return reader.labels(agreement.classes, names=tuple(agreement.class_names) or None)


def held_out_labels(
    reader: LabelReader, agreement: TrainingAgreement, names: tuple[str, ...]
) -> Labels:
    """Return the labels of the test table, which has rows of every class.

    Args:
        reader: of the test table.
        agreement: the number of classes.
        names: the classes of the training table.

    Raises:
        ConfigurationError: as `read_labels`, or a class has no rows.
    """
    labels = reader.labels(agreement.classes, names=names)
    if len(set(labels.classes.tolist())) < agreement.classes:
        raise ConfigurationError(
            "data.test: some classes have no rows, and AUC needs rows of every class; add some"
        )
    return labels


class LabelReader:
    """Reads a label column part by part; see `read_labels`."""

    def __init__(
        self,
        source: str,
        column: str | None,
        rules: ValueRules = DEFAULT_RULES,
        positive: str | None = None,
    ) -> None:
        """Start without rows.

        Args:
            source: the name of the table, for messages.
            column: the label column.
            rules: which texts mean a missing label.
            positive: the text of class 1, if every other text is class 0.

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
        self._rules = rules
        self._positive = positive

    @classmethod
    def of_table(cls, table: Table) -> Self:
        """Make a reader of the label column of a table of the configuration.

        Raises:
            ConfigurationError: it has none.
        """
        rules = ValueRules(na_values=table.na_values)
        return cls(str(table.path), table.label, rules, table.positive_label)

    def add(self, column: pa.ChunkedArray) -> None:
        """Add the labels of the next rows.

        Raises:
            ConfigurationError: the labels have no text form, or are too many different ones.
        """
        texts = pc.utf8_trim_whitespace(as_categories(column, self._where, self._rules))
        self._missing += pc.sum(pc.equal(texts, "")).as_py() or 0
        distinct = pc.unique(texts)
        numbers = np.array(
            [self._numbers.setdefault(text, len(self._numbers)) for text in distinct.to_pylist()],
            dtype=np.int32,
        )
        self._rows.append(numbers[pc.index_in(texts, value_set=distinct).to_numpy()])
        if len(self._numbers) > MAX_DISTINCT and self._positive is None:
            raise _not_classes(self._where, list(self._numbers))

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
        if names is None and self._positive is not None:
            names = (ANY_OTHER, self._positive)
        class_of, class_names = _numbered(texts, classes, names, where)
        return Labels(class_of[np.concatenate(self._rows)], class_names)


def _numbered(
    texts: Sequence[str], classes: int, names: tuple[str, ...] | None, where: str
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Return the class of each text, and the names of all classes."""
    if names and names[0] == ANY_OTHER:
        return _one_against_the_rest(texts, names[1], where), names
    digits = tuple(map(str, range(classes)))
    if names in (None, digits):
        found = [_as_boolean(text) if classes == 2 else _as_integer(text) for text in texts]
        numbers = [number for number in found if number is not None]
        if len(numbers) == len(texts) and min(numbers) >= 0 and max(numbers) < classes:
            return np.array(numbers, dtype=np.int64), digits
        if names is None:
            _check_number_of_classes(texts, classes, where)
    class_names = tuple(sorted(texts)) if names is None else names
    class_of = {name: number for number, name in enumerate(class_names)}
    if unknown := [text for text in texts if text not in class_of]:
        raise ConfigurationError(
            f"{where}: contains {quoted_few(unknown, 5)}, but the classes of the model are "
            f"{quoted_few(class_names, 5)}; correct or remove those rows"
        )
    return np.array([class_of[text] for text in texts], dtype=np.int64), class_names


def _one_against_the_rest(texts: Sequence[str], positive: str, where: str) -> npt.NDArray[np.int64]:
    if positive not in texts:
        raise ConfigurationError(
            f"{where}: no label is {quoted(positive)}; it contains {quoted_few(texts, 5)}; correct "
            "`positive_label`"
        )
    return np.array([text == positive for text in texts], dtype=np.int64)


def _check_number_of_classes(texts: Sequence[str], classes: int, where: str) -> None:
    """Check that the texts can be the names of the classes.

    Raises:
        ConfigurationError: they cannot, and what to set instead.
    """
    integers = [_as_integer(text) for text in texts]
    are_numbers = all(_is_number(text) for text in texts)
    most = _MANY if None not in integers else _MANY_FRACTIONS
    if are_numbers and len(texts) > most and len(texts) != classes:
        raise _not_classes(where, texts)
    if classes == len(texts) > 2 and None in integers:
        return
    few = quoted_few(sorted(texts), 5)
    if classes == len(texts) == 2:
        raise ConfigurationError(
            f"{where}: contains {few}; set `positive_label` under `data.train` to the one that is "
            f"class 1, such as positive_label: {_in_quotes(sorted(texts)[1])}"
        )
    if are_numbers and len(texts) == classes:
        raise ConfigurationError(
            f"{where}: must be integers from 0 to {classes - 1} but contains {few}; renumber the "
            "classes, or list these in `agreement.training.class_names` at both parties"
        )
    raise ConfigurationError(
        f"{where}: contains {len(texts):,} classes, {few}, but `agreement.training.classes` is "
        f"{classes:,}; set classes: {len(texts)} at both parties, or set `positive_label` under "
        "`data.train` to the one that is to be told from all others, or correct `label`"
    )


def _not_classes(where: str, texts: Sequence[str]) -> ConfigurationError:
    if all(_is_number(text) for text in texts):
        return ConfigurationError(
            f"{where}: contains {len(texts):,} different numbers, such as "
            f"{quoted_few(texts[:3], 3)}: a continuous label needs regression, which is not "
            "supported; divide it into classes, such as 1 above a threshold and 0 below, or "
            "correct `label`"
        )
    return ConfigurationError(
        f"{where}: contains more than {MAX_DISTINCT:,} different texts, so it cannot be a label; "
        "correct `label`"
    )


def _in_quotes(text: str) -> str:
    return json.dumps(text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _as_boolean(text: str) -> int | None:
    number = {"false": 0, "true": 1}.get(text.lower(), _as_integer(text))
    return number if number in (0, 1) else None


def _as_integer(text: str) -> int | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None
