"""The three secret exponents of a party, fresh for each run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from florist.common.groups.group import Exponent, Group


@dataclass(frozen=True, slots=True, repr=False)
class Keys:
    """`s1, s2, s3` of the active party, or `t1, t2, t3` of the passive: steps 1 and 2.

    They exist in memory for one alignment, are never logged or printed, and are stored only
    encrypted under a key that is not on the same machine (`sealed_keys.py`).
    """

    first: Exponent
    second: Exponent
    third: Exponent

    @classmethod
    def fresh(cls, group: Group) -> Self:
        """Return three random exponents, as in steps 1 and 2."""
        return cls(group.random_exponent(), group.random_exponent(), group.random_exponent())

    def __repr__(self) -> str:
        return "Keys(…)"
