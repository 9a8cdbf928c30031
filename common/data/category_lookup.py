"""Find the indices of categories, for many parts of a table.

Arrow's `index_in` hashes all known categories again for each array. That is negligible for whole
tables. `CategoryLookup` does it once, so that the cost of a part depends only on its rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from florist.common.storage.id_column import IdColumn, quick_digests

if TYPE_CHECKING:
    import numpy.typing as npt


class CategoryLookup:
    """Maps the `i`-th known category to the index `i + 1`, and any other text to 0."""

    def __init__(self, known: pa.StringArray) -> None:
        """Prepare a lookup of `known`, which has no duplicates."""
        digests = _digests(known)
        order = np.argsort(digests)
        self._known = known
        self._sorted_digests = digests[order]
        #: The category to which each of the sorted digests belongs.
        self._order = order.astype(np.int32)
        self._colliding = self._find_collisions()

    def __call__(self, values: pa.ChunkedArray) -> npt.NDArray[np.int32]:
        """Return the index of each value."""
        encoded = values.combine_chunks().dictionary_encode()
        found: npt.NDArray[np.int32] = self._indices(encoded.dictionary)[encoded.indices.to_numpy()]
        return found

    def _indices(self, texts: pa.StringArray) -> npt.NDArray[np.int32]:
        if not len(self._known):
            return np.zeros(len(texts), dtype=np.int32)
        slots = np.searchsorted(self._sorted_digests, _digests(texts))
        candidates = self._order[np.minimum(slots, len(self._order) - 1)]
        # An equal digest is only a hint: the texts must be equal.
        is_known = pc.equal(self._known.take(pa.array(candidates)), texts).to_numpy(
            zero_copy_only=False
        )
        indices = np.where(is_known, candidates + np.int32(1), np.int32(0))
        if self._colliding:
            for row in np.flatnonzero(~is_known).tolist():
                indices[row] = self._colliding.get(texts[row].as_py(), 0)
        return indices

    def _find_collisions(self) -> dict[str, int]:
        """Return the indices of categories with the same digest as another; almost always none."""
        same = np.flatnonzero(self._sorted_digests[1:] == self._sorted_digests[:-1])
        colliding = self._order[np.union1d(same, same + 1)]
        return {self._known[category].as_py(): category + 1 for category in colliding.tolist()}


def _digests(texts: pa.StringArray) -> npt.NDArray[np.uint64]:
    if not len(texts):
        return np.empty(0, dtype=np.uint64)
    return quick_digests(IdColumn.from_arrow(texts.cast(pa.large_string())))
