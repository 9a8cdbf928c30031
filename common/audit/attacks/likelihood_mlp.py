"""Attack by the active party: how well a neural network fits the label to the embedding."""

from __future__ import annotations

from typing import TYPE_CHECKING
from warnings import catch_warnings, filterwarnings

import numpy as np

from florist.common.audit.attack_registry import active_attack
from florist.common.audit.attack_tools.embedding_axes import main_axes, standardised_window
from florist.common.audit.attack_tools.label_fit import LEAST
from florist.common.audit.attack_tools.pass_windows import pass_windows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    from sklearn.neural_network import MLPClassifier

    from florist.common.audit.view import ActiveView, Floats, Ranks

    Labels = npt.NDArray[np.int64]

#: Windows in which embeddings are standardised, and the axes that are kept.
_WINDOWS, _AXES = 20, 32
_FOLDS, _PASSES = 4, 10
#: The most rows that a network is fitted to. More would hardly change it.
_FITTED = 100_000


@active_attack("likelihood-mlp", needs=("labels",))
def likelihood_mlp(view: ActiveView) -> Floats:
    """Return how much better the embedding fits the own label than a random label.

    It is like `label-likelihood`, with a network that also gets the time in the pass, on embeddings
    that are standardised in each window of the pass. All windows are fitted together. NaN without a
    label.
    """
    return view.means(_lifts(view))


def _lifts(view: ActiveView) -> Iterator[tuple[Ranks, Floats]]:
    """Yield the scores of each window; of each UID those of all epochs."""
    own = view.is_own()
    ranks, labels, rows, times = [], [], [], []
    windows = list(pass_windows(view, _WINDOWS))
    for number, steps in enumerate(windows):
        seen = np.concatenate([step.ranks for step in steps])
        label = np.concatenate([step.labels for step in steps])
        mine = own[seen] & np.isfinite(label)
        if not mine.any():
            continue
        ranks.append(seen[mine])
        labels.append(label[mine].astype(np.int64))
        rows.append(standardised_window(steps)[mine].astype(np.float32))
        times.append(np.full((len(rows[-1]), 1), 2 * number / len(windows) - 1))
    if not ranks:
        return
    axes = main_axes(np.concatenate(rows), view.steps[0].logit_columns, _AXES)
    inputs = np.hstack([axes, np.concatenate(times)]).astype(np.float32)
    scores = _lift(np.concatenate(ranks), np.concatenate(labels), inputs)
    ends = np.cumsum([len(window) for window in ranks])[:-1]
    for window, part in zip(ranks, np.split(scores, ends), strict=True):
        known = ~np.isnan(part)
        yield window[known], part[known]


def _lift(ranks: Ranks, labels: Labels, inputs: npt.NDArray[np.float32]) -> Floats:
    """Return log(P(label | row) / P(label)), each row judged by a network fitted to others.

    NaN where the others have fewer than two labels, or lack one of the labels to judge.
    """
    from sklearn.neural_network import MLPClassifier  # noqa: PLC0415 - takes more than a second

    found = np.full(len(labels), np.nan)
    fold = ranks % _FOLDS  # ranks are random, and so is this split
    for number in range(_FOLDS):
        judged = np.flatnonzero(fold == number)
        others = np.flatnonzero(fold != number)
        others = others[:: -(-len(others) // _FITTED)] if len(others) else others
        known, counts = np.unique(labels[others], return_counts=True)
        if len(known) < 2 or not len(judged) or not np.isin(labels[judged], known).all():
            continue
        network = MLPClassifier((32,), alpha=1.0, batch_size=min(256, len(others)), random_state=0)
        for _ in range(_PASSES):
            _fit(network, inputs[others], labels[others], known)
        index = np.searchsorted(known, labels[judged])
        given = network.predict_proba(inputs[judged])[np.arange(len(index)), index]
        found[judged] = np.log(np.maximum(given, LEAST) * counts.sum() / counts[index])
    return found


def _fit(
    network: MLPClassifier, rows: npt.NDArray[np.float32], labels: Labels, known: Labels
) -> None:
    """Fit for one pass. sklearn turns a stop signal into a warning; this turns it back."""
    with catch_warnings():
        filterwarnings("error", "Training interrupted by user", UserWarning)
        try:
            network.partial_fit(rows, labels, classes=known)
        except UserWarning:
            raise KeyboardInterrupt from None
