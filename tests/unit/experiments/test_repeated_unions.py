"""Set membership from the sizes of repeated unions: the attacks, and the bound on all of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from florist.cli.experiments import app
from florist.common.privacy.count_noise import CountNoise
from florist.experiments.repeated_unions import (
    HEADS,
    SizesPlan,
    as_rows,
    highest_auc,
    highest_tpr,
    likelihood_ratios,
    measure_sizes,
    overlaps,
    subset_scores,
)

if TYPE_CHECKING:
    from florist.experiments.repeated_unions import SizesRow

NOISE = CountNoise.for_guarantee(1.0, 1e-3)
ALWAYS = np.ones(1, dtype=np.bool_)


def by_unions(rows: list[SizesRow]) -> dict[int, SizesRow]:
    return {row.unions: row for row in rows}


def test_exact_counts_reveal_a_target_in_two_unions() -> None:
    included = np.array([[True], [False]])
    for is_member in (False, True):
        random = np.random.default_rng(0)
        observed = overlaps(np.array([is_member]), included, 100, None, random)
        assert observed.tolist() == [100 + is_member, 100]
        assert subset_scores(observed, included, None) == pytest.approx(
            [float(is_member)], abs=1e-3
        )


def test_subsets_reveal_as_many_targets_as_there_are_unions() -> None:
    random = np.random.default_rng(1)
    members, included = random.random(12) < 0.5, random.random((16, 12)) < 0.5
    observed = overlaps(members, included, 1000, None, random)
    assert subset_scores(observed, included, None) == pytest.approx(1.0 * members, abs=0.05)


def test_noise_has_the_stated_distribution() -> None:
    included = np.zeros((200_000, 1), dtype=np.bool_)
    drawn = overlaps(ALWAYS, included, 0, NOISE, np.random.default_rng(0))
    for value in range(NOISE.pool_size + 1):
        assert (drawn == value).mean() == pytest.approx(NOISE.probability(value), abs=0.004)


def test_the_likelihood_ratio_is_that_of_the_draws() -> None:
    for draw in range(NOISE.pool_size + 2):
        found = likelihood_ratios(np.array([100 + draw]), ALWAYS, 100, NOISE)
        given_member, without = NOISE.probability(draw - 1), NOISE.probability(draw)
        if given_member and without:
            assert found == pytest.approx(math.log(given_member / without))
            assert abs(found) <= 1.0 + 1e-9  # epsilon
        else:  # only one of the two can be
            assert abs(found) > 1000
            assert (found > 0) == (without == 0)
    assert likelihood_ratios(np.array([101]), ALWAYS, 100, None) > 0
    assert likelihood_ratios(np.array([100]), ALWAYS, 100, None) < 0


@given(st.floats(0.01, 8), st.floats(0, 0.3))
def test_the_highest_auc_is_the_area_under_the_highest_rates(epsilon: float, delta: float) -> None:
    rates = np.linspace(0, 1, 1001)
    curve = [highest_tpr(epsilon, delta, rate) for rate in rates]
    assert highest_auc(epsilon, delta) == pytest.approx(np.trapezoid(curve, rates), abs=2e-3)


def test_the_bound_is_reached_by_randomised_response_and_never_exceeded_by_noise() -> None:
    """Over all orders of draws, in closed form: no test of one union does better."""
    without = np.array([NOISE.probability(z) for z in range(NOISE.pool_size + 1)] + [0.0])
    member = np.concatenate([[0.0], without[:-1]])
    wins = sum(
        member[high] * (without[:high].sum() + without[high] / 2) for high in range(len(member))
    )
    assert 0.6 < wins <= highest_auc(1.0, 1e-3)
    assert highest_auc(0.0, 0.0) == 0.5
    assert highest_tpr(0.0, 0.0) == pytest.approx(0.01)


def test_private_counts_leak_less_and_within_the_bound() -> None:
    found = by_unions(measure_sizes(SizesPlan(unions=(1, 2, 8), targets=2, people=2000)))
    assert found[1].exact.auc.value == 0.5  # one union does not show a difference
    assert found[8].exact.auc.value > 0.99
    for row in found.values():
        assert row.private_informed.auc.low <= row.highest_auc
        assert row.private_informed.finds_real[0.01].low <= row.highest_tpr
        assert row.private.auc.value <= row.private_informed.auc.high
    assert found[1].private_informed.auc.low > 0.65  # epsilon 1 hides one person only so far
    assert found[8].private.auc.value < found[8].exact.auc.value - 0.1


def test_less_epsilon_leaks_less() -> None:
    small = by_unions(measure_sizes(SizesPlan(epsilon=0.05, unions=(4,), people=2000)))[4]
    assert small.private_informed.auc.value < 0.6
    assert small.exact.auc.value > 0.7


def test_the_same_plan_gives_the_same_rows() -> None:
    plan = SizesPlan(unions=(2,), people=400)
    assert as_rows(measure_sizes(plan)) == as_rows(measure_sizes(plan))


def test_the_command_prints_a_table() -> None:
    result = CliRunner().invoke(app, ["sizes", "--unions", "2", "--epsilon", "0.5"])
    assert result.exit_code == 0
    assert "exact counts" in result.output
    assert len(HEADS) == len(as_rows(measure_sizes(SizesPlan(unions=(1,), people=100)))[0])
