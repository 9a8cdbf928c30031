"""Labels that the passive party can infer from gradients.

With two classes the gradient of a row is `(D' - t)`, times a positive factor, times the direction
in which `h` responds to the embedding. That direction is nearly the same for all rows of a batch.
So the sign along it reveals the label, and the length shows how surprising the label was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.view import lengths, quantiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from florist.common.audit.view import Floats, PassiveView, Ranks, Rows

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
    and is chosen for the whole view such that fewer rows are positive.
    """
    found = []
    before: Floats | None = None
    for step in view.steps:
        units = _units(step.gradients)
        direction = np.linalg.eigh(units.T @ units).eigenvectors[:, -1]
        if before is not None and direction @ before < 0:
            direction = -direction
        before = direction
        found.append(units @ direction)
    surplus = sum(float(np.sign(cosine).sum()) for cosine in found)
    return [-cosine for cosine in found] if surplus > 0 else found


def _units(rows: Rows) -> Floats:
    """Return the rows scaled to length 1; zero rows stay 0."""
    exact = rows.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    lengths[lengths == 0] = 1
    units: Floats = exact / lengths
    return units
