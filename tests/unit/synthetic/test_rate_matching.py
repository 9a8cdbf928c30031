"""Predictions for synthetic labels have the rates of the party's own labels."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.synthetic.rate_matching import with_rates


def predictions(rows: int, classes: int, *, spread: float, shift: float, seed: int) -> torch.Tensor:
    """Return random predictions whose logits of the last class are shifted."""
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    logits[:, -1] += shift
    probabilities = logits.softmax(1)
    return probabilities[:, 1] if classes == 2 else probabilities


def halves(rows: int) -> torch.Tensor:
    return torch.arange(rows) % 2 == 0


def slowly_matched(own: list[float], rate: float) -> float:
    """Return the odds factor by bisection for which the mean prediction is the rate."""
    low, high = 1e-9, 1e9
    for _ in range(200):
        factor = (low * high) ** 0.5
        mean = sum(p * factor / (p * factor + 1 - p) for p in own) / len(own)
        low, high = (factor, high) if mean < rate else (low, factor)
    return low


@pytest.mark.parametrize("shift", [-3.0, 0.0, 2.0])
@pytest.mark.parametrize("rate", [0.5, 0.25, 0.01])
def test_many_rows_are_corrected_as_by_bisection(rate: float, shift: float) -> None:
    guessed = predictions(20_000, 2, spread=0.5, shift=shift, seed=1)
    own = halves(20_000)
    found = with_rates(guessed, own, (1 - rate, rate), ~own)
    factor = slowly_matched(guessed[own].tolist(), rate)
    odds = guessed[~own] / (1 - guessed[~own]) * factor
    torch.testing.assert_close(found, odds / (1 + odds), rtol=0.01, atol=0)
    assert float(found.mean()) == pytest.approx(rate, rel=0.03)


@pytest.mark.parametrize("classes", [3, 20])
def test_each_class_gets_its_rate(classes: int) -> None:
    guessed = predictions(20_000, classes, spread=0.5, shift=1.5, seed=2)
    own = halves(20_000)
    rates = torch.arange(1, classes + 1, dtype=torch.float64)
    rates /= rates.sum()
    found = with_rates(guessed, own, tuple(rates.tolist()), ~own)
    torch.testing.assert_close(found.sum(1), torch.ones(len(found), dtype=torch.float64))
    torch.testing.assert_close(found.mean(0), rates, rtol=0.05, atol=0)


def test_predictions_with_the_right_rates_stay() -> None:
    guessed = predictions(2000, 2, spread=1.0, shift=-2.0, seed=3)
    rate = float(guessed.mean())
    everyone = torch.ones(2000, dtype=torch.bool)
    found = with_rates(guessed, everyone, (1 - rate, rate), everyone)
    torch.testing.assert_close(found, guessed, rtol=1e-5, atol=0)


@pytest.mark.parametrize("rows", [1, 2, 8, 32])
def test_few_rows_do_not_shift_the_rates_on_average(rows: int) -> None:
    """A model that needs no correction, with small micro-batches: labels stay as frequent."""
    guessed = predictions(40_000, 2, spread=1.0, shift=-4.0, seed=4)
    rate = float(guessed.mean())
    own = halves(2 * rows)
    parts = guessed.split(2 * rows)[: 2000 // rows + 500]
    before = torch.cat([part[~own[: len(part)]] for part in parts])
    found = torch.cat([with_rates(part, own, (1 - rate, rate), ~own) for part in parts])
    assert float(found.mean()) == pytest.approx(float(before.mean()), rel=0.15)


@given(
    classes=st.integers(2, 6),
    rows=st.integers(1, 40),
    shift=st.floats(-40, 40),
    seed=st.integers(0, 1000),
    missing_class=st.booleans(),
    data=st.data(),
)
@settings(deadline=None)
def test_corrected_predictions_are_distributions_and_keep_the_order(
    classes: int,
    rows: int,
    shift: float,
    seed: int,
    missing_class: bool,  # noqa: FBT001
    data: st.DataObject,
) -> None:
    guessed = predictions(rows, classes, spread=3.0, shift=shift, seed=seed)
    own = torch.tensor(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
    rates = [0.0 if missing_class else 1.0, *[1.0] * (classes - 1)]
    everyone = torch.ones(rows, dtype=torch.bool)
    found = with_rates(guessed, own, tuple(r / sum(rates) for r in rates), everyone)
    assert found.shape == guessed.shape
    assert found.isfinite().all()
    assert (found >= 0).all()
    assert (found <= 1).all()
    if classes == 2:
        order = guessed.argsort()
        assert (found[order].diff() >= -1e-9).all()
    else:
        torch.testing.assert_close(found.sum(1), torch.ones(rows, dtype=torch.float64))
    if not own.any():
        torch.testing.assert_close(found, guessed)


def test_a_class_that_nobody_has_is_not_drawn() -> None:
    """A synthetic label of a class without real labels would give itself away."""
    guessed = predictions(200, 3, spread=1.0, shift=0.0, seed=5)
    own = halves(200)
    found = with_rates(guessed, own, (0.5, 0.5, 0.0), ~own)
    assert found[:, 2].max() == 0
