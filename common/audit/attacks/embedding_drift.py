"""Attack by the active party: embeddings that change between epochs."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.attack_registry import STICKY_DATA, active_attack
from florist.common.audit.view import concatenated, lengths, relative

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.audit.view import ActiveView, Floats, Ranks, Rows


@active_attack("embedding-drift", STICKY_DATA, needs=("two epochs",))
def embedding_drift(view: ActiveView) -> Floats:
    """Return minus how far an embedding moved between epochs, beyond the model's own change.

    The model's change is modelled as an affine map from one epoch's embeddings to the next one's,
    fitted to all UIDs, and again to the half that it fits best. Real features never change, so a
    large residual indicates a stand-in that was drawn again. NaN where a UID was seen only once.
    """

    def residuals() -> Iterator[tuple[Ranks, Floats]]:
        for before, after in pairwise(map(concatenated, view.epochs())):
            ranks, ours, theirs = np.intersect1d(before[0], after[0], return_indices=True)
            if len(ranks):
                yield ranks, -relative(_unexplained(before[1][ours], after[1][theirs]))

    return view.means(residuals())


def _unexplained(before: Rows, after: Rows) -> Floats:
    """Return the length of each row's residual after the affine map."""
    inputs = np.column_stack([before, np.ones(len(before), dtype=np.float32)])
    residual = lengths(inputs @ _fit(inputs, after) - after)
    best = residual <= np.median(residual)
    return lengths(inputs @ _fit(inputs[best], after[best]) - after)


def _fit(inputs: Rows, outputs: Rows) -> Rows:
    """Least squares by the normal equations, whose size is the width of the embeddings."""
    exact = inputs.astype(np.float64)
    solution: Floats = np.linalg.pinv(exact.T @ exact, hermitian=True) @ (exact.T @ outputs)
    return solution.astype(np.float32)
