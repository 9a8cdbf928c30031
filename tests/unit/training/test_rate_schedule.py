"""The learning rate of each step."""

from __future__ import annotations

import pytest

from florist.common.settings.agreement import TrainingAgreement
from florist.common.settings.training import Optimiser
from florist.common.training.rate_schedule import WARM_UP, RateSchedule


@pytest.mark.parametrize("steps", [1, 2, 3, 40, 1000])
def test_the_rate_rises_and_then_falls_to_nearly_0(steps: int) -> None:
    schedule = RateSchedule(0.01, steps)
    rates = [schedule(step) for step in range(steps)]
    top = rates.index(max(rates))
    assert all(0 < rate <= 0.01 for rate in rates)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert top <= max(WARM_UP * steps, 1) + 1
    if steps >= 40:
        assert max(rates) == pytest.approx(0.01)
        assert rates[-1] < 0.001
        assert rates[0] < 0.01


def test_known_rates() -> None:
    schedule = RateSchedule(0.01, 100)
    found = [schedule(step) for step in (0, 4, 5, 52, 99)]
    expected = [0.01 / 6, 0.05 / 6, 0.01, 0.01 * 48 / 95, 0.01 / 95]
    assert found == pytest.approx(expected)


def test_a_constant_rate() -> None:
    schedule = RateSchedule(0.01, 100, "constant")
    assert {schedule(step) for step in range(100)} == {0.01}


def test_a_party_may_have_its_own_rate() -> None:
    agreement = TrainingAgreement(batch_size=10, learning_rate=0.5, epochs=3)
    assert RateSchedule.agreed(agreement, Optimiser(), 95) == RateSchedule(0.5, 30)
    own = Optimiser(learning_rate=0.25)
    assert RateSchedule.agreed(agreement, own, 95) == RateSchedule(0.25, 30)
