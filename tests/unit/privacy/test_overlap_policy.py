"""The limits on the overlap: both parties come to the same decision from public numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from florist.common.core.errors import OverlapOutsideLimits
from florist.common.privacy.overlap_policy import check_overlap
from florist.common.settings.union import OverlapLimits

DEFAULT = OverlapLimits()
OFF = OverlapLimits(minimum=0, minimum_share=0.0, maximum_share=1.0)


def allowed(limits: OverlapLimits, shared: float, share: float) -> bool:
    try:
        check_overlap(limits, shared=shared, share=share, table="training")
    except OverlapOutsideLimits:
        return False
    return True


@pytest.mark.parametrize(
    ("shared", "share", "message"),
    [
        (999, 0.5, "about 999 people are shared, fewer than agreement.union.overlap.minimum (1,00"),
        (-3, 0.5, "about 0 people are shared"),
        (1200, 0.04, "about 4.00% of the smaller table is shared, less than agreement.union.overl"),
        (5000, 1.0, "about 100.00% of the smaller table is shared, more than agreement.union.over"),
        (5000, 0.96, "agreement.union.overlap.maximum_share (95.00%)"),
    ],
)
def test_overlaps_outside_the_limits(shared: float, share: float, message: str) -> None:
    with pytest.raises(OverlapOutsideLimits) as caught:
        check_overlap(DEFAULT, shared=shared, share=share, table="training")
    assert message in str(caught.value)
    assert str(caught.value).startswith("training tables: ")
    assert caught.value.exit_code == 7
    assert caught.value.for_peer == str(caught.value)
    assert "agreement.union.overlap: {minimum: 0, minimum_share: 0" in caught.value.advice


def test_limits_are_inclusive() -> None:
    assert allowed(DEFAULT, 1000, 0.05)
    assert allowed(DEFAULT, 1000, 0.95)
    assert not allowed(DEFAULT, 1000, 0.951)
    assert not allowed(DEFAULT, 999, 0.95)


@given(st.floats(-1e6, 1e9), st.floats(0, 1))
def test_limits_that_are_turned_off_allow_everything(shared: float, share: float) -> None:
    assert allowed(OFF, shared, share)
