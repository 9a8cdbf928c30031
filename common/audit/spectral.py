"""The spectral attack (Tran, Li and Madry, 2018), as in the paper's appendix "Spectral Attack".

In each batch, rows far from the mean along the direction in which the batch spreads most are taken
for synthetic. The passive party looks at gradients, the active party at embeddings with the label
beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.view import ActiveStep, PassiveStep, relative
from florist.common.evaluation.metrics import auc

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.audit.view import ActiveView, Floats, PassiveView


def spectral(view: PassiveView | ActiveView) -> Floats:
    """Minus the mean over epochs of a UID's score, in means of its batch.

    Batches, and still more epochs, differ in scale: without a common one, one epoch would decide.
    """
    return view.means((step.ranks, -relative(outlyingness(points(step)))) for step in view.steps)


def spectral_auc(view: PassiveView | ActiveView, is_real: npt.NDArray[np.bool_]) -> float:
    """The paper's attack AUC: how well the scores predict that a row is synthetic.

    The mean over batches of each batch's AUC, all rows of the batch included, not folded at 0.5.
    Batches with one kind of rows only are left out.

    Args:
        view: what the attacker saw.
        is_real: for each UID of the union, whether the peer has it.

    Returns:
        NaN if no batch has both kinds.
    """
    found = [
        auc(~is_real[step.ranks], outlyingness(points(step)))
        for step in view.steps
        if is_real[step.ranks].any() and not is_real[step.ranks].all()
    ]
    return float(np.mean(found)) if found else np.nan


def outlyingness(points: Floats) -> Floats:
    """|<x - μ, v>| of each row: μ their mean, v the top singular vector of their covariance."""
    centred = points - points.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)  # by rising eigenvalue
    distances: Floats = np.abs(centred @ vectors[:, -1])
    return distances


def points(step: PassiveStep | ActiveStep) -> Floats:
    """What the attack looks at, row by row."""
    if isinstance(step, PassiveStep):
        return step.gradients.astype(np.float64)
    known = np.isfinite(step.labels)
    mean = step.labels[known].mean() if known.any() else 0.0
    # A label that was not kept is put where it has no say.
    return np.column_stack([step.embeddings, np.where(known, step.labels, mean)]).astype(np.float64)
