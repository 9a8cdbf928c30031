"""Strata: groups of UIDs on which an attack is judged separately, and the worst of them.

An attack can be harmless on average and strong on some people: those of the first batches, those
with the rarer label, or those with certain features. The attacker knows the group of each of its
UIDs, so it may attack only one.

The highest of many noisy figures is above the truth. Intervals of strata are therefore corrected
for the number of comparisons, by Bonferroni's method: all of them together cover the truth with the
stated probability. The worst stratum is the one with the highest lower end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from florist.common.audit.attack_tools.feature_clusters import feature_clusters
from florist.common.audit.attack_tools.inferred_labels import shown_classes
from florist.common.audit.attack_tools.pass_windows import windows_of
from florist.common.audit.statistics import evaluate
from florist.common.audit.training_windows import EARLY_STEPS, TRAINING_WINDOWS
from florist.common.audit.view import ActiveView, PassiveView

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from florist.common.audit.statistics import AttackResult
    from florist.common.audit.view import Floats, OwnFeatures, StepView

    Flags = npt.NDArray[np.bool_]
    AnyView = PassiveView | ActiveView

StratumKind = Literal["window", "label", "features"]

#: The fewest real and synthetic UIDs for which a stratum is judged.
LEAST = 200
#: The same for true positive rates: fewer would allow only a few false positives.
LEAST_FOR_RATES = 500
#: The most classes of the label, and the number of clusters of own features.
_CLASSES, _CLUSTERS = 8, 8
#: Bootstrap samples per stratum. Intervals are those of a normal distribution.
_SAMPLES = 50


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Stratum:
    """A group of UIDs that the attacker can tell from the others."""

    kind: StratumKind
    name: str
    #: For each UID of the view, whether it is in the group.
    members: Flags


@dataclass(frozen=True, slots=True)
class StratumResult:
    """How well an attack does on a stratum."""

    kind: StratumKind
    stratum: str
    result: AttackResult

    @property
    def has_rates(self) -> bool:
        """Whether there are enough UIDs for a true positive rate at 1% false positives."""
        return min(self.result.real, self.result.synthetic) >= LEAST_FOR_RATES


def strata_of(view: AnyView, *, early: bool = True) -> list[Stratum]:
    """Return all strata of a view: windows of the pass, labels, and clusters of own features.

    Args:
        view: what the attacker saw.
        early: whether the windows of the first batches are strata, too. The steps of the view are
            then all those of the run.
    """
    return [
        *(_early_windows(view) if early else ()),
        *_windows(view),
        *_labels(view),
        *(_clusters(view.features) if view.features is not None else ()),
    ]


def judged_strata(strata: Iterable[Stratum], is_real: Flags, least: int = LEAST) -> list[Stratum]:
    """Return the strata that have enough real and synthetic UIDs, and not nearly all of them."""
    return [
        stratum
        for stratum in strata
        if min(is_real[stratum.members].sum(), (~is_real[stratum.members]).sum()) >= least
        and not stratum.members.all()
    ]


def evaluate_strata(
    attack: str,
    scores: Floats,
    is_real: Flags,
    strata: Sequence[Stratum],
    confidence: float,
    least: int = LEAST,
) -> list[StratumResult]:
    """Judge an attack on each stratum in which it scored enough UIDs.

    Args:
        attack: the attack's name.
        scores: one per UID of the view.
        is_real: one per UID of the view.
        strata: the groups.
        confidence: of each interval, corrected for the number of comparisons.
        least: the fewest scored UIDs of each kind.
    """
    found = [
        StratumResult(
            stratum.kind,
            stratum.name,
            evaluate(
                attack,
                scores[stratum.members],
                is_real[stratum.members],
                samples=_SAMPLES,
                confidence=confidence,
            ),
        )
        for stratum in strata
    ]
    return [each for each in found if min(each.result.real, each.result.synthetic) >= least]


def corrected_confidence(confidence: float, comparisons: int) -> float:
    """Return the confidence of each of several intervals that hold together with `confidence`."""
    return 1 - (1 - confidence) / max(comparisons, 1)


def worst_stratum(results: Iterable[StratumResult]) -> StratumResult | None:
    """Return the stratum with the highest lower end of the folded AUC; None without any.

    If several have the same lower end, such as 0.5, it is the one with the highest AUC.
    """

    def ends(found: StratumResult) -> tuple[float, float]:
        return found.result.folded_auc.low, found.result.folded_auc.value

    return max(results, key=ends, default=None)


def worst_rates(results: Iterable[StratumResult], rate: float) -> StratumResult | None:
    """Return the stratum with the highest lower end of the true positive rate; None without any."""

    def ends(found: StratumResult) -> tuple[float, float]:
        estimate = found.result.true_positive_rate(rate)
        return estimate.low, estimate.value

    return max((found for found in results if found.has_rates), key=ends, default=None)


def _early_windows(view: AnyView) -> Iterator[Stratum]:
    """Yield the windows of the first batches, unless the run has no others."""
    first = _first_step(view)
    for name, window in TRAINING_WINDOWS.items():
        if window.stop is not None and len(view.steps) > EARLY_STEPS:
            members = (first >= window.start) & (first < window.stop)
            yield Stratum("window", name.replace("-", " ", 1), members)


def _windows(view: AnyView) -> Iterator[Stratum]:
    """Yield the windows of a pass, by when a UID was first seen."""
    first, start = _first_step(view), 0
    steps_seen: Sequence[StepView] = view.steps
    in_pass = [step for step in steps_seen if step.epoch == steps_seen[0].epoch]
    parts = [len(steps) for steps in windows_of(in_pass)]
    for number, steps in enumerate(parts, start=1):
        members = (first >= start) & (first < start + steps)
        start += steps
        yield Stratum("window", f"part {number} of {len(parts)} of the pass", members)


def _first_step(view: AnyView) -> npt.NDArray[np.int64]:
    """Return the number of the step in which each UID was first seen; -1 if it was not."""
    first = np.full(view.union_size, -1)
    steps: Sequence[StepView] = view.steps
    for number, step in reversed(list(enumerate(steps))):
        first[step.ranks] = number
    return first[view.uids]


def _labels(view: AnyView) -> Iterator[Stratum]:
    """Yield the labels that the attacker has or infers; of many classes the most frequent ones."""
    label_of = np.full(view.union_size, np.nan)
    if isinstance(view, ActiveView):
        for step in reversed(view.steps):
            label_of[step.ranks] = step.labels
    else:
        for ranks, labels in reversed(list(shown_classes(view))):
            label_of[ranks] = labels
    own = label_of[view.uids]
    known, counts = np.unique(own[np.isfinite(own)], return_counts=True)
    for label in known[np.argsort(-counts, kind="stable")[:_CLASSES]]:
        yield Stratum("label", f"label {label:g}", own == label)


def _clusters(features: OwnFeatures) -> Iterator[Stratum]:
    """Yield clusters of own features."""
    cluster = feature_clusters(features, _CLUSTERS)
    if cluster is None:
        return
    for number in range(int(cluster.max()) + 1):
        yield Stratum("features", f"cluster {number + 1} of own features", cluster == number)
