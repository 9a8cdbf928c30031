"""The spectral attack (Tran, Li and Madry, 2018), as in the paper's appendix "Spectral Attack".

In each batch, rows far from the mean along the direction of greatest variance are taken for
synthetic. The passive party uses gradients; the active party uses embeddings with the label
appended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.attack_registry import (
    FEATURE_STRATEGY,
    LABEL_STRATEGY,
    active_attack,
    passive_attack,
)
from florist.common.audit.view import ActiveStep, PassiveStep, relative
from florist.common.evaluation.metrics import auc

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.audit.view import ActiveView, Floats, PassiveView


@active_attack("spectral", remedy=FEATURE_STRATEGY)
@passive_attack("spectral", remedy=LABEL_STRATEGY)
def spectral(view: PassiveView | ActiveView) -> Floats:
    """Return minus the mean over epochs of a UID's distance, relative to the mean of its batch.

    The scale differs between batches, and even more between epochs. Without a common scale, a
    single epoch would dominate.
    """
    return view.means((step.ranks, -relative(outlyingness(points(step)))) for step in view.steps)


def spectral_auc(view: PassiveView | ActiveView, is_real: npt.NDArray[np.bool_]) -> float:
    """Return the paper's attack AUC: how well the distances predict that a row is synthetic.

    This is the mean over batches of each batch's AUC over all its rows, not folded at 0.5. Batches
    that are all real or all synthetic are left out.

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
    """Return |<x - μ, v>| of each row x, with the mean μ and v the top singular vector of x - μ."""
    centred = points - points.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)  # by rising eigenvalue
    distances: Floats = np.abs(centred @ vectors[:, -1])
    return distances


def points(step: PassiveStep | ActiveStep) -> Floats:
    """Return the rows that the attack uses: gradients, or embeddings with the label appended."""
    if isinstance(step, PassiveStep):
        return step.gradients.astype(np.float64)
    known = np.isfinite(step.labels)
    mean = step.labels[known].mean() if known.any() else 0.0
    # A label that was not kept is set to the mean, where it has no influence.
    return np.column_stack([step.embeddings, np.where(known, step.labels, mean)]).astype(np.float64)
