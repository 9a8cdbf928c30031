"""Hiding groups: every rank has one, all have the same size, both parties have the same."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from florist.common.serving.hiding import HidingGroups

DIGEST, RUN = bytes(range(32)), bytes(range(32, 64))


def groups(union: int, size: int, run: bytes = RUN) -> HidingGroups:
    return HidingGroups.of(union, size, union_sha256=DIGEST, run=run)


@given(union=st.integers(1, 400), size=st.integers(2, 50))
def test_every_rank_is_found_in_exactly_one_group(union: int, size: int) -> None:
    made = groups(union, size)
    group, place = made.find(np.arange(union))
    assert [made.members(int(g))[p] for g, p in zip(group, place, strict=True)] == list(
        range(union)
    )
    assert {len(made.members(g)) for g in range(len(made))} == {min(size, union)}
    assert set(group.tolist()) == set(range(len(made))), "every group is used"


def test_every_rank_is_requested_with_a_single_group() -> None:
    """Members that fill the last group are requested only with the first one."""
    made = groups(10, 4)
    assert len(made) == 3
    twice = set(made.members(0).tolist()) & set(made.members(2).tolist())
    assert len(twice) == 2
    assert set(made.find(np.array(sorted(twice)))[0].tolist()) == {0}


def test_both_parties_and_all_releases_have_the_same_groups() -> None:
    """The order is fixed: different groups for the same people would reveal who is of interest."""
    assert np.array_equal(groups(1000, 8).order, groups(1000, 8).order)
    digest = hashlib.sha256(groups(1000, 8).order.astype("<i8").tobytes()).hexdigest()
    assert digest.startswith("a96a24e049cb1809")


def test_another_run_has_other_groups() -> None:
    assert not np.array_equal(groups(1000, 8).order, groups(1000, 8, run=bytes(32)).order)


def test_an_unknown_group() -> None:
    with pytest.raises(IndexError, match="no group 3: there are 3 groups"):
        groups(10, 4).members(3)
