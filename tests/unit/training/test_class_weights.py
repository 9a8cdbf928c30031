"""Class weights: the loss corrects for them, and whoever receives gradients can undo them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.core.errors import ConfigurationError
from florist.common.data.features import Features
from florist.common.settings.agreement import TrainingAgreement
from florist.common.settings.training import Model, Optimiser
from florist.common.synthetic.calibration import Calibration, Mixture, cross_entropies
from florist.common.training.class_weights import without_weights
from florist.common.training.shown_labels import shown_labels, shown_predictions
from florist.experiments.simulation import Holdings, SimulationSettings, World, observe
from tests.support.settings import parse, problem, with_value

ROWS = 64
Weights = tuple[float, float]


def gradients(logits: torch.Tensor, labels: torch.Tensor, weights: Weights | None) -> torch.Tensor:
    """Gradients as they are sent: two other columns, which are multiples of that of the logit."""
    leaf = logits.clone().requires_grad_()
    loss = Calibration("none", Mixture.identity(), weights).loss(leaf, labels, len(labels))
    (found,) = torch.autograd.grad(loss, leaf)
    return torch.stack((3 * found, -found, found), 1)


@pytest.mark.parametrize("weights", [(0.1, 1.9), (1.5, 0.5)])
@pytest.mark.parametrize("shift", [Mixture.identity(), Mixture(0.4, (0.5, 0.1))])
@given(truth=st.floats(0.001, 0.999))
@settings(deadline=None, max_examples=40)
def test_the_expected_loss_is_smallest_at_the_truth(
    weights: Weights, shift: Mixture, truth: float
) -> None:
    """Whatever the weights and the shift by synthetic data: the loss is a proper one."""
    observed = shift.a * truth + shift.b[1]  # the rate of label 1 in training
    logits = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    best = math.log(truth / (1 - truth))
    logits = torch.cat((logits, torch.tensor([best], dtype=torch.float64)))
    ones, zeros = torch.ones_like(logits), torch.zeros_like(logits)
    expected = observed * cross_entropies(logits, ones, shift, weights) + (
        1 - observed
    ) * cross_entropies(logits, zeros, shift, weights)
    assert expected[-1] <= expected.min() + 1e-12
    assert float(logits[expected[:-1].argmin()]) == pytest.approx(best, abs=0.0041)


def test_equal_weights_change_nothing() -> None:
    logits, labels = torch.randn(ROWS, dtype=torch.float64), (torch.arange(ROWS) % 2).double()
    for shift in (Mixture.identity(), Mixture(0.6, (0.3, 0.1))):
        plain = cross_entropies(logits, labels, shift)
        assert torch.allclose(cross_entropies(logits, labels, shift, (1.0, 1.0)), plain)
    assert TrainingAgreement(class_weights=[3, 3]).loss_weights is None
    assert TrainingAgreement(class_weights=[1, 3]).loss_weights == (0.5, 1.5)


def test_by_hand() -> None:
    """The gradient is w_t (q - t), where q has the odds of p times w_1 / w_0."""
    logits, labels = torch.tensor([0.0, 0.0]), torch.tensor([0.0, 1.0])
    found = gradients(logits, labels, (0.5, 1.5))[:, -1] * 2
    assert found.tolist() == pytest.approx([0.5 * 0.75, 1.5 * (0.75 - 1)])


@given(seed=st.integers(0, 2**32), ratio=st.sampled_from([0.01, 0.5, 3.0, 200.0]))
@settings(deadline=None, max_examples=40)
def test_gradients_show_no_more_and_no_less(seed: int, ratio: float) -> None:
    """Weighted gradients show each label, and those without weights can be computed from them."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(ROWS, generator=generator, dtype=torch.float64)
    labels = (torch.rand(ROWS, generator=generator) < 0.3).double()
    weights = 2 / (1 + ratio), 2 * ratio / (1 + ratio)
    sent = gradients(logits, labels, weights)
    assert shown_labels(sent, 2).tolist() == labels.tolist()
    plain = gradients(logits, labels, None)
    undone = without_weights(sent.float().numpy(), weights, ROWS)
    assert undone == pytest.approx(plain.numpy(), rel=2e-3, abs=1e-6)
    shown = shown_predictions(sent.float(), shown_labels(sent, 2), 2, ROWS, weights)
    assert shown[:, 1] == pytest.approx(logits.sigmoid().numpy(), abs=1e-3)


