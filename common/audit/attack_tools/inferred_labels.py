"""Labels that the passive party can infer from gradients.

With two classes the gradient of a row is `(D' - t)`, times a positive factor, times the direction
in which `h` responds to the embedding. That direction is nearly the same for all rows of a batch.
So the sign along it reveals the label, and the length shows how surprising the label was.

If the last columns of embeddings are added to the logits, their gradients are `(D' - t)` divided by
the size of the batch, and nothing has to be inferred.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.view import lengths, quantiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from florist.common.audit.view import Floats, PassiveStep, PassiveView, Ranks, Rows

    Labels = npt.NDArray[np.bool_]


def surprises(view: PassiveView) -> Iterator[tuple[Ranks, Floats]]:
    """Yield, per step, the quantile of the gradient's length among rows with the same label."""
    for step, (ranks, labels) in zip(view.steps, inferred_labels(view), strict=True):
        found = np.empty(len(ranks))
        for label in (labels, ~labels):
            found[label] = quantiles(lengths(step.gradients[label]))
        yield ranks, found


def inferred_labels(view: PassiveView) -> Iterator[tuple[Ranks, Labels]]:
    """Yield, per step, whether each row's label is the rarer one."""
    for step, cosine in zip(view.steps, cosines(view), strict=True):
        yield step.ranks, cosine > 0


def cosines(view: PassiveView) -> list[Floats]:
    """Return, per step, the cosine between each gradient and its batch's dominant direction.

    The dominant direction has no sign of its own. Its sign is carried over from the previous batch,
    and is chosen for the whole view such that fewer rows are positive. Where the gradients of the
    logits are known, the cosine is 1 or -1, or 0 for a zero gradient.
    """
    found = []
    before: Floats | None = None
    for step in view.steps:
        if step.logit_columns:
            found.append(_exact_directions(step))
            continue
        units = _units(step.gradients)
        direction = np.linalg.eigh(units.T @ units).eigenvectors[:, -1]
        if before is not None and direction @ before < 0:
            direction = -direction
        before = direction
        found.append(units @ direction)
    surplus = sum(float(np.sign(cosine).sum()) for cosine in found)
    return [-cosine for cosine in found] if surplus > 0 else found


def shown_classes(view: PassiveView) -> Iterator[tuple[Ranks, npt.NDArray[np.int64]]]:
    """Yield, per step, the class of each row's label.

    With gradients of the logits of several classes these are all classes; otherwise 1 is the rarer
    label and 0 the other one.
    """
    for step, (ranks, rarer) in zip(view.steps, inferred_labels(view), strict=True):
        if step.logit_columns > 1:
            yield ranks, step.gradients[:, -step.logit_columns :].argmin(axis=1).astype(np.int64)
        else:
            yield ranks, rarer.astype(np.int64)


def _exact_directions(step: PassiveStep) -> Floats:
    """Return 1 for the label 1, -1 for the label 0, by the gradient of the logit.

    With several classes it is 1 for the class that is shown least often in this batch.
    """
    logits = step.gradients[:, -step.logit_columns :].astype(np.float64)
    if step.logit_columns == 1:
        return -np.sign(logits[:, 0])
    label = logits.argmin(axis=1)
    rarest = np.bincount(label, minlength=step.logit_columns).argmin() if len(label) else 0
    return np.where(label == rarest, 1.0, -1.0)


def _units(rows: Rows) -> Floats:
    """Return the rows scaled to length 1; zero rows stay 0."""
    exact = rows.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    lengths[lengths == 0] = 1
    units: Floats = exact / lengths
    return units
