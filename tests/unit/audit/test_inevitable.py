"""What labels alone tell, on predictions whose leak can be computed."""

from __future__ import annotations

import numpy as np
import pytest

from florist.common.audit.inevitable import inevitable


def test_two_kinds_of_predictions_by_hand() -> None:
    """Half of the people have 0.9, half 0.1: a real label fits in 90% of all cases, any in 50%."""
    result = inevitable(np.repeat([0.1, 0.9], 20_000))
    assert result.real == result.synthetic == 40_000
    assert result.auc.value == pytest.approx(0.5 + (0.9 - 0.5) / 2, abs=0.01)
    # Those who fit are real with odds 9 : 5.
    assert result.finds_real[0.01].value == pytest.approx(0.01 * 0.9 / 0.5, abs=0.002)
    assert result.finds_synthetic[0.01].value == pytest.approx(0.01 * 0.5 / 0.1, abs=0.005)


def test_a_model_that_knows_nothing_tells_nothing() -> None:
    assert inevitable(np.full(5000, 0.25)).auc.value == pytest.approx(0.5, abs=1e-9)


def test_a_better_model_tells_more() -> None:
    logits = np.random.default_rng(0).normal(size=20_000)
    found = [inevitable(1 / (1 + np.exp(1.3 - s * logits))).auc.value for s in (0.5, 1, 2)]
    assert found == pytest.approx([0.555, 0.60, 0.65], abs=0.02)
