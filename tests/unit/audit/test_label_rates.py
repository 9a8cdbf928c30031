"""Labels whose rates differ between windows of the pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from florist.common.audit.attacks.label_rates import label_rates
from florist.common.audit.view import PassiveStep, PassiveView
from tests.unit.audit.views import auc_of, half_real, is_at_chance

Array = npt.NDArray[Any]

BATCH, STEPS = 100, 60
SIZE = BATCH * STEPS
REAL = 0.1


def view_of(rates: Array, is_real: Array, own: Array | None = None) -> PassiveView:
    """Return one epoch; the synthetic labels of each step have a rate of their own."""
    random = np.random.default_rng(5)
    steps = []
    for number, rate in enumerate(rates):
        ranks = np.arange(number * BATCH, (number + 1) * BATCH)
        labels = random.random(BATCH) < np.where(is_real[ranks], REAL, rate)
        gradients = (0.2 - labels)[:, None] * (1 + 0.1 * random.normal(size=(BATCH, 4)))
        rows = gradients.astype(np.float32)
        steps.append(PassiveStep(0, ranks, rows, rows))
    return PassiveView(SIZE, np.arange(SIZE) if own is None else own, steps)


def first_batches(rate: float, count: int) -> Array:
    return np.where(np.arange(STEPS) < count, rate, REAL)


def test_other_rates_in_the_first_batches_are_found_there() -> None:
    is_real = half_real(SIZE)
    scores = label_rates(view_of(first_batches(0.5, 10), is_real))
    early = slice(0, 10 * BATCH)
    assert auc_of(scores[early], is_real[early]) > 0.65
    assert auc_of(scores[2000:], is_real[2000:]) == pytest.approx(0.5, abs=0.04)


def test_a_rate_that_is_too_low_is_found_too() -> None:
    is_real = half_real(SIZE)
    own = np.arange(0, SIZE, 2)
    everyone_else = is_real | (np.arange(SIZE) % 2 == 1)
    scores = label_rates(view_of(np.zeros(STEPS), everyone_else, own))
    # All labels 1 are real: the rate of real labels is known from UIDs that the attacker lacks.
    assert auc_of(scores, is_real[own]) == pytest.approx(0.5 + REAL / 2, abs=0.02)


def test_equal_rates_tell_nothing() -> None:
    is_real = half_real(SIZE)
    assert is_at_chance(label_rates(view_of(np.full(STEPS, REAL), is_real)))


def test_without_both_labels_there_is_no_score() -> None:
    rows = np.ones((BATCH, 3), np.float32)
    view = PassiveView(BATCH, np.arange(BATCH), [PassiveStep(0, np.arange(BATCH), rows, rows)])
    assert np.isnan(label_rates(view)).all()
