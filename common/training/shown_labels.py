"""The labels that gradients show, and the predictions.

The last columns of an embedding are added to the logits, so their gradient is that of the loss with
respect to the logits: negative for the class of the label, and positive for all others. The passive
party needs no more than what it receives anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.training.class_weights import without_weights

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor


def shown_labels(gradients: Tensor, classes: int) -> npt.NDArray[np.int64]:
    """Return the class that each row's gradient shows; -1 if it is zero.

    A target that is the mean of several labels counts as the class whose logit should rise most.

    Args:
        gradients: (rows, width), of embeddings with a wide part.
        classes: number of classes of the label.
    """
    outputs = 1 if classes == 2 else classes
    logits = gradients[:, -outputs:].detach().cpu().numpy()
    if classes == 2:
        column = logits[:, 0]
        return np.where(column < 0, 1, np.where(column > 0, 0, -1))
    return np.where(logits.min(axis=1) < 0, logits.argmin(axis=1), -1)


def shown_predictions(
    gradients: Tensor,
    labels: npt.NDArray[np.int64],
    classes: int,
    batch_size: int,
    weights: tuple[float, float] | None = None,
) -> npt.NDArray[np.float64]:
    """Return the probability of each class that the model predicted for each row: (rows, classes).

    The gradient of the batch's mean cross entropy with respect to the logits is the prediction
    minus the target, divided by the batch size. (If calibration changes the loss, the result is an
    approximation.) Without a label, which means a gradient of zero, all classes are equally likely.

    Args:
        gradients: (rows, width), of embeddings with a wide part.
        labels: what `shown_labels` returns for them.
        classes: number of classes of the label.
        batch_size: number of rows of the batch.
        weights: the class weights of the loss, if any.
    """
    outputs = 1 if classes == 2 else classes
    shown = without_weights(gradients[:, -outputs:].detach().cpu().numpy(), weights, batch_size)
    change = batch_size * shown.astype(np.float64)
    if classes == 2:
        change = np.concatenate((-change, change), axis=1)
    predicted = np.clip(np.eye(classes)[np.maximum(labels, 0)] + change, 0, 1)
    # A gradient that no loss has can leave nothing.
    predicted[(labels < 0) | ~predicted.any(axis=1)] = 1
    total: npt.NDArray[np.float64] = predicted / predicted.sum(axis=1, keepdims=True)
    return total
