"""The attacker's own features as sparse columns of zeros and ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.audit.view import OwnFeatures

    Codes = npt.NDArray[np.int64]

#: Quantile bins of a number.
BINS = 16
#: Categories with fewer rows than this are merged into one per column.
LEAST = 10


def one_hot(features: OwnFeatures, most_columns: int) -> sparse.csr_array:
    """Return a column for each bin of each number, and for each frequent category.

    Args:
        features: the attacker's own features.
        most_columns: with more columns than this, further rare categories are merged.
    """
    codes = [_bins(column) for column in features.rows.numeric.T]
    codes += _categories(features, most_columns - sum(int(c.max(initial=0)) + 1 for c in codes))
    return _columns(codes, len(features.rows))


def one_hot_labels(labels: npt.NDArray[np.floating]) -> sparse.csr_array:
    """Return a column for each label; rows with NaN have none."""
    known, codes = np.unique(labels, return_inverse=True)
    found = _columns([codes], len(labels))
    return found[:, np.flatnonzero(np.isfinite(known))]


def _bins(values: npt.NDArray[np.floating]) -> Codes:
    edges = np.unique(np.quantile(values, np.arange(1, BINS) / BINS)) if len(values) else values
    return np.searchsorted(edges, values, side="right")


def _categories(features: OwnFeatures, most: int) -> list[Codes]:
    """Return codes of each categorical column, with rare categories merged."""
    columns = features.rows.categories.T
    counts = [
        np.bincount(column, minlength=cardinality)
        for column, cardinality in zip(columns, features.cardinalities, strict=True)
    ]
    everything = np.concatenate(counts) if counts else np.zeros(0, dtype=np.int64)
    # Each column also has one code for what is merged.
    room = max(most - len(counts), 0)
    least = max(LEAST, int(np.sort(everything)[::-1][room]) + 1 if room < len(everything) else 0)
    found = []
    for column, count in zip(columns, counts, strict=True):
        frequent = count >= least
        code = np.where(frequent, np.cumsum(frequent), 0)
        found.append(code[column])
    return found


def _columns(codes: list[Codes], rows: int) -> sparse.csr_array:
    """Return one column per code of each list, empty ones left out."""
    offset, places = 0, []
    for code in codes:
        used, dense = np.unique(code, return_inverse=True)
        places.append(dense + offset)
        offset += len(used)
    indices = np.stack(places, axis=1).ravel() if places else np.zeros(0, dtype=np.int64)
    starts = np.arange(rows + 1) * len(codes)
    return sparse.csr_array((np.ones(len(indices)), indices, starts), shape=(rows, offset))
