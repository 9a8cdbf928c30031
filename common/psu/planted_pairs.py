"""Planted pairs: how a party notices that the party that merges has changed elements of the union.

The merging party (in Algorithm 1 the active party) finds out, without names, which elements are
shared and which only it has. If it changed one kind and not the other, by random elements or by a
different exponent, the union would tell it which of its people are shared. So the other party
plants pairs, whose elements must still be related at the end:

anchors     `k` IDs that are nobody's, which both parties derive from the token of the union. The
            merging party raises them as it raises its own IDs, and sends them by name.
first       an anchor, blinded, which the other party adds to its own set.
second      the merging party's power of the same anchor, blinded in the same way and raised further
            to the exponent with which the other party completes the union. It is added to the set
            that goes back.

To blind is to raise to an exponent that is used for nothing else, so that no other message helps to
recognise an anchor.

Without the secret exponents all of these look like any other elements. To the merging party the
second elements are among those that only it has. The first elements are among those that only the
other party has, in Algorithm 1, or among the shared ones, in the merged protocol. Completing the
union raises the first element to the second one as it was received.

docs/concepts/union.md has the probability of detection, and what this does not detect.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from florist.common.core.errors import ProtocolViolation
from florist.common.psu.hashed_ids import DummyIds

if TYPE_CHECKING:
    from florist.common.groups.group import Group
    from florist.common.storage.elements import Elements


@dataclass(frozen=True, slots=True)
class PlantedPairs:
    """The pairs of one union; the same in every attempt at it."""

    count: int
    #: The token of the union, to which both parties have contributed.
    token: bytes = field(repr=False)

    @property
    def elements(self) -> int:
        """The number of elements that the pairs add to the union; they are nobody's."""
        return 2 * self.count

    def anchors(self, group: Group) -> Elements:
        """Return the hashed anchors."""
        key = hashlib.sha256(b"florist/anchors/1" + self.token).digest()
        return group.hash_ids(DummyIds(key, self.count).rows(0, self.count))

    def check(self, intact: int) -> None:
        """Check that all pairs are intact.

        Raises:
            ProtocolViolation: some are not. The message does not say how many.
        """
        if intact != self.count:
            raise ProtocolViolation(
                "the check of planted pairs failed: elements of the union were changed, which "
                "would reveal to the party that merges who is shared"
            )


#: For a union without planted pairs.
NO_PAIRS = PlantedPairs(0, b"")
