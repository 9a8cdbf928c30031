"""The limits on the overlap: with which overlaps a run may continue after a union.

If very few people are shared, or nearly all of the smaller set, the sizes alone say a lot about
everybody. The decision depends only on numbers that both parties know, so both come to the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.core.errors import OverlapOutsideLimits

if TYPE_CHECKING:
    from florist.common.settings.union import OverlapLimits


def check_overlap(limits: OverlapLimits, *, shared: float, share: float, table: str) -> None:
    """Refuse an overlap outside the limits.

    Args:
        limits: those of the agreement.
        shared: the public estimate of the number of shared people; noise can make it negative.
        share: the public estimate of the share of the smaller set that is shared, from 0 to 1.
        table: the kind of table that was aligned, for the message.

    Raises:
        OverlapOutsideLimits: names the key, its value and the estimate. Both parties raise it.
    """
    if problem := _problem(limits, max(shared, 0.0), share):
        raise OverlapOutsideLimits(f"{table} tables: {problem}")


def _problem(limits: OverlapLimits, shared: float, share: float) -> str:
    if shared < limits.minimum:
        return (
            f"about {shared:,.0f} people are shared, fewer than agreement.union.overlap.minimum "
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
