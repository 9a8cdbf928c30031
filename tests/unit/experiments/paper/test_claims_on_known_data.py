"""The paper's conclusions on a small data set with known truth: eight numbers and a label."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from florist.common.settings.training import Model
from florist.experiments.methods import METHODS
from florist.experiments.people import People
from florist.experiments.trial import Trial, TrialAudit, TrialResult, run_trial

ROWS, TRAINED = 6000, 4000
LABELS = ("majority", "minority", "random-pos", "random-pred", "neighbors")


@cache
def people() -> People:
    """A quarter is positive; the true probabilities have an AUC of about 0.85."""
    random = np.random.default_rng(1)
    numbers = random.standard_normal((ROWS, 8))
    logits = 2 * numbers @ np.tile([1, -1], 4) / np.sqrt(8) + numbers[:, 0] * numbers[:, 1] - 1.8
    labels = (random.random(ROWS) < 1 / (1 + np.exp(-logits))).astype(np.int64)
    columns = pa.table({f"x{place}": column for place, column in enumerate(numbers.T)})
    train, none, test = np.split(np.arange(ROWS), [TRAINED, TRAINED])
    return People("planted", columns, labels, train, none, test)


@cache
def tried(method: str, alpha: float, beta: float) -> TrialResult:
    trial = Trial(
        method=METHODS[method],
        alpha=alpha,
        beta=beta,
        seed=1,
        epochs=3,
        batch_size=128,
        learning_rate=3e-3,
        lacked_by_both="dummies",
        min_count=1,
        scaling="linear",
        model=Model(hidden=[64, 64]),
    )
    return run_trial(people(), trial, TrialAudit(attacks=[], samples=20))


def folded(result: TrialResult) -> float:
    """The paper's attack AUC, folded at 0.5."""
    (figure,) = result.values("paper_attack_auc")
    return max(figure.value, 1 - figure.value)


@pytest.mark.parametrize("method", ["fea-gaussian", "fea-random"])
def test_random_embeddings_are_detected(method: str) -> None:
    assert folded(tried(method, 0.25, 0)) > 0.7


@pytest.mark.parametrize("alpha", [0.25, 0.5])
def test_sampled_features_are_not_detected(alpha: float) -> None:
    assert folded(tried("fea-sampling", alpha, 0)) < 0.55


def test_half_of_each_kind_is_the_blind_spot_of_the_spectral_attack() -> None:
    """Two clusters of equal size are equally far from their common mean."""
    assert folded(tried("fea-gaussian", 0.5, 0)) < folded(tried("fea-gaussian", 0.25, 0)) - 0.2


@pytest.mark.parametrize(
    ("plain", "alpha", "beta"), [("label-majority", 0, 0.5), ("fea-sampling", 0.5, 0)]
)
@pytest.mark.parametrize("when", ["-tr", "-te"])
def test_calibration_cuts_the_error(plain: str, alpha: float, beta: float, when: str) -> None:
    before, after = (tried(name, alpha, beta).last("ace") for name in (plain, plain + when))
    assert after < 0.6 * before
    assert before > 0.08


def test_calibration_at_test_time_does_not_change_the_ranking() -> None:
    before, after = (tried(f"label-majority{when}", 0, 0.5).last("auc") for when in ("", "-te"))
    assert after == pytest.approx(before, abs=2e-3)


def test_label_minority_leaks_most_among_labels() -> None:
    found = {name: folded(tried(f"label-{name}", 0, 0.5)) for name in LABELS}
    minority = found.pop("minority")
    assert minority > max(found.values()) + 0.05


def test_label_random_pred_is_hard_to_detect() -> None:
    assert folded(tried("label-random-pred", 0, 0.5)) < 0.55
    assert folded(tried("label-majority", 0, 0.5)) > 0.55


def test_florist_loses_a_little_to_baseline_partial_at_a_half() -> None:
    florist, partial, full = (
        tried(*run).last("auc")
        for run in (
            ("florist-paper", 0.5, 0.5),
            ("baseline-partial", 0.5, 0.5),
            ("baseline-full", 0, 0),
        )
    )
    assert partial - 0.05 < florist < full
    assert partial < full
