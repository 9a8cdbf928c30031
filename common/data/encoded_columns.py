"""Which encoded features belong to which column of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.data.date_parts import part_names
from florist.common.data.features import Features

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from florist.common.data.preprocessing import Preprocessing


@dataclass(frozen=True, slots=True)
class EncodedColumn:
    """A column of the table, and the places of all that is made of it in `Features`.

    A number has its value and its bin; a date has these of its day, month and weekday.
    """

    name: str
    numeric: tuple[int, ...]
    categories: tuple[int, ...]

    def permuted(self, features: Features, order: npt.NDArray[np.int64]) -> Features:
        """Return a copy in which row `i` has the value of row `order[i]` in this column."""
        numeric, categories = features.numeric.copy(), features.categories.copy()
        for place in self.numeric:
            numeric[:, place] = features.numeric[order, place]
        for place in self.categories:
            categories[:, place] = features.categories[order, place]
        return Features(numeric, categories)


def encoded_columns(preprocessing: Preprocessing) -> tuple[EncodedColumn, ...]:
    """Return the columns of the table, in the order of their features."""
    whole = {part: name for name in preprocessing.dates for part in part_names(name)}
    numeric: dict[str, list[int]] = {}
    categories: dict[str, list[int]] = {}
    for place, name in enumerate(preprocessing.numeric_columns):
        numeric.setdefault(whole.get(name, name), []).append(place)
    indexed = (*preprocessing.categorical_columns, *(bins.column for bins in preprocessing.bins))
    for place, name in enumerate(indexed):
        categories.setdefault(whole.get(name, name), []).append(place)
    return tuple(
        EncodedColumn(name, tuple(numeric.get(name, ())), tuple(categories.get(name, ())))
        for name in dict.fromkeys((*numeric, *categories))
    )
