"""Groups of UIDs in which a person who is asked for hides (appendix D, with active features).

The union is divided once: every UID has one group, and is always asked for by asking for that
group. Were the hiding UIDs drawn anew for each request, two requests for one person would have
hardly anyone else in common, and the third would name the person. With fixed groups, a thousand
requests tell no more than the first: that somebody in the group was of interest.

Both parties compute the groups from the union's digest and the name of the training run, to which
both contributed: neither can choose who hides with whom.
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
    """Groups of one size; ranks are positions in the union `U`."""

    #: Group `g` is `order[g * size : (g + 1) * size]`.
    order: npt.NDArray[np.int64]
    size: int
    #: Where each rank comes first in `order`.
    _place: npt.NDArray[np.int64]

    @classmethod
    def of(cls, union_size: int, size: int, *, union_sha256: bytes, run: bytes) -> Self:
        """Divide a union of `union_size` UIDs.

        If it cannot be divided evenly, UIDs of the first group fill up the last one: so all groups
        have one size, and all messages one length. A union smaller than `size` is one group.
        """
        seed = hashlib.sha256(_SEED + union_sha256 + run).digest()
        # The legacy generator's stream is frozen, whatever the numpy of either party.
        order = np.random.RandomState(np.frombuffer(seed, ">u4").astype(np.uint32)).permutation(
            union_size
        )
        place = np.empty(union_size, dtype=np.int64)
        place[order] = np.arange(union_size)
        size = min(size, union_size)
        return cls(np.resize(order, -(-union_size // size) * size), size, place)

    def __len__(self) -> int:
        return len(self.order) // self.size

    def __repr__(self) -> str:
        return f"HidingGroups({len(self)} of {self.size})"

    def members(self, group: int) -> npt.NDArray[np.int64]:
        """The ranks of a group, in the order in which their rows are sent."""
        if not 0 <= group < len(self):
            raise IndexError(f"there is no group {group}; there are {len(self)}")
        return self.order[group * self.size : (group + 1) * self.size]

    def find(
        self, ranks: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The group of each rank, and its place in the group."""
        groups, places = np.divmod(self._place[ranks], self.size)
        return groups, places
