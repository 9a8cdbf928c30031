"""The limits on the overlap: both parties come to the same decision from public numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from florist.common.core.errors import OverlapOutsideLimits
from florist.common.privacy.overlap_policy import PublicSizes, check_overlap
from florist.common.settings.union import OverlapLimits

DEFAULT = OverlapLimits()
OFF = OverlapLimits(minimum=0, minimum_share=0.0, maximum_share=1.0)


def allowed(limits: OverlapLimits, sizes: PublicSizes) -> bool:
    try:
        check_overlap(limits, sizes, "training")
    except OverlapOutsideLimits:
        return False
    return True


@pytest.mark.parametrize(
    ("shared", "sizes", "message"),
    [
        (999.0, (5000, 5000), "about 999 people are shared, fewer than agreement.union.overlap.mi"),
        (-3.0, (5000, 5000), "about 0 people are shared"),
        (1200.0, (50_000, 30_000), "about 4.00% of the smaller table is shared, less than agree"),
        (5000.0, (5000, 9000), "about 100.00% of the smaller table is shared, more than agreement"),
        (5003.0, (5000, 9000), "agreement.union.overlap.maximum_share (95.00%)"),
    ],
)
def test_overlaps_outside_the_limits(shared: float, sizes: tuple[int, int], message: str) -> None:
    with pytest.raises(OverlapOutsideLimits) as caught:
        check_overlap(DEFAULT, PublicSizes(shared, *sizes), "training")
    assert message in str(caught.value)
    assert str(caught.value).startswith("training tables: ")
    assert caught.value.exit_code == 7
    assert caught.value.for_peer == str(caught.value)
    assert "agreement.union.overlap: {minimum: 0, minimum_share: 0" in caught.value.advice


def test_limits_are_inclusive() -> None:
    assert allowed(DEFAULT, PublicSizes(1000.0, 20_000, 20_000))
    assert allowed(DEFAULT, PublicSizes(4750.0, 5000, 9000))
    assert not allowed(DEFAULT, PublicSizes(4751.0, 5000, 9000))


def test_padding_is_subtracted_from_the_announced_sizes() -> None:
    assert not allowed(DEFAULT, PublicSizes(4800.0, 5080, 9080, padding=80))
    assert allowed(DEFAULT, PublicSizes(4800.0, 5080, 9080, padding=0))


sizes = st.builds(
    PublicSizes,
    st.floats(-1e6, 1e9),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.integers(0, 10**4),
)


@given(sizes)
def test_limits_that_are_turned_off_allow_everything(public: PublicSizes) -> None:
    assert allowed(OFF, public)


@given(
    sizes,
    st.integers(0, 10**6),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_both_parties_decide_the_same(
    public: PublicSizes, minimum: int, low: float, high: float
) -> None:
    limits = OverlapLimits(
        minimum=minimum, minimum_share=min(low, high), maximum_share=max(low, high)
    )
    mirrored = PublicSizes(public.shared, public.other, public.one, public.padding)
    assert allowed(limits, public) == allowed(limits, mirrored)
