"""What the passive party can read from gradients.

With two classes the gradient of a row is `(D' - t)`, times something positive, times the direction
in which `h` answers the embedding. That direction is much the same for all rows of a batch, so the
sign along it is the label, and its length how surprising the label was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from florist.common.audit.view import relative

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from florist.common.audit.view import Floats, PassiveView, Ranks, Rows

    Labels = npt.NDArray[np.bool_]


def gradient_norm(view: PassiveView) -> Floats:
    """Length of the gradient, in means of its batch: labels drawn by the model surprise it less."""
    return view.means(
        (step.ranks, relative(np.linalg.norm(step.gradients.astype(np.float64), axis=1)))
        for step in view.steps
    )


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
    """Logarithm of P(inferred label | embedding), with P fitted to this party's own rows.

    Per epoch, since embeddings of different epochs are not comparable. A row is judged by a fit to
    the other half of the rows; NaN where all of those have one label.
    """
    own = view.is_own()
    labels = [label for _, label in inferred_labels(view)]

    def likelihoods() -> Iterator[tuple[Ranks, Floats]]:
        first = 0
        for steps in view.epochs():
            ranks = np.concatenate([step.ranks for step in steps])
            mine = own[ranks]
            yield from _cross_fitted(
                ranks[mine],
                np.concatenate([step.embeddings[own[step.ranks]] for step in steps]),
                np.concatenate(labels[first : first + len(steps)])[mine],
            )
            first += len(steps)

    return view.means(likelihoods())


def _cross_fitted(ranks: Ranks, rows: Rows, labels: Labels) -> Iterator[tuple[Ranks, Floats]]:
    even = ranks % 2 == 0  # ranks are in random order
    for judged in (even, ~even):
        if judged.any() and 0 < labels[~judged].sum() < (~judged).sum():
            model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
            model.fit(rows[~judged], labels[~judged])
            chosen = labels[judged].astype(np.int64)
            given = model.predict_log_proba(rows[judged])[np.arange(len(chosen)), chosen]
            yield ranks[judged], given.astype(np.float64)


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
