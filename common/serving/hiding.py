"""Groups of UIDs that hide the person a prediction is requested for.

See the paper's appendix D, with features of the active party.

The union is divided once: every UID belongs to one group, and a prediction is always requested for
the whole group. If the other UIDs were drawn at random for each request, two requests for the same
person would have hardly any other UID in common, so that the third would reveal the person. With
fixed groups, a thousand requests reveal no more than the first: that somebody in the group was of
interest.

Both parties derive the groups from the union's digest and the name of the training run, to which
both contributed, so neither party can choose who is in a group with whom.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_SEED = b"florist/hiding groups/1"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HidingGroups:
    """Groups of equal size; members are given by their rank in the union `U`."""

    #: Group `g` is `order[g * size : (g + 1) * size]`.
    order: npt.NDArray[np.int64]
    size: int
    #: The first index of each rank in `order`.
    _index: npt.NDArray[np.int64]

    @classmethod
    def of(cls, union_size: int, size: int, *, union_sha256: bytes, run: bytes) -> Self:
        """Divide a union of `union_size` UIDs.

        If it cannot be divided evenly, UIDs of the first group fill the last one, so that all
        groups have the same size and all messages the same length. A union smaller than `size` is
        a single group.
        """
        seed = hashlib.sha256(_SEED + union_sha256 + run).digest()
        # The stream of NumPy's legacy generator is the same in all releases.
        order = np.random.RandomState(np.frombuffer(seed, ">u4").astype(np.uint32)).permutation(
            union_size
        )
        index = np.empty(union_size, dtype=np.int64)
        index[order] = np.arange(union_size)
        size = min(size, union_size)
        return cls(np.resize(order, -(-union_size // size) * size), size, index)

    def __len__(self) -> int:
        return len(self.order) // self.size

    def __repr__(self) -> str:
        return f"HidingGroups({len(self)} of {self.size})"

    def members(self, group: int) -> npt.NDArray[np.int64]:
        """Return the ranks in a group, in the order in which their rows are sent."""
        if not 0 <= group < len(self):
            raise IndexError(f"no group {group}: there are {len(self)} groups")
        return self.order[group * self.size : (group + 1) * self.size]

    def find(
        self, ranks: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the group of each rank, and its index in the group."""
        groups, indices = np.divmod(self._index[ranks], self.size)
        return groups, indices
