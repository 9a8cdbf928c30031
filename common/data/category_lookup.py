"""The index of each category, for many parts of a table.

Arrow hashes all known categories anew for each array whose places among them it finds. That is no
matter for whole tables; here it is done once, so that each part costs as much as it has rows.
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
    """Known categories, each there once: number `i` has the index `i + 1`, any other text 0."""

    def __init__(self, known: pa.StringArray) -> None:
        digests = _digests(known)
        order = np.argsort(digests)
        self._known = known
        self._digests = digests[order]
        self._places = order.astype(np.int32)
        self._clashing = self._same_digest()

    def __call__(self, values: pa.ChunkedArray) -> npt.NDArray[np.int32]:
        encoded = values.combine_chunks().dictionary_encode()
        found: npt.NDArray[np.int32] = self._indices(encoded.dictionary)[encoded.indices.to_numpy()]
        return found

    def _indices(self, texts: pa.StringArray) -> npt.NDArray[np.int32]:
        if not len(self._known):
            return np.zeros(len(texts), dtype=np.int32)
        slots = np.searchsorted(self._digests, _digests(texts))
        places = self._places[np.minimum(slots, len(self._places) - 1)]
        # Equal digests make a suspect; only an equal text is known.
        is_known = pc.equal(self._known.take(pa.array(places)), texts).to_numpy(
            zero_copy_only=False
        )
        indices = np.where(is_known, places + np.int32(1), np.int32(0))
        if self._clashing:
            for row in np.flatnonzero(~is_known).tolist():
                indices[row] = self._clashing.get(texts[row].as_py(), 0)
        return indices

    def _same_digest(self) -> dict[str, int]:
        """The indices of those of which others have the digest: as good as always none."""
        same = np.flatnonzero(self._digests[1:] == self._digests[:-1])
        places = self._places[np.union1d(same, same + 1)]
        return {self._known[place].as_py(): place + 1 for place in places.tolist()}


def _digests(texts: pa.StringArray) -> npt.NDArray[np.uint64]:
    if not len(texts):
        return np.empty(0, dtype=np.uint64)
    return quick_digests(IdColumn.from_arrow(texts.cast(pa.large_string())))
