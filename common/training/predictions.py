"""Calibrated predictions of the active party's model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.synthetic.calibration import model_output

if TYPE_CHECKING:
    from torch import Tensor

    from florist.common.synthetic.calibration import Calibration
    from florist.common.training.models import ActiveModel


def predictions(
    model: ActiveModel, calibration: Calibration, embeddings: Tensor, *own: Tensor
) -> Tensor:
    """Of the model from the cut on, calibrated; with own features just where it has a tower.

    A prior, where it has one, takes the place of the frequencies of the classes.
    """
    logits = model(embeddings, *own)
    if model.prior is not None:
        calibration = calibration.given(model_output(model.prior(*own)))
    return calibration.predict(logits)
