"""What the passive party can read from gradients.

With two classes the gradient of a row is `(D' - t)`, times something positive, times the direction
in which `h` answers the embedding. That direction is much the same for all rows of a batch, so the
sign along it is the label, and its length how surprising the label was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.likelihood import label_lifts
from florist.common.audit.view import lengths, quantiles, relative

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from florist.common.audit.view import Floats, PassiveView, Ranks, Rows

    Labels = npt.NDArray[np.bool_]


def gradient_norm(view: PassiveView) -> Floats:
    """Length of the gradient, in means of its batch: labels drawn by the model surprise it less."""
    return view.means((step.ranks, relative(lengths(step.gradients))) for step in view.steps)


def gradient_direction(view: PassiveView) -> Floats:
    """How clearly the gradient points to the rarer label: under `label-majority` that is proof."""
    return view.means(zip((step.ranks for step in view.steps), cosines(view), strict=True))


def flips(view: PassiveView) -> Floats:
    """Minus the share of epochs in which the inferred label is not that of the epoch before.

    Real labels never change. NaN where a UID was seen once.
    """
    last = np.zeros(view.union_size, dtype=np.bool_)
    seen = np.zeros(view.union_size, dtype=np.bool_)

    def changes() -> Iterator[tuple[Ranks, Floats]]:
        for ranks, labels in inferred_labels(view):
            again = ranks[seen[ranks]]
            yield again, -(last[again] != labels[seen[ranks]]).astype(np.float64)
            last[ranks] = labels
            seen[ranks] = True

    return view.means(changes())


def label_likelihood(view: PassiveView) -> Floats:
    """How much better the inferred label fits this party's embedding than any label would.

    Real labels belong to the features; synthetic ones may ignore them. NaN where all rows look as
    if they had one label.
    """
    return view.means(inferred_label_lifts(view))


def inferred_label_lifts(view: PassiveView) -> Iterator[tuple[Ranks, Floats]]:
    """Epoch by epoch, since embeddings of two are not comparable: `label_lifts` of own UIDs."""
    own = view.is_own()
    labels = (label for _, label in inferred_labels(view))
    for steps in view.epochs():
        ranks = np.concatenate([step.ranks for step in steps])
        mine = own[ranks]
        yield from label_lifts(
            ranks[mine],
            np.concatenate([step.embeddings for step in steps])[mine],
            np.concatenate([next(labels) for _ in steps])[mine].astype(np.int64),
        )


def memorisation(view: PassiveView) -> Floats:
    """How much less the label surprises the model in the last epoch than in the first.

    A model that remembers rows remembers those it learns from: with masking, those with real
    labels. NaN where a UID was seen once.
    """
    return -view.changes(surprises(view))


def surprises(view: PassiveView) -> Iterator[tuple[Ranks, Floats]]:
    """Step by step, how long the gradient is among those of the same inferred label: 0 to 1."""
    for step, (ranks, labels) in zip(view.steps, inferred_labels(view), strict=True):
        found = np.empty(len(ranks))
        for label in (labels, ~labels):
            found[label] = quantiles(lengths(step.gradients[label]))
        yield ranks, found


def inferred_labels(view: PassiveView) -> Iterator[tuple[Ranks, Labels]]:
    """Step by step, whether a row's label is the rarer one."""
    for step, cosine in zip(view.steps, cosines(view), strict=True):
        yield step.ranks, cosine > 0


def cosines(view: PassiveView) -> list[Floats]:
    """Step by step, the cosine of each gradient and its batch's dominant direction.

    The direction has no sign of its own. It takes that in which it goes on from the batch before,
    and as a whole the one that is positive for fewer rows.
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
    """Rows of length 1; those without a direction stay 0."""
    exact = rows.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    lengths[lengths == 0] = 1
    units: Floats = exact / lengths
    return units
