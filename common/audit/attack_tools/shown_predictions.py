"""The labels and the model's own predictions that gradients show, for two classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit, logit

from florist.common.audit.attack_tools.embedding_axes import main_axes, standardised_window
from florist.common.audit.attack_tools.inferred_labels import inferred_labels
from florist.common.audit.attack_tools.pass_windows import pass_windows
from florist.common.audit.view import lengths

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from florist.common.audit.view import Floats, PassiveStep, PassiveView, Ranks

    Flags = npt.NDArray[np.bool_]

#: Windows of a pass within which the scale of gradients is taken to be constant, and their rows.
_WINDOWS, _LEAST_ROWS = 50, 500
#: The ridge of the regression of predictions on embeddings, as a fraction of the rows.
_RIDGE = 0.005
#: Predictions are between this and one minus this.
_LEAST = 0.005


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ShownPredictions:
    """Rows of a window: whether the label is the rarer one, and the model's probability of that."""

    ranks: Ranks
    labels: Flags
    probabilities: Floats
    #: The embeddings that the attacker sent, standardised in the window.
    embeddings: Floats


def shown_predictions(view: PassiveView, chosen: Flags) -> Iterator[ShownPredictions]:
    """Yield what gradients show of the chosen UIDs, window by window.

    Probabilities are shifted such that their mean is the rate of the labels in the window, since
    `label-random-pred` draws labels with the base rate.

    Args:
        view: what the passive party saw.
        chosen: for each UID of the union, whether to include it.
    """
    labels = {id(step): found for step, (_, found) in _labelled(view)}
    for steps in pass_windows(view, _WINDOWS, _LEAST_ROWS):
        ranks = np.concatenate([step.ranks for step in steps])
        rarer = np.concatenate([labels[id(step)] for step in steps])
        mine = chosen[ranks]
        if not mine.any():
            continue
        sent = standardised_window(steps)
        found = _probabilities(steps, rarer, sent)[mine]
        matched = _with_rate(found, float(rarer[mine].mean()))
        yield ShownPredictions(ranks[mine], rarer[mine], matched, sent[mine])


def _labelled(view: PassiveView) -> Iterator[tuple[PassiveStep, tuple[Ranks, Flags]]]:
    yield from zip(view.steps, inferred_labels(view), strict=True)


def _probabilities(steps: Sequence[PassiveStep], rarer: Flags, sent: Floats) -> Floats:
    """Return the model's probability of the rarer label."""
    if steps[0].logit_columns == 1:
        error = np.concatenate(
            [
                np.abs(step.gradients[:, -1].astype(np.float64))
                * (step.batch_size or len(step.ranks))
                for step in steps
            ]
        )
        return np.clip(np.where(rarer, 1 - error, error), _LEAST, 1 - _LEAST)
    return _smoothed(steps, rarer, sent)


def _smoothed(steps: Sequence[PassiveStep], rarer: Flags, sent: Floats) -> Floats:
    """Return probabilities by the length of gradients, smoothed by the own embeddings.

    The length of a gradient is |p - y| times a factor that differs a little from row to row. If y
    is drawn with probability p, the mean of |p - y| is that of 2 p (1 - p), which gives the mean
    factor. The regression of the log odds on the embeddings, from which the model predicts, removes
    most of the differences.
    """
    norms = np.concatenate([lengths(step.gradients) for step in steps])
    scale = 2 * (norms**2).mean() / norms.mean() if norms.any() else 1.0
    error = np.clip(norms / scale, 0.01, 0.99)
    odds = logit(np.where(rarer, 1 - error, error))
    axes = main_axes(sent, steps[0].logit_columns)
    inputs = np.column_stack([axes, np.ones(len(axes))])
    ridge = _RIDGE * len(axes) * np.eye(inputs.shape[1])
    ridge[-1, -1] = 0
    weights = np.linalg.solve(inputs.T @ inputs + ridge, inputs.T @ odds)
    smooth: Floats = expit(inputs @ weights)
    return np.clip(smooth, _LEAST, 1 - _LEAST)


def _with_rate(probabilities: Floats, rate: float) -> Floats:
    """Shift the log odds such that the mean probability is `rate`."""
    if not 0 < rate < 1:
        return probabilities
    odds: Floats = logit(probabilities)
    low, high = -20.0, 20.0  # the mean rises with the shift
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if expit(odds + middle).mean() < rate else (low, middle)
    found: Floats = expit(odds + low)
    return np.clip(found, _LEAST, 1 - _LEAST)
