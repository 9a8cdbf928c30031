"""The labels and predictions that gradients show, against the loss that they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.synthetic.calibration import Calibration, Mixture, model_output
from florist.common.training.shown_labels import shown_labels, shown_predictions

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.settings.agreement import CalibrationTime

ROWS, WIDTH = 40, 5


def one_hot(labels: npt.NDArray[np.int64], classes: int) -> torch.Tensor:
    """Return targets as the loss takes them."""
    truth = torch.from_numpy(labels)
    return truth.float() if classes == 2 else torch.eye(classes)[truth]


def gradients_of(
    logits: torch.Tensor, targets: torch.Tensor, calibration: Calibration
) -> torch.Tensor:
    """Return gradients as they are sent: of other columns, then of the logits."""
    leaf = logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(calibration.loss(leaf, targets, ROWS), leaf)
    others = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(0))
    return torch.cat((others, gradient.reshape(ROWS, -1)), 1)


def mixed(when: CalibrationTime, classes: int) -> Calibration:
    return Calibration(when, Mixture(0.4, tuple([0.6 / classes] * classes)))


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("when", ["none", "train", "test"])
@given(seed=st.integers(0, 2**32), scale=st.sampled_from([0.1, 1.0, 6.0]))
@settings(deadline=None, max_examples=30)
def test_every_label_is_shown(classes: int, when: CalibrationTime, seed: int, scale: float) -> None:
    """Whatever the model predicts, and whenever predictions are calibrated."""
    generator = torch.Generator().manual_seed(seed)
    shape = (ROWS,) if classes == 2 else (ROWS, classes)
    logits = scale * torch.randn(shape, generator=generator)
    labels = np.random.default_rng(seed).integers(0, classes, ROWS)
    gradients = gradients_of(logits, one_hot(labels, classes), mixed(when, classes))
    shown = shown_labels(gradients, classes)
    output = model_output(logits.double())
    predicted = torch.stack((1 - output, output), 1) if classes == 2 else output
    # The gradient is rounded to zero only where the model is certain of the label.
    is_certain = predicted[torch.arange(ROWS), torch.from_numpy(labels)] > 1 - 1e-6
    assert set(np.flatnonzero(shown != labels)) <= set(np.flatnonzero(is_certain))
    assert set(shown[shown != labels].tolist()) <= {-1}


@pytest.mark.parametrize("classes", [2, 4])
def test_a_gradient_of_zero_shows_no_label(classes: int) -> None:
    gradients = torch.ones(3, WIDTH + 4)
    gradients[1:, -(1 if classes == 2 else 4) :] = 0
    assert shown_labels(gradients, classes)[1:].tolist() == [-1, -1]
    labels = shown_labels(gradients[1:], classes)
    even = shown_predictions(gradients[1:], labels, classes, batch_size=10)
    assert even == pytest.approx(np.full((2, classes), 1 / classes))


def test_labels_by_hand() -> None:
    two = torch.tensor([[9.0, -0.1], [-9.0, 0.1], [9.0, 0.0], [0.0, -1e-30]])
    assert shown_labels(two, 2).tolist() == [1, 0, -1, 1]
    three = torch.tensor([[-9.0, 0.1, -0.3, 0.2], [9.0, -0.2, 0.1, 0.1], [-1.0, 0.0, 0.0, 0.0]])
    assert shown_labels(three, 3).tolist() == [1, 0, -1]


def test_a_mean_of_labels_counts_as_the_class_that_should_rise_most() -> None:
    targets = torch.tensor([[0.2, 0.8, 0.0], [0.6, 0.0, 0.4]])
    logits = torch.zeros(2, 3, requires_grad=True)
    loss = Calibration("none", Mixture.identity(3)).loss(logits, targets)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert shown_labels(gradient, 3).tolist() == [1, 0]


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("when", ["none", "test"])
def test_predictions_are_shown_exactly_unless_the_loss_is_calibrated(
    classes: int, when: CalibrationTime
) -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn((ROWS,) if classes == 2 else (ROWS, classes), generator=generator)
    labels = np.arange(ROWS) % classes
    gradients = gradients_of(logits, one_hot(labels, classes), mixed(when, classes))
    output = model_output(logits)
    expected = torch.stack((1 - output, output), 1) if classes == 2 else output
    found = shown_predictions(gradients, labels, classes, batch_size=ROWS)
    assert found == pytest.approx(expected.numpy(), abs=1e-5)


@pytest.mark.parametrize("classes", [2, 5])
@given(seed=st.integers(0, 2**32), scale=st.sampled_from([1e-3, 1.0, 1e3]))
def test_predictions_are_probabilities_for_any_gradient(
    classes: int, seed: int, scale: float
) -> None:
    """A peer may send anything."""
    gradients = scale * torch.randn(
        ROWS, WIDTH + classes, generator=torch.Generator().manual_seed(seed)
    )
    gradients[:3] = 0
    labels = shown_labels(gradients, classes)
    found = shown_predictions(gradients, labels, classes, batch_size=ROWS)
    assert found.shape == (ROWS, classes)
    assert found.min() >= 0
    assert found.sum(1) == pytest.approx(np.ones(ROWS))
