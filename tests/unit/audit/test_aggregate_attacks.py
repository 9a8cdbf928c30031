"""Who is part of the label aggregate, where only its sums tell."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from florist.common.audit.attacks import PASSIVE_ATTACKS
from florist.common.audit.attacks.aggregate_boosting import aggregate_boosting
from florist.common.audit.attacks.aggregate_posterior import aggregate_posterior
from florist.common.label_aggregate.label_codes import LabelCodes
from tests.unit.audit.aggregates import OWN, planted_aggregate
from tests.unit.audit.views import auc_of, is_at_chance, with_steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.audit.view import Floats, PassiveView

    Score = Callable[[PassiveView], Floats]

BOTH = pytest.mark.parametrize("attack", [aggregate_posterior, aggregate_boosting])


@BOTH
def test_exact_sums_tell_who_is_shared(attack: Score) -> None:
    view, is_real = planted_aggregate(0.0)
    assert auc_of(attack(view), is_real) > 0.68


@BOTH
def test_noise_hides_who_is_shared(attack: Score) -> None:
    view, is_real = planted_aggregate(1000.0)
    assert auc_of(attack(view), is_real) == pytest.approx(0.5, abs=0.035)
    assert is_at_chance(attack(view))


def test_the_more_noise_the_less_is_found() -> None:
    found = []
    for noise in (0.0, 6.0, 20.0):
        view, is_real = planted_aggregate(noise)
        found.append(auc_of(aggregate_posterior(view), is_real))
    assert found[0] > found[1] + 0.03 > found[2] + 0.06


@pytest.mark.parametrize("positives", [0.1, 0.6, 0.9])
def test_any_frequency_of_class_1(positives: float) -> None:
    view, is_real = planted_aggregate(0.0, positives=positives)
    assert auc_of(aggregate_posterior(view), is_real) > 0.57


def test_log_odds_are_calibrated() -> None:
    """Among rows with the same log odds, that share of them is shared."""
    scores, truths = [], []
    for seed in range(4):
        view, is_real = planted_aggregate(3.0, seed=seed)
        scores.append(aggregate_posterior(view))
        truths.append(is_real)
    chance, truth = 1 / (1 + np.exp(-np.concatenate(scores))), np.concatenate(truths)
    for part in np.array_split(chance.argsort(), 5):
        assert truth[part].mean() == pytest.approx(chance[part].mean(), abs=0.06)


def test_a_label_that_changes_is_not_real() -> None:
    view, is_real = planted_aggregate(1000.0, epochs=3, redrawn=True)
    assert auc_of(aggregate_posterior(view), is_real) > 0.75


@BOTH
def test_rows_without_a_label_have_no_score(attack: Score) -> None:
    view, is_real = planted_aggregate(0.0)
    scores = attack(with_steps(view, view.steps[:15]))
    shown = np.isin(view.uids, np.concatenate([step.ranks for step in view.steps[:15]]))
    assert np.array_equal(np.isfinite(scores), shown)
    assert auc_of(scores, is_real) > 0.57


@BOTH
def test_the_same_view_has_the_same_scores(attack: Score) -> None:
    view, _ = planted_aggregate(2.0)
    assert np.array_equal(attack(view), attack(view))


@BOTH
def test_one_label_only(attack: Score) -> None:
    view, _ = planted_aggregate(2.0)
    steps = [replace(step, gradients=np.abs(step.gradients)) for step in view.steps]
    assert not np.isinf(attack(with_steps(view, steps))).any()


@pytest.mark.parametrize("name", ["aggregate-posterior", "aggregate-boosting"])
def test_reasons_to_skip(name: str) -> None:
    attack = PASSIVE_ATTACKS[name]
    view, _ = planted_aggregate(0.0)
    assert attack.reason_to_skip(view) is None
    assert view.aggregate is not None
    several = replace(view.aggregate, codes=LabelCodes(64, (20, 20)))
    reason = "needs a label aggregate of two classes"
    for other in (replace(view, aggregate=None), replace(view, aggregate=several)):
        assert attack.reason_to_skip(other) == reason
        assert np.isnan(attack.score(other)).all()
    unknown = replace(view, features=None)
    assert attack.reason_to_skip(unknown) == "needs features of the attacker's own"
    assert attack.score(unknown).shape == (OWN,)
