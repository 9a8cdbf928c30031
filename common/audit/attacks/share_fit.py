"""Attack by the passive party: the peer's share of the logit does not fit the own features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import logit

from florist.common.audit.attack_registry import OWN_FEATURES, passive_attack
from florist.common.audit.attack_tools.one_hot_features import one_hot
from florist.common.audit.attack_tools.pass_windows import pass_windows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scipy import sparse

    from florist.common.audit.view import Floats, PassiveStep, PassiveView, Ranks

_COLUMNS = 2048
_FOLDS = 4
#: The ridge of the regression, in rows.
_RIDGE = 100.0
#: Number of powers of the own share that are removed from the logit, the constant included.
_POWERS = 4
#: Predictions are between this and one minus this.
_LEAST = 1e-5
#: Standard deviation of shares below which they are taken to be equal: rounding of the gradients.
_SAME = 1e-3


@passive_attack("share-fit", OWN_FEATURES, needs=("features",))
def share_fit(view: PassiveView) -> Floats:
    """Return how much better the peer's share of the logit fits the own features than a random one.

    The gradient shows the model's prediction, and the party knows what it has added to the logit
    itself. The difference comes from the active party's own features, real or of a stand-in. Real
    ones depend on the party's own features of the same person; those of a stand-in do not. NaN
    without a wide part, with several classes, or if the peer has no features.
    """
    found = list(_shares(view))
    nothing = np.full(len(view.uids), np.nan)
    if view.features is None or not found:
        return nothing
    place = np.full(view.union_size, -1)
    place[view.uids] = np.arange(len(view.uids))
    ranks = np.concatenate([ranks for ranks, _ in found])
    shares = np.concatenate([shares for _, shares in found])
    gain = _gain(one_hot(view.features, _COLUMNS)[place[ranks]], ranks, shares)
    ends = np.cumsum([len(ranks) for ranks, _ in found])[:-1]
    windows = zip([ranks for ranks, _ in found], np.split(gain, ends), strict=True)
    return view.means(windows)


def _shares(view: PassiveView) -> Iterator[tuple[Ranks, Floats]]:
    """Yield the peer's shares of the logits of own UIDs, standardised window by window."""
    own = view.is_own()
    for steps in pass_windows(view):
        if any(step.logit_columns != 1 for step in steps):
            continue
        ranks = np.concatenate([step.ranks for step in steps])
        mine = own[ranks]
        if mine.sum() < 10 * _POWERS:
            continue
        logits = np.concatenate([_logits(step) for step in steps])[mine]
        sent = np.concatenate([step.embeddings[:, -1] for step in steps])[mine].astype(np.float64)
        shares = _rest(logits, sent)
        spread = float(shares.std())
        if spread > _SAME:
            yield ranks[mine], shares / spread


def _logits(step: PassiveStep) -> Floats:
    """Return the logit of the model's prediction, which the gradient shows."""
    gradient = step.gradients[:, -1].astype(np.float64) * (step.batch_size or len(step.ranks))
    predicted = np.clip(np.where(gradient < 0, 1 + gradient, gradient), _LEAST, 1 - _LEAST)
    found: Floats = logit(predicted)
    return found


def _rest(logits: Floats, sent: Floats) -> Floats:
    """Return what the own share does not explain, even if the peer's layers change its weight."""
    inputs = np.vander((sent - sent.mean()) / (sent.std() or 1.0), _POWERS)
    rest: Floats = logits - inputs @ np.linalg.lstsq(inputs, logits, rcond=None)[0]
    return rest


def _gain(columns: sparse.csr_array, ranks: Ranks, shares: Floats) -> Floats:
    """Return by how much a regression on other rows reduces the squared error of each share."""
    fold = ranks % _FOLDS  # ranks are random, and so is this split
    parts = [np.flatnonzero(fold == number) for number in range(_FOLDS)]
    grams = [(columns[part].T @ columns[part]).toarray() for part in parts]
    products = [columns[part].T @ shares[part] for part in parts]
    gain = np.empty(len(shares))
    for number, part in enumerate(parts):
        gram = sum(grams) - grams[number]
        gram[np.diag_indices_from(gram)] += _RIDGE
        weights = cho_solve(cho_factor(gram), sum(products) - products[number])
        predicted = columns[part] @ weights
        gain[part] = shares[part] ** 2 - (shares[part] - predicted) ** 2
    return gain
