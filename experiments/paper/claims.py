"""The paper's conclusions, each checked against the measured results.

"Comparable", "similar" and "close to" are the paper's words; the constants below define them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from florist.experiments.paper.numbers import TABLE_RATIO
from florist.experiments.paper.recipes import (
    DATASETS,
    FLORIST,
    FULL,
    METHODS,
    PARTIAL,
    VANILLA,
    Condition,
    Lacking,
    sampled_labels,
)
from florist.experiments.paper.results import NotMeasured, OneGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from florist.common.training.history import EpochFigures
    from florist.experiments.paper.numbers import DatasetName
    from florist.experiments.paper.results import Results

#: Two AUCs, or two ACEs, are comparable if they differ by at most this.
COMPARABLE = 0.02
#: Tolerated deviation from a trend: the variation between seeds.
NOISE = 0.005
#: Strategies count as detected from this attack AUC on, and as hidden up to this one (folded).
DETECTED, HIDDEN = 0.85, 0.56


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """Whether a claim holds (None: not measured), and the numbers behind it."""

    holds: bool | None
    evidence: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A conclusion of the paper, and how to check it."""

    text: str
    where: str
    lacking: Lacking
    datasets: tuple[DatasetName, ...]
    decide: Callable[[OneGroup], tuple[bool, str]]

    def check(self, results: Results, dataset: DatasetName) -> ClaimVerdict:
        try:
            return ClaimVerdict(*self.decide(results.on(dataset, self.lacking)))
        except NotMeasured:
            return ClaimVerdict(None, "not measured")


def check_all(results: Results) -> list[tuple[Claim, dict[DatasetName, ClaimVerdict]]]:
    """Check every claim on each data set for which the paper makes it."""
    return [
        (claim, {dataset: claim.check(results, dataset) for dataset in claim.datasets})
        for claim in CLAIMS
    ]


# --- labels ---


def _less_data_is_worse(group: OneGroup) -> tuple[bool, str]:
    full = group("auc", FULL, 0)
    values = [group("auc", PARTIAL, ratio) for ratio in group.ratios(PARTIAL)]
    falls = all(later <= earlier + NOISE for earlier, later in pairwise([full, *values]))
    return falls and values[-1] < full, f"full {_shown([full])}; partial {_shown(values)}"


def _comparable_auc(*methods: str) -> Callable[[OneGroup], tuple[bool, str]]:
    def decide(group: OneGroup) -> tuple[bool, str]:
        partial = group("auc", PARTIAL, TABLE_RATIO)
        values = [group("auc", method, TABLE_RATIO) for method in methods]
        holds = all(abs(value - partial) <= COMPARABLE for value in values)
        return holds, f"{_shown(values)}; baseline-partial {_shown([partial])}"

    return decide


def _raises_ace(group: OneGroup) -> tuple[bool, str]:
    value, *baselines = (group("ace", m, TABLE_RATIO) for m in ("label-majority", PARTIAL, FULL))
    return value > max(baselines) + NOISE, f"{_shown([value])}; baselines {_shown(baselines)}"


def _calibration_cuts_ace(plain: str, *calibrated: str) -> Callable[[OneGroup], tuple[bool, str]]:
    """Check the ratio of the tables and all higher ones."""

    def decide(group: OneGroup) -> tuple[bool, str]:
        def after(ratio: float) -> list[float]:
            return [group("ace", method, ratio) for method in calibrated]

        ratios = [ratio for ratio in group.ratios(plain) if ratio >= TABLE_RATIO]
        holds = all(max(after(ratio)) < group("ace", plain, ratio) for ratio in ratios)
        told = (
            f"at {ratio} {group('ace', plain, ratio):.3f} becomes "
            + " or ".join(f"{value:.3f}" for value in after(ratio))
            for ratio in ratios
        )
        return holds, "; ".join(told)

    return decide


def _comparable_ace(*methods: str) -> Callable[[OneGroup], tuple[bool, str]]:
    def decide(group: OneGroup) -> tuple[bool, str]:
        partial = group("ace", PARTIAL, TABLE_RATIO)
        values = [group("ace", method, TABLE_RATIO) for method in methods]
        holds = all(value <= partial + COMPARABLE for value in values)
        return holds, f"{_shown(values)}; baseline-partial {_shown([partial])}"

    return decide


def _folded(
    group: OneGroup, methods: Iterable[str], ratio: float = TABLE_RATIO
) -> dict[str, float]:
    found = {method: group("attack_auc", method, ratio) for method in methods}
    return {method: max(value, 1 - value) for method, value in found.items()}


def _minority_leaks_most(group: OneGroup) -> tuple[bool, str]:
    found = _folded(group, METHODS[Lacking.labels])
    minority = found.pop("label-minority")
    worst = max(found, key=lambda method: found[method])
    return minority > found[worst], f"{minority:.3f}; next, {worst}, {found[worst]:.3f}"


