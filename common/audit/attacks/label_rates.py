"""Attack by the passive party: labels that are too frequent in a window of the pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.attack_registry import LABEL_STRATEGY, passive_attack
from florist.common.audit.attack_tools.inferred_labels import inferred_labels
from florist.common.audit.attack_tools.pass_windows import WINDOWS, pass_windows
from florist.common.audit.training_windows import EARLY_STEPS, TRAINING_WINDOWS
from florist.common.audit.view import PassiveView

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from florist.common.audit.view import Floats, Ranks

    Flags = npt.NDArray[np.bool_]

#: The fewest labels from which a rate is estimated.
_LEAST = 50


@passive_attack("label-rates", LABEL_STRATEGY)
def label_rates(view: PassiveView) -> Floats:
    """Return log(rate of the UID's label among real labels / its rate in the window).

    A model that has just started may draw labels with other rates than real labels have, and then
    a label that is too frequent in a window is probably synthetic. UIDs that the attacker lacks
    have real labels, so their rate is that of real labels; if there are too few, the rate is that
    of the second half of the run. The first batches are windows of their own. Differences within
    the sampling error are shrunk to 0, so that they do not drown those of other windows.
    """
    own = view.is_own()
    shown = list(inferred_labels(view))
    real = _real_rate(shown, own)
    if real is None:
        return np.full(len(view.uids), np.nan)
    return view.means(_scores(shown, _windows(view), own, *real))


def _real_rate(shown: list[tuple[Ranks, Flags]], own: Flags) -> tuple[float, float] | None:
    """Return the rate of the rarer label among real labels, and its variance."""
    theirs = _joined([labels[~own[ranks]] for ranks, labels in shown])
    late = _joined([labels[own[ranks]] for ranks, labels in shown[len(shown) // 2 :]])
    labels = theirs if len(theirs) >= _LEAST else late
    if len(labels) < _LEAST or labels.all() or not labels.any():
        return None
    rate = float(labels.mean())
    return rate, rate * (1 - rate) / len(labels)


def _windows(view: PassiveView) -> list[int]:
    """Return the number of each step's window: those of the first batches, then tenths."""
    early = [window for window in TRAINING_WINDOWS.values() if window.stop is not None]
    found = [
        max((n for n, window in enumerate(early) if window.contains(step)), default=-1)
        for step in range(min(EARLY_STEPS, len(view.steps)))
    ]
    rest = PassiveView(view.union_size, view.uids, view.steps[len(found) :])
    for number, steps in enumerate(pass_windows(rest, WINDOWS), start=len(early)):
        found += [number] * len(steps)
    return found


def _scores(
    shown: list[tuple[Ranks, Flags]], windows: list[int], own: Flags, real: float, variance: float
) -> Iterator[tuple[Ranks, Floats]]:
    for number in dict.fromkeys(windows):
        inside = [step for step, window in zip(shown, windows, strict=True) if window == number]
        labels = _joined([found[own[ranks]] for ranks, found in inside])
        if len(labels) < _LEAST:
            continue
        noise = real * (1 - real) / len(labels) + variance
        difference = float(labels.mean()) - real
        shrunk = difference * max(0.0, 1 - noise / difference**2) if difference else 0.0
        rate = min(max(real + shrunk, 1e-3 * real), 1 - 1e-3 * (1 - real))
        scores = np.log([(1 - real) / (1 - rate), real / rate])
        for ranks, found in inside:
            yield ranks, scores[found.astype(np.int64)]


def _joined(parts: list[Flags]) -> Flags:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.bool_)
