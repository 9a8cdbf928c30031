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
    """Return calibrated predictions from the passive party's embeddings.

    Args:
        model: with a prior, the prior's output replaces the class frequencies in the calibration.
        calibration: of the model's logits.
        embeddings: `(rows, wire_width)`.
        own: the active party's numeric and categorical features, if and only if the model has a
            tower.
    """
    logits = model(embeddings, *own)
    if model.prior is not None:
        calibration = calibration.given(model_output(model.prior(*own)))
    return calibration.predict(logits)