def _pred_leaks_least(group: OneGroup) -> tuple[bool, str]:
    found = _folded(group, METHODS[Lacking.labels])
    pred = found.pop("label-random-pred")
    best = min(found, key=lambda method: found[method])
    return pred < found[best] + NOISE, f"{pred:.3f}; next, {best}, {found[best]:.3f}"


def _pred_ranks_worse_than_majority(group: OneGroup) -> tuple[bool, str]:
    pred, majority = (
        group("auc", method, TABLE_RATIO) for method in ("label-random-pred", "label-majority")
    )
    return pred < majority, f"{pred:.3f} against {majority:.3f}"


def _pred_ranks_better_than_others(group: OneGroup) -> tuple[bool, str]:
    others = ("label-minority", "label-neighbors", "label-random-pos")
    pred = group("auc", "label-random-pred", TABLE_RATIO)
    values = [group("auc", method, TABLE_RATIO) for method in others]
    return pred > max(values), f"{pred:.3f} against {_shown(values)}"


def _samples(group: OneGroup) -> tuple[list[float], list[float]]:
    conditions = sorted(
        (c for c in group.results if c == sampled_labels(group.dataset, c.samples)),
        key=lambda condition: condition.samples,
    )
    if len(conditions) < 2:
        raise NotMeasured(group.dataset, "samples")
    figures = group.results.figure
    return (
        [figures(condition, "auc").value for condition in conditions],
        [figures(condition, "attack_auc").folded for condition in conditions],
    )


def _samples_help(group: OneGroup) -> tuple[bool, str]:
    aucs, _ = _samples(group)
    return aucs[-1] > aucs[0], _shown(aucs)


def _samples_leak(group: OneGroup) -> tuple[bool, str]:
    _, attacks = _samples(group)
    rises = all(later >= earlier - NOISE for earlier, later in pairwise(attacks))
    return rises and attacks[-1] > attacks[0] + COMPARABLE, _shown(attacks)


# --- features ---


def _random_features_are_detected(group: OneGroup) -> tuple[bool, str]:
    methods = "fea-gaussian", "fea-random"
    told = [
        f"{_shown(_folded(group, methods, ratio).values())} at {group.lacking.symbol} = {ratio}"
        for ratio in group.ratios(methods[0])
    ]
    found = _folded(group, methods)
    return min(found.values()) >= DETECTED, "; ".join(told)


def _sampled_features_are_hidden(group: OneGroup) -> tuple[bool, str]:
    found = _folded(group, ("fea-sampling", "fea-sampling-tr", "fea-sampling-te"))
    return max(found.values()) <= HIDDEN, _shown(found.values())


def _drop_grows(method: str) -> Callable[[OneGroup], tuple[bool, str]]:
    """Check that the change of AUC against baseline-partial falls with the ratio to below 0."""

    def decide(group: OneGroup) -> tuple[bool, str]:
        changes = list(group.changes(method).values())
        if len(changes) < 2:
            raise NotMeasured(group.dataset, method)
        falls = all(later <= earlier + 100 * NOISE for earlier, later in pairwise(changes))
        return falls and changes[-1] < 0, ", ".join(f"{change:+.1f}%" for change in changes)

    return decide


# --- both ---


def _similar_auc(group: OneGroup) -> tuple[bool, str]:
    pairs = [
        [group("auc", method, ratio) for method in METHODS[Lacking.both]]
        for ratio in group.ratios(FLORIST)
    ]
    gap = max(abs(florist - vanilla) for florist, vanilla in pairs)
    return gap <= COMPARABLE, f"at most {gap:.3f} apart"


def _small_drop(group: OneGroup) -> tuple[bool, str]:
    change = group.change(FLORIST, TABLE_RATIO)
    return change > -100 * COMPARABLE, f"{change:+.2f}% at {TABLE_RATIO}"


def _losses_settle(group: OneGroup) -> tuple[bool, str]:
    """Check that the training and test losses of the last epoch are (nearly) the lowest."""
    first, last = [], []
    for ratio in group.ratios(FLORIST):
        epochs = _epochs(group, ratio)
        first.append(epochs[0])
        last.append(epochs[-1])
    training = all(a.loss >= b.loss - NOISE for a, b in zip(first, last, strict=True))
    test = [(a.log_loss or 0.0, b.log_loss or 0.0) for a, b in zip(first, last, strict=True)]
    settles = training and all(after <= before + NOISE for before, after in test)
    return settles, "test loss, first and last epoch: " + ", ".join(
        f"{before:.3f} to {after:.3f}" for before, after in test
    )


def _more_synthetic_is_slower(group: OneGroup) -> tuple[bool, str]:
    """Check that the AUC after the first epoch falls with the ratio."""
    ratios = group.ratios(FLORIST)
    values = [_epochs(group, ratio)[0].auc or 0.0 for ratio in ratios]
    return values[-1] == min(values) < max(values), f"AUC after one epoch {_shown(values)}"


# --- helpers ---


