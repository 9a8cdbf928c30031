"""Fit preprocessing to a table, in one or several parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.data.category_counts import CategoryCounts
from florist.common.data.number_bins import RowSample, fit_bins
from florist.common.data.preprocessing import (
    NumberRange,
    Preprocessing,
    Vocabulary,
    numbers_of,
    on_scale,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from florist.common.data.raw_table import FeatureColumns, RawTable
    from florist.common.settings.data import PreprocessingSettings


def fit_preprocessing(raw: RawTable, settings: PreprocessingSettings) -> Preprocessing:
    """Fit ranges, bins and vocabularies to one or more rows.

    Their order makes no difference, except for the bins of more than `MAX_ROWS` rows.

    Raises:
        ConfigurationError: a number is infinite.
    """
    fitter = PreprocessingFitter(settings)
    fitter.add(raw)
    return fitter.preprocessing(raw.features)


class PreprocessingFitter:
    """Collects the range and a sample of numeric columns and the counts of categories.

    Its memory use depends on the number of columns and of different categories, not on the number
    of rows.
    """

    def __init__(self, settings: PreprocessingSettings) -> None:
        self._settings = settings
        self._bounds: dict[str, tuple[float, float]] = {}
        self._counts: dict[str, CategoryCounts] = {}
        self._sample = RowSample()

    def add(self, raw: RawTable) -> None:
        """Add the next rows, at least one.

        Raises:
            ConfigurationError: a number is infinite.
        """
        for column in raw.features.numeric:
            values = on_scale(raw, column, self._settings.scaling)
            minimum, maximum = float(values.min()), float(values.max())
            low, high = self._bounds.get(column, (minimum, maximum))
            self._bounds[column] = min(low, minimum), max(high, maximum)
        if self._settings.bins and raw.features.numeric:
            self._sample.add(
                len(raw), {column: numbers_of(raw, column) for column in raw.features.numeric}
            )
        for column in raw.features.categorical:
            self._counts.setdefault(column, CategoryCounts()).add(raw.columns.column(column))

    def forget(self, columns: Collection[str]) -> None:
        """Discard everything collected for these columns."""
        for column in columns:
            self._bounds.pop(column, None)
            self._counts.pop(column, None)
        self._sample.forget(columns)

    def preprocessing(self, features: FeatureColumns) -> Preprocessing:
        """Return the preprocessing of these columns, fitted to all rows so far."""
        # Adding 0 turns -0 into 0.
        ranges = [
            NumberRange(column=column, minimum=minimum + 0.0, maximum=maximum + 0.0)
            for column in features.numbers
            for minimum, maximum in [self._bounds[column]]
        ]
        vocabularies = [
            Vocabulary.from_counts(column, self._counts[column].total(), self._settings.min_count)
            for column in features.categorical
        ]
        bins = [
            fit_bins(column, self._sample.values(column), self._settings.bins)
            for column in (features.numbers if self._settings.bins else ())
        ]
        return Preprocessing(
            self._settings,
            tuple(ranges),
            tuple(vocabularies),
            tuple(bins),
            dates=features.dates,
            rules=features.rules,
        )
