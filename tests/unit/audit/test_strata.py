"""Strata: who is in them, the worst of them, and that chance alone seldom looks like a leak."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

from florist.common.audit.statistics import evaluate
from florist.common.audit.strata import (
    LEAST,
    LEAST_FOR_RATES,
    Stratum,
    StratumResult,
    corrected_confidence,
    evaluate_strata,
    judged_strata,
    strata_of,
    worst_rates,
    worst_stratum,
)
from tests.unit.audit.views import BATCH, active, half_real, own_features, passive, with_steps

if TYPE_CHECKING:
    from florist.common.audit.view import ActiveView, PassiveView

Array = npt.NDArray[Any]

SIZE, OWN = 5000, 4000


def members(view: PassiveView | ActiveView, kind: str, **how: bool) -> dict[str, Array]:
    return {s.name: s.members for s in strata_of(view, **how) if s.kind == kind}


def seen_in(view: ActiveView, first: int, last: int) -> Array:
    """Return whether each UID is in these steps, slowly."""
    ranks = {int(rank) for step in view.steps[first:last] for rank in step.ranks}
    return np.array([int(rank) in ranks for rank in view.uids])


def test_windows_are_the_first_batches_and_parts_of_the_pass() -> None:
    view = active(np.ones((2, SIZE, 2)), uids=np.arange(OWN))
    found = members(view, "window")
    assert list(found)[:4] == ["batch 0", "batches 0-4", "batches 5-9", "batches 10-19"]
    assert np.array_equal(found["batches 5-9"], seen_in(view, 5, 10))
    parts = [flags for name, flags in found.items() if name.startswith("part ")]
    assert len(parts) == 10
    # By the first epoch; the second one is in another order.
    assert np.array_equal(parts[2], seen_in(view, 2 * 5, 3 * 5))
    assert (np.sum(parts, axis=0) == 1).all()
    assert not any(name.startswith("batch") for name in members(view, "window", early=False))


def test_labels_are_those_that_the_attacker_knows() -> None:
    labels = np.random.default_rng(0).integers(0, 3, SIZE).astype(float)
    labels[:7] = np.nan
    found = members(active(np.ones((1, SIZE, 2)), labels, np.arange(OWN)), "label")
    assert set(found) == {"label 0", "label 1", "label 2"}
    for label in (0, 1, 2):
        assert np.array_equal(found[f"label {label}"], labels[:OWN] == label)


def test_the_passive_party_infers_labels() -> None:
    labels = np.random.default_rng(0).random(SIZE) < 0.2
    gradients = np.where(labels, -1.0, 1.0)[None, :, None] * np.array([0.5, 2.0])
    found = members(passive(gradients, uids=np.arange(OWN)), "label")
    assert np.array_equal(found["label 1"], labels[:OWN])
    assert np.array_equal(found["label 0"], ~labels[:OWN])


def test_clusters_are_people_with_similar_features() -> None:
    group = np.arange(OWN) % 4
    categories = np.stack([group, group // 2, group % 2], axis=1)
    view = active(
        np.ones((1, SIZE, 2)),
        uids=np.arange(OWN),
        features=own_features(np.zeros((OWN, 0)), categories),
    )
    found = members(view, "features")
    assert (np.sum(list(found.values()), axis=0) == 1).all()
    for flags in found.values():  # no cluster has people of two groups
        assert len(np.unique(group[flags])) <= 1
    assert not members(replace(view, features=None), "features")


def halves(truth: Array) -> list[Stratum]:
    first = np.arange(len(truth)) < len(truth) // 2
    return [Stratum("label", "first", first), Stratum("label", "second", ~first)]


def test_strata_need_enough_uids_of_each_kind() -> None:
    truth = np.arange(1000) >= LEAST - 1  # too few synthetic ones in the first half
    truth[-LEAST:] = False
    assert [s.name for s in judged_strata(halves(truth), truth)] == ["second"]
    everyone = Stratum("label", "everyone", np.ones(1000, dtype=np.bool_))
    assert judged_strata([everyone], half_real(1000)) == []


def test_a_leak_in_one_stratum_is_the_worst() -> None:
    truth, random = half_real(SIZE), np.random.default_rng(1)
    strata = halves(truth)
    scores = random.normal(size=SIZE) + np.where(strata[1].members, 1.0 * truth, 0.0)
    found = evaluate_strata("any", scores, truth, strata, confidence=0.999)
    worst = worst_stratum(found)
    assert worst is not None
    assert worst.stratum == "second"
    assert worst.result.folded_auc.low > 0.6
    assert worst_rates(found, 0.01) == worst
    assert evaluate("any", scores, truth).folded_auc.value < worst.result.folded_auc.low
    inverted = worst_stratum(evaluate_strata("any", -scores, truth, strata, confidence=0.999))
    assert inverted is not None
    assert inverted.result.folded_auc.value == pytest.approx(worst.result.folded_auc.value)


def test_the_worst_stratum_has_the_highest_lower_end() -> None:
    """A small group has a high AUC by chance."""
    random = np.random.default_rng(1)

    def result(name: str, size: int, shift: float) -> StratumResult:
        truth = half_real(size)
        scores = random.normal(size=size) + shift * truth
        return StratumResult("label", name, evaluate("any", scores, truth, confidence=0.999))

    small, large = result("small", 60, 0.6), result("large", 6000, 0.3)
    assert small.result.folded_auc.value > large.result.folded_auc.value
    assert worst_stratum([small, large]) == large
    assert worst_stratum([]) is None
    assert worst_rates([small], 0.01) is None
    assert not small.has_rates
    assert large.has_rates
    assert large.result.real >= LEAST_FOR_RATES


def test_unscored_uids_do_not_count() -> None:
    truth = half_real(SIZE)
    scores = np.random.default_rng(1).normal(size=SIZE)
    scores[SIZE // 2 + 100 :] = np.nan
    found = evaluate_strata("any", scores, truth, halves(truth), confidence=0.999)
    assert [each.stratum for each in found] == ["first"]


@pytest.mark.parametrize("comparisons", [1, 20, 3000])
def test_corrected_intervals_hold_together(comparisons: int) -> None:
    each = corrected_confidence(0.95, comparisons)
    assert comparisons * (1 - each) == pytest.approx(0.05)


def test_the_worst_of_many_strata_is_seldom_above_chance_without_a_leak() -> None:
    """In at most 5% of all views; without the correction in a quarter of them."""
    random = np.random.default_rng(3)
    group = np.arange(3000) % 6
    strata = [Stratum("features", str(n), group == n) for n in range(6)]
    alarms, uncorrected = 0, 0
    for _ in range(40):
        truth, scores = random.random(3000) < 0.5, random.normal(size=3000)
        for level, confidence in enumerate((0.9501, corrected_confidence(0.95, 6))):
            worst = worst_stratum(evaluate_strata("any", scores, truth, strata, confidence))
            assert worst is not None
            if level:
                alarms += worst.result.folded_auc.low > 0.5
            else:
                uncorrected += worst.result.folded_auc.low > 0.5
    assert alarms <= 7  # 2 are expected at most; more than 7 once in 1,000 times
    assert uncorrected > 3


def test_short_runs_have_no_early_windows() -> None:
    view = active(np.ones((1, 20 * BATCH, 2)))
    assert not any(name.startswith("batch") for name in members(view, "window"))
    empty = with_steps(view, [])
    assert not members(empty, "window")
    assert not members(empty, "label")