def _epochs(group: OneGroup, ratio: float) -> Sequence[EpochFigures]:
    """Return the epochs of the first seed."""
    condition = Condition(group.dataset, group.lacking, FLORIST, ratio)
    epochs = group.results.trials(condition)[0].epochs
    if len(epochs) < 2:
        raise NotMeasured(condition, "epochs")
    return epochs


def _shown(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)


CLAIMS = (
    Claim(
        "Less real data, lower AUC: baseline-partial falls further below baseline-full as β grows.",
        "section 3.1",
        Lacking.labels,
        ("criteo",),
        _less_data_is_worse,
    ),
    Claim(
        "label-majority has an AUC comparable with baseline-partial.",
        "sections 3.1, I.1",
        Lacking.labels,
        DATASETS,
        _comparable_auc("label-majority"),
    ),
    Claim(
        "label-majority has a larger ACE than the baselines.",
        "section 3.1",
        Lacking.labels,
        ("criteo",),
        _raises_ace,
    ),
    Claim(
        "Calibration, -tr or -te, cuts the ACE of label-majority.",
        "sections 3.1, I.1",
        Lacking.labels,
        DATASETS,
        _calibration_cuts_ace("label-majority", "label-majority-tr", "label-majority-te"),
    ),
    Claim(
        "Calibrated, its ACE is similar to that of the baselines.",
        "sections 3.1, I.1",
        Lacking.labels,
        DATASETS,
        _comparable_ace("label-majority-tr", "label-majority-te"),
    ),
    Claim(
        "label-minority leaks most among the strategies for labels.",
        "tables 1, 6",
        Lacking.labels,
        DATASETS,
        _minority_leaks_most,
    ),
    Claim(
        "label-random-pred leaks least among them, by the spectral attack.",
        "section 3.1, table 6",
        Lacking.labels,
        DATASETS,
        _pred_leaks_least,
    ),
    Claim(
        "label-random-pred has a lower AUC than label-majority,",
        "section 3.1",
        Lacking.labels,
        ("criteo",),
        _pred_ranks_worse_than_majority,
    ),
    Claim(
        "but a higher one than label-minority, label-neighbors and label-random-pos.",
        "appendix H",
        Lacking.labels,
        DATASETS,
        _pred_ranks_better_than_others,
    ),
    Claim(
        "Averaging more labels per row raises the AUC of label-random-pred",
        "table 5",
        Lacking.labels,
        ("avazu",),
        _samples_help,
    ),
    Claim(
        "at the cost of privacy: its attack AUC rises.",
        "table 5",
        Lacking.labels,
        ("avazu",),
        _samples_leak,
    ),
    Claim(
        "fea-gaussian and fea-random are detected: attack AUC close to 1.",
        "tables 2, 7",
        Lacking.features,
        DATASETS,
        _random_features_are_detected,
    ),
    Claim(
        "Their AUC is comparable with that of baseline-partial.",
        "sections 3.2, I.2",
        Lacking.features,
        DATASETS,
        _comparable_auc("fea-gaussian", "fea-random"),
    ),
    Claim(
        "fea-sampling is not detected, calibrated or not: attack AUC close to 0.5.",
        "tables 2, 7",
        Lacking.features,
        DATASETS,
        _sampled_features_are_hidden,
    ),
    Claim(
        "Calibration, -tr or -te, cuts the ACE of fea-sampling.",
        "sections 3.2, I.2",
        Lacking.features,
        DATASETS,
        _calibration_cuts_ace("fea-sampling", "fea-sampling-tr", "fea-sampling-te"),
    ),
    Claim(
        "The AUC of fea-sampling falls below that of baseline-partial, the more the higher α.",
        "sections 3.2, I.2",
        Lacking.features,
        DATASETS,
        _drop_grows("fea-sampling"),
    ),
    Claim(
        "FLORIST and FLORIST-vanilla have similar AUCs.",
        "section 3.3",
        Lacking.both,
        ("criteo",),
        _similar_auc,
    ),
    Claim(
        "FLORIST has a lower ACE than FLORIST-vanilla.",
        "sections 3.3, I.3",
        Lacking.both,
        DATASETS,
        _calibration_cuts_ace(VANILLA, FLORIST),
    ),
    Claim(
        "The AUC of FLORIST is little below that of baseline-partial at α = β = 0.5,",
        "tables 3, 8",
        Lacking.both,
        DATASETS,
        _small_drop,
    ),
    Claim(
        "and falls further below it at higher ratios.",
        "tables 3, 8",
        Lacking.both,
        DATASETS,
        _drop_grows(FLORIST),
    ),
    Claim(
        "Its training loss and test loss fall to stable points.",
        "section 3.3, figure 2 (h), (i)",
        Lacking.both,
        ("criteo",),
        _losses_settle,
    ),
    Claim(
        "The more synthetic data, the slower it converges.",
        "section 3.3, figure 2 (j)",
        Lacking.both,
        ("criteo",),
        _more_synthetic_is_slower,
    ),
)
