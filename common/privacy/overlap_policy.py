"""The limits on the overlap: with which overlaps a run may continue after a union.

If very few people are shared, or nearly all of the smaller set, the sizes alone say a lot about
everybody. The decision depends only on numbers that both parties know, so both come to the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.core.errors import OverlapOutsideLimits

if TYPE_CHECKING:
    from florist.common.settings.union import OverlapLimits


@dataclass(frozen=True, slots=True)
class PublicSizes:
    """What both parties know about the sizes of a union."""

    #: The public estimate of the number of shared people; noise can make it negative.
    shared: float
    #: The announced sizes of the two sets.
    one: int
    other: int
    #: The mean number of pool IDs and of noise dummies in each announced set.
    padding: int = 0

    @property
    def smaller(self) -> int:
        """The estimated size of the smaller set, at least 1."""
        return max(min(self.one, self.other) - self.padding, 1)

    @property
    def share(self) -> float:
        """The estimated share of the smaller set that is shared, from 0 to 1."""
        return min(max(self.shared / self.smaller, 0.0), 1.0)


def check_overlap(limits: OverlapLimits, sizes: PublicSizes, table: str) -> None:
    """Refuse an overlap outside the limits.

    Args:
        limits: those of the agreement.
        sizes: of the union.
        table: the kind of table that was aligned, for the message.

    Raises:
        OverlapOutsideLimits: names the key, its value and the estimate. Both parties raise it.
    """
    if problem := _problem(limits, sizes):
        raise OverlapOutsideLimits(f"{table} tables: {problem}")


def _problem(limits: OverlapLimits, sizes: PublicSizes) -> str:
    count, share = max(sizes.shared, 0.0), sizes.share
    if count < limits.minimum:
        return (
            f"about {count:,.0f} people are shared, fewer than agreement.union.overlap.minimum "
            f"({limits.minimum:,})"
        )
    if share < limits.minimum_share:
        return (
            f"about {share:.2%} of the smaller table is shared, less than "
            f"agreement.union.overlap.minimum_share ({limits.minimum_share:.2%})"
        )
    if share > limits.maximum_share:
        return (
            f"about {share:.2%} of the smaller table is shared, more than "
            f"agreement.union.overlap.maximum_share ({limits.maximum_share:.2%})"
        )
    return ""
