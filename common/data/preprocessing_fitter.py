"""Preprocessing learned from a table that comes in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from florist.common.data.preprocessing import NumberRange, Preprocessing, Vocabulary, on_scale

if TYPE_CHECKING:
    from collections.abc import Iterable

    from florist.common.data.tables import FeatureColumns, RawTable
    from florist.common.settings.data import PreprocessingSettings

#: So many counts may wait to be added up, or as many as there are different categories.
_WAITING = 1 << 20


class PreprocessingFitter:
    """The least and the greatest numbers, and counts of categories, of all rows so far.

    It takes memory for each different category, and none for rows.
    """

    def __init__(self, settings: PreprocessingSettings) -> None:
        self._settings = settings
        self._bounds: dict[str, tuple[float, float]] = {}
        self._counts: dict[str, _Counts] = {}

    def add(self, raw: RawTable) -> None:
        """The next rows, at least one.

        Raises:
            ConfigurationError: a number is infinite.
        """
        for column in raw.features.numeric:
            values = on_scale(raw, column, self._settings.scaling)
            least, greatest = float(values.min()), float(values.max())
            low, high = self._bounds.get(column, (least, greatest))
            self._bounds[column] = min(low, least), max(high, greatest)
        for column in raw.features.categorical:
            self._counts.setdefault(column, _Counts()).add(raw.columns.column(column))

    def forget(self, columns: Iterable[str]) -> None:
        """As if these had not been there."""
        for column in columns:
            self._bounds.pop(column, None)
            self._counts.pop(column, None)

    def preprocessing(self, features: FeatureColumns) -> Preprocessing:
        """What `Preprocessing.fit` learns from all rows at once, with these columns."""
        # Adding 0 turns -0 into 0.
        ranges = [
            NumberRange(column=column, minimum=least + 0.0, maximum=greatest + 0.0)
            for column in features.numeric
            for least, greatest in [self._bounds[column]]
        ]
        vocabularies = [
            Vocabulary.counted(column, self._counts[column].total(), self._settings.min_count)
            for column in features.categorical
        ]
        return Preprocessing(self._settings, tuple(ranges), tuple(vocabularies))


class _Counts:
    """How often each category of a column came."""

    def __init__(self) -> None:
        #: Of all but those that wait.
        self._sums: pa.StructArray | None = None
        self._waiting: list[pa.StructArray] = []

    def add(self, values: pa.ChunkedArray) -> None:
        self._waiting.append(values.value_counts())
        different = 0 if self._sums is None else len(self._sums)
        if sum(map(len, self._waiting)) > max(_WAITING, different):
            self._sums = self.total()
            self._waiting = []

    def total(self) -> pa.StructArray:
        """`values`, each once, and their `counts`."""
        parts = [*([] if self._sums is None else [self._sums]), *self._waiting]
        if len(parts) == 1:
            return parts[0]
        counted = pa.table(
            {
                name: pa.chunked_array([part.field(name) for part in parts])
                for name in ("values", "counts")
            }
        )
        summed = counted.group_by("values").aggregate([("counts", "sum")]).combine_chunks()
        return pa.StructArray.from_arrays(
            [summed.column(name).chunk(0) for name in ("values", "counts_sum")],
            names=["values", "counts"],
        )
