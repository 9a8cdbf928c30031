"""The leak that useful features cause, whatever the feature strategy: docs/concepts/privacy.md.

Useful features depend on the label; a stand-in, drawn without knowing the label, does not. So the
better the model, the better the active party can distinguish real features by its labels alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from florist.common.audit.statistics import evaluate

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.audit.statistics import AttackResult


def unavoidable_leak(probabilities: npt.NDArray[np.float64]) -> AttackResult:
    """Return how well the best score of label and prediction does, given a calibrated model.

    The score is log P(y|x) / P(y). Labels of real people are drawn from the prediction, labels of
    stand-ins from the overall rate. A model that memorises its people leaks more than this.

    `probabilities` are P(y=1) for people that the model did not learn from.
    """
    rate = probabilities.mean()
    uniforms = np.random.default_rng(0).random((2, len(probabilities)))
    labels = np.concatenate([uniforms[0] < probabilities, uniforms[1] < rate])
    twice = np.tile(probabilities, 2)
    given = np.where(labels, twice / rate, (1 - twice) / (1 - rate))
    is_real = np.arange(len(twice)) < len(probabilities)
    scores = np.log(np.maximum(given, np.finfo(np.float64).tiny))
    return evaluate("label-likelihood", scores, is_real, samples=200)


def test_two_kinds_of_predictions_by_hand() -> None:
    """Half of the people have 0.9, half 0.1: a real label fits in 90% of all cases, any in 50%."""
    result = unavoidable_leak(np.repeat([0.1, 0.9], 20_000))
    assert result.real == result.synthetic == 40_000
    assert result.auc.value == pytest.approx(0.5 + (0.9 - 0.5) / 2, abs=0.01)
    # Rows that fit are real with odds 9 : 5.
    assert result.finds_real[0.01].value == pytest.approx(0.01 * 0.9 / 0.5, abs=0.002)
    assert result.finds_synthetic[0.01].value == pytest.approx(0.01 * 0.5 / 0.1, abs=0.005)


def test_a_model_without_skill_leaks_nothing() -> None:
    assert unavoidable_leak(np.full(5000, 0.25)).auc.value == pytest.approx(0.5, abs=1e-9)


def test_a_better_model_leaks_more() -> None:
    logits = np.random.default_rng(0).normal(size=20_000)
    found = [unavoidable_leak(1 / (1 + np.exp(1.3 - s * logits))).auc.value for s in (0.5, 1, 2)]
    assert found == pytest.approx([0.555, 0.60, 0.65], abs=0.02)
