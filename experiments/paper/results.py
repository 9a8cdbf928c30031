"""Measured results, indexed like the paper's tables."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Literal

from florist.experiments.paper.recipes import FULL, PARTIAL, Condition, Lacking, baseline_full

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from florist.common.training.history import EpochFigures
    from florist.experiments.paper.numbers import DatasetName

What = Literal["auc", "ace", "attack_auc", "leak"]


class NotMeasured(LookupError):  # noqa: N818 - it reads as what happened
    """There is no trial of a condition, or it lacks this metric."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The metrics of one trial. None: not applicable; NaN: it could not be computed."""

    auc: float
    ace: float
    #: AUC of the spectral attack on the party with synthetic data, not folded, as in the paper.
    attack_auc: float | None = None
    #: Folded AUC of the strongest attack on that party, and the name of that attack.
    leak: float | None = None
    leak_by: str = ""
    #: Mean loss over ranges of steps, by the last step of each; synthetic labels included.
    losses: Mapping[int, float] = field(default_factory=dict)
    epochs: Sequence[EpochFigures] = ()


@dataclass(frozen=True, slots=True)
class SeedMean:
    """The mean over seeds, and the standard deviation if there are several seeds."""

    value: float
    spread: float | None

    @property
    def folded(self) -> float:
        return max(self.value, 1 - self.value)


class Results:
    """All trials of a reproduction."""

    def __init__(self, trials: Iterable[tuple[Condition, Measured]]) -> None:
        self._trials: dict[Condition, list[Measured]] = {}
        for condition, measured in trials:
            self._trials.setdefault(condition, []).append(measured)

    def __iter__(self) -> Iterator[Condition]:
        return iter(self._trials)

    def trials(self, condition: Condition) -> Sequence[Measured]:
        """Return the trials of a condition, one per seed.

        Raises:
            NotMeasured: there are none.
        """
        if condition not in self._trials:
            raise NotMeasured(condition)
        return self._trials[condition]

    def figure(self, condition: Condition, what: What) -> SeedMean:
        """Return the mean of a metric over the seeds.

        Raises:
            NotMeasured: a trial lacks the metric, or there are no trials.
        """
        values = [getattr(measured, what) for measured in self.trials(condition)]
        if any(value is None or value != value for value in values):  # noqa: PLR0124 - NaN
            raise NotMeasured(condition, what)
        return SeedMean(fmean(values), stdev(values) if len(values) > 1 else None)

    def find(self, condition: Condition, what: What) -> SeedMean | None:
        """Return the same as `figure`, or None if it was not measured."""
        try:
            return self.figure(condition, what)
        except NotMeasured:
            return None

    def ratios(self, dataset: DatasetName, lacking: Lacking, method: str) -> list[float]:
        """Return the ratios at which a method was measured with one label per row, ascending."""
        return sorted(
            condition.ratio
            for condition in self
            if (condition.dataset, condition.lacking, condition.method)
            == (dataset, lacking, method)
            and (condition.samples, condition.epochs) == (1, None)
        )

    def on(self, dataset: DatasetName, lacking: Lacking) -> OneGroup:
        return OneGroup(self, dataset, lacking)


@dataclass(frozen=True, slots=True)
class OneGroup:
    """Results of one data set and one of the paper's three groups, by method and ratio."""

    results: Results
    dataset: DatasetName
    lacking: Lacking

    def __call__(self, what: What, method: str, ratio: float) -> float:
        """Return the mean over seeds; `baseline-full` does not depend on the ratio.

        Raises:
            NotMeasured: it was not measured.
        """
        condition = Condition(self.dataset, self.lacking, method, ratio)
        if method == FULL:
            condition = baseline_full(self.dataset)
        return self.results.figure(condition, what).value

    def change(self, method: str, ratio: float, baseline: str = PARTIAL) -> float:
        """Return the relative change of the AUC against a baseline, in percent.

        Raises:
            NotMeasured: either was not measured.
        """
        return 100 * (self("auc", method, ratio) / self("auc", baseline, ratio) - 1)

    def changes(self, method: str) -> dict[float, float]:
        """Return the change against baseline-partial by ascending ratio, where measured."""
        found = {}
        for ratio in self.results.ratios(self.dataset, self.lacking, method):
            with suppress(NotMeasured):
                found[ratio] = self.change(method, ratio)
        return found

    def ratios(self, method: str) -> list[float]:
        """Return the ratios at which a method was measured, ascending.

        Raises:
            NotMeasured: it was not measured at all.
        """
        if found := self.results.ratios(self.dataset, self.lacking, method):
            return found
        raise NotMeasured(self.dataset, self.lacking, method)
