"""What class weights change about gradients, and how whoever receives them undoes it.

With weights the gradient with respect to the logit is w_t·(q - t), where q is the prediction p with
its odds multiplied by w_1/w_0, and t the label (`synthetic/calibration.py`). Both parties know the
weights, and the sign shows the label as it does without weights. So the gradient without weights,
p - t, is a function of what the passive party receives: weights reveal nothing more, and hide
nothing either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

#: Predictions are kept this far from 0 and 1.
_LEAST = 1e-12


def without_weights(
    gradients: npt.NDArray[np.float32], weights: tuple[float, float] | None, batch_size: int
) -> npt.NDArray[np.float32]:
    """Return gradients as they would be without class weights, for two classes.

    All columns of a row are multiples of the gradient with respect to its logit, so they change by
    the same factor. (If calibration changes the loss, the result is an approximation.)

    Args:
        gradients: (rows, width), of embeddings whose last column is added to the logit.
        weights: those of `TrainingAgreement.loss_weights`; None changes nothing.
        batch_size: number of rows of the batch.
    """
    if weights is None:
        return gradients
    weighted = batch_size * gradients[:, -1].astype(np.float64)
    label = weighted < 0
    tilted = np.clip(label + weighted / np.where(label, weights[1], weights[0]), _LEAST, 1 - _LEAST)
    odds = tilted / (1 - tilted) * (weights[0] / weights[1])
    plain = odds / (1 + odds) - label
    is_known = weighted != 0
    factor = np.divide(plain, weighted, out=np.ones_like(plain), where=is_known)
    changed: npt.NDArray[np.float32] = (gradients * factor[:, None]).astype(np.float32)
    return changed
