"""Predictions for drawing synthetic labels, with the rates of the party's own labels.

In the first hundred steps the mean prediction of a model moves up and down, by half of a low base
rate and more. Labels drawn from such predictions are too frequent or too rare, and since the peer
can read labels off the gradients, it could tell them from real ones. Over its own rows the active
party knows the rates that the predictions should have, so it corrects each part of a batch by them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

#: Rounds of scaling each class. A round reduces the remaining difference by about the share of the
#: label's variance that the model explains.
_ROUNDS = 6
#: A correction is halved by this many own rows, plus this many if the standard deviation of the
#: predictions equals their mean. The mean of so many rows is then uncertain by about 30%, which is
#: how far a learning model is off.
_FEW_ROWS, _FEW_VARIED_ROWS = 5.0, 10.0


def with_rates(
    predictions: Tensor, is_own: Tensor, rates: tuple[float, ...], wanted: Tensor
) -> Tensor:
    """Return predictions for the rows `wanted`, corrected such that own rows have these rates.

    The odds of each class are multiplied by one number for all rows, so that the mean prediction
    over own rows is the rate of the class. If there are few own rows, or if their predictions
    differ a lot, the mean is uncertain and the correction smaller. Without own rows there is none.

    Args:
        predictions: (B,) P(y=1), or (B, classes).
        is_own: (B,) bool, the rows with a real label.
        rates: the frequency of each class among all own labels.
        wanted: (B,) bool, the rows to return.

    Returns:
        float64 on the CPU, in the shape of the predictions.
    """
    # On the CPU, since not every device supports float64.
    exact = predictions.detach().cpu().to(torch.float64)
    by_class = torch.stack((1 - exact, exact), 1) if exact.ndim == 1 else exact
    weights = _weights(by_class[is_own.cpu()], torch.tensor(rates, dtype=torch.float64))
    corrected = _weighted(by_class[wanted.cpu()], weights)
    return corrected[:, 1] if exact.ndim == 1 else corrected


def _weights(own: Tensor, rates: Tensor) -> Tensor:
    """Return the factor of each class."""
    factors = torch.ones_like(rates)
    if not len(own):
        return factors
    tiny = torch.finfo(torch.float64).tiny
    for _ in range(_ROUNDS):
        factors = factors * rates / _weighted(own, factors).mean(0).clamp_min(tiny)
    mean = own.mean(0).clamp_min(tiny)
    variation = own.var(0, correction=0) / mean**2
    certainty = len(own) / (len(own) + _FEW_ROWS + _FEW_VARIED_ROWS * variation)
    return factors**certainty


def _weighted(by_class: Tensor, factors: Tensor) -> Tensor:
    weighted = by_class * factors
    total = weighted.sum(1, keepdim=True)
    # Only classes without own labels are predicted: there is nothing to correct by.
    return torch.where(total > 0, weighted / total, by_class)
