"""What the active party can read from embeddings, besides the spectral attack."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.frames import all_epochs, one_epoch
from florist.common.audit.likelihood import label_lifts
from florist.common.audit.neighbours import FEWEST, isolation, judged_uids
from florist.common.audit.view import lengths, relative

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from florist.common.audit.view import ActiveStep, ActiveView, Floats, Ranks, Rows


def embedding_collision(view: ActiveView) -> Floats:
    """How far the nearest embedding of the same epoch is, whoever's: copied rows have a twin.

    See `isolation`; the mean over epochs. Of at most `JUDGED` UIDs; NaN for the others.
    """
    everyone = np.ones(view.union_size, dtype=np.bool_)
    return view.means(
        _isolations(view, *one_epoch(steps), among=everyone) for steps in view.epochs()
    )


def embedding_twin(view: ActiveView) -> Floats:
    """The same after all epochs, with noise and the weights' changes averaged out.

    Finds donors that are kept, behind more noise. NaN where a UID was seen once.
    """
    everyone = np.ones(view.union_size, dtype=np.bool_)
    return view.means([_isolations(view, *all_epochs(view), among=everyone)])


def embedding_donor(view: ActiveView) -> Floats:
    """The same among the UIDs of the peer alone: no copies are there, so whose twin is, is a copy.

    The donor itself is not suspected, as it is by the other two. After one epoch within that. NaN
    where all UIDs are to be scored, and so none is known to be the peer's alone.
    """
    after_all = all_epochs(view)
    frames = [after_all] if len(after_all[0]) else map(one_epoch, view.epochs())
    return view.means(_isolations(view, *frame, among=~view.is_own()) for frame in frames)


def _isolations(
    view: ActiveView, ranks: Ranks, points: Rows, *, among: npt.NDArray[np.bool_]
) -> tuple[Ranks, Floats]:
    """`isolation` of the judged UIDs; `among` tells of each UID whether to compare with it."""
    judged = np.zeros(view.union_size, dtype=np.bool_)
    judged[judged_uids(view)] = True
    others = np.flatnonzero(among[ranks])
    chosen = np.flatnonzero(judged[ranks] & (len(others) >= FEWEST))
    return ranks[chosen], isolation(points, chosen, others)


def embedding_drift(view: ActiveView) -> Floats:
    """Minus how far an embedding moved between epochs, beyond what the model's own change explains.

    That change is taken for an affine map from one epoch's embeddings to the next one's, fitted to
    all UIDs, and again to the half of them that it fits best. Real features never change, so what
    is left over is a stand-in that does. NaN where a UID was seen once.
    """

    def residuals() -> Iterator[tuple[Ranks, Floats]]:
        for before, after in pairwise(map(_together, view.epochs())):
            ranks, ours, theirs = np.intersect1d(before[0], after[0], return_indices=True)
            if len(ranks):
                yield ranks, -relative(_unexplained(before[1][ours], after[1][theirs]))

    return view.means(residuals())


def _unexplained(before: Rows, after: Rows) -> Floats:
    inputs = np.column_stack([before, np.ones(len(before), dtype=np.float32)])
    residual = lengths(inputs @ _fit(inputs, after) - after)
    best = residual <= np.median(residual)
    return lengths(inputs @ _fit(inputs[best], after[best]) - after)


def _fit(inputs: Rows, outputs: Rows) -> Rows:
    """Least squares by the normal equations, which are as small as the embeddings are wide."""
    exact = inputs.astype(np.float64)
    solution: Floats = np.linalg.pinv(exact.T @ exact, hermitian=True) @ (exact.T @ outputs)
    return solution.astype(np.float32)


def _together(steps: list[ActiveStep]) -> tuple[Ranks, Rows]:
    return (
        np.concatenate([step.ranks for step in steps]),
        np.concatenate([step.embeddings for step in steps]).astype(np.float32),
    )


def label_likelihood(view: ActiveView) -> Floats:
    """How much better the embedding fits this party's own label than any: a stand-in's does not.

    No strategy for features can hide this: it is what the model learns. NaN without a label.
    """
    return view.means(own_label_lifts(view))


def memorisation(view: ActiveView) -> Floats:
    """How much better it fits in the last epoch than in the first.

    A model that remembers rows remembers those it learns from: with masking, the real ones.
    """
    return view.changes(own_label_lifts(view))


def own_label_lifts(view: ActiveView) -> Iterator[tuple[Ranks, Floats]]:
    """Epoch by epoch: `label_lifts` of the UIDs to score."""
    own = view.is_own()
    for steps in view.epochs():
        ranks, embeddings = _together(steps)
        labels = np.concatenate([step.labels for step in steps])
        mine = own[ranks] & np.isfinite(labels)
        yield from label_lifts(ranks[mine], embeddings[mine], labels[mine].astype(np.int64))
