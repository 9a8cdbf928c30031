"""The agreement's limits on the overlap, applied to a finished union."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.privacy.overlap_policy import check_overlap

if TYPE_CHECKING:
    from florist.common.session.alignment_result import AlignmentSummary
    from florist.common.settings.party_config import PartyConfig


def check_union_overlap(
    config: PartyConfig, summary: AlignmentSummary, table: str = "training"
) -> None:
    """Refuse to use a union whose estimated overlap is outside the agreed limits.

    Raises:
        OverlapOutsideLimits: both parties raise it, because both have the same sizes.
    """
    sizes = summary.sizes
    check_overlap(
        config.agreement.union.overlap,
        shared=sizes.shared_estimate,
        share=sizes.shared_share,
        table=table,
    )
