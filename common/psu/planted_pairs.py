"""Planted pairs: how the passive party notices elements that were replaced in step 8.

An active party that replaces, in step 8, elements that only it has by random ones learns from the
union of step 9 which of its people are shared. So the passive party adds `k` pairs `(g, g^r)` to
the set of step 4, with `r = t2·t3`. Without `r` they look like any other elements, and the active
party has to keep them, as it has to keep the elements of its own people. In step 9 the passive
party raises every element to `r` anyway: the first element of each pair that is intact then equals
the second one as it was received. It counts these before it sends anything back.

docs/concepts/union.md has the probability of detection, and what this does not detect.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

from florist.common.core.errors import ProtocolViolation
from florist.common.psu.hashed_ids import DummyIds

if TYPE_CHECKING:
    from florist.common.groups.group import Exponent, Group
    from florist.common.psu.keys import OwnSecrets
    from florist.common.storage.elements import Elements


@dataclass(frozen=True, slots=True)
class PlantedPairs:
    """The pairs of one union: always the same ones under the same key.

    Pairs that changed in a second attempt at the same union would show the peer which they are.
    """

    count: int
    #: Known to the passive party only; the active party does not use its own.
    key: bytes = field(repr=False)

    @classmethod
    def of(cls, own: OwnSecrets, count: int) -> Self:
        """Return the pairs that belong to a party's secrets."""
        return cls(count, hashlib.sha256(b"florist/planted-pairs/1" + own.dummy_key).digest())

    @property
    def elements(self) -> int:
        """The number of elements that the pairs add to the union; they are nobody's."""
        return 2 * self.count

    def make(self, group: Group, first: Exponent, relation: Exponent) -> Elements:
        """Return the elements of all pairs.

        Args:
            group: the group of the union.
            first: raises the hashes, whose distribution is not uniform, to uniform elements.
            relation: the exponent that turns the first element of a pair into the second.
        """
        hashed = group.hash_ids(DummyIds(self.key, self.count).rows(0, self.count))
        bases = group.power(hashed, first)
        return np.concatenate([bases, group.power(bases, relation)])

    def check(self, intact: int) -> None:
        """Check that all pairs are intact.

        Raises:
            ProtocolViolation: some are not. The message does not say how many.
        """
        if intact != self.count:
            raise ProtocolViolation(
                "step 8: the check of planted pairs failed: elements of the union were replaced, "
                "which would reveal to the active party who is shared"
            )


#: For a union without planted pairs.
NO_PAIRS = PlantedPairs(0, b"")