def test_a_gradient_of_zero_stays_zero() -> None:
    zero = np.zeros((2, 3), dtype=np.float32)
    assert without_weights(zero, (0.5, 1.5), 10).tolist() == zero.tolist()
    assert without_weights(zero, None, 10) is zero


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"class_weights": [1]}, "must list two numbers"),
        ({"class_weights": [1, 0]}, "must be above 0"),
        ({"class_weights": [1, 2], "classes": 3}, "only supported with two classes"),
        (
            {"class_weights": [1, 2], "wide": False, "cut_width": 8, "stand_ins": "plain"},
            "need wide: true",
        ),
    ],
)
def test_unusable_weights_are_named(values: dict[str, object], message: str) -> None:
    text = problem(with_value("agreement.training", values))
    assert "agreement.training" in text
    assert f"class_weights: {message}" in text


def test_weights_are_agreed() -> None:
    agreement = parse(with_value("agreement.training", {"class_weights": [1, "2e1"]})).agreement
    assert agreement.training.class_weights == [1.0, 20.0]
    with pytest.raises(ConfigurationError):
        parse(with_value("training", {"class_weights": [1, 2]}))


# --- on people whose true probabilities are known ---


def make_world(people: int, seed: int) -> tuple[World, np.ndarray]:
    """People of whom one in twelve has label 1, and the true probability of each."""
    random = np.random.default_rng(seed)
    numbers = random.random((people, 3), dtype=np.float32)
    categories = random.integers(0, 4, (people, 1)).astype(np.int32)
    logits = -4.2 + 3 * numbers[:, 0] + 0.6 * (categories[:, 0] == 2)
    truth = 1 / (1 + np.exp(-logits))
    labels = (random.random(people) < truth).astype(np.int64)
    return World(Features(numbers, categories), labels, (4,)), truth


EVERYONE = Holdings(np.arange(6000), np.arange(6000))
HALF = Holdings(np.arange(4000), np.arange(2000, 6000), dummies=50)


@pytest.mark.parametrize(
    ("holdings", "largest_gap"), [(EVERYONE, 0.03), (HALF, 0.07)], ids=["all shared", "half shared"]
)
def test_predictions_of_a_run_stay_calibrated(holdings: Holdings, largest_gap: float) -> None:
    """Without the correction, a run with these weights would predict a rate near one half."""
    world, _ = make_world(6000, seed=1)
    test, truth = make_world(4000, seed=2)
    agreement = TrainingAgreement(
        epochs=2, batch_size=100, micro_batch=100, class_weights=[1, 12], test_table=True
    )
    how = SimulationSettings(agreement, Model(hidden=[16, 8]), Optimiser(learning_rate=2e-2), 3)
    observed = observe(world, holdings, test, how)
    predicted = observed.predictions[-1]
    assert predicted.mean() == pytest.approx(truth.mean(), abs=0.02)
    fifths = np.array_split(np.argsort(predicted), 5)
    gaps = [abs(float(predicted[rows].mean() - truth[rows].mean())) for rows in fifths]
    assert max(gaps) < largest_gap
    assert np.corrcoef(predicted, truth)[0, 1] > 0.6
    # What an attacker sees has no trace of the weights: |p - t| is a probability.
    assert observed.seen is not None
    step = observed.seen.passive.steps[-1]
    errors = np.abs(step.gradients[:, -1]) * len(step.ranks)
    assert errors.max() <= 1 + 1e-3
