"""What was measured, looked up as the paper's tables are."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Literal

from florist.experiments.recipes import FULL, PARTIAL, Condition, Lacking, baseline_full

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from florist.common.training.history import EpochFigures
    from florist.experiments.paper_figures import DatasetName

What = Literal["auc", "ace", "attack_auc", "leak"]


class NotMeasured(LookupError):  # noqa: N818 - it reads as what happened
    """There is no trial of a condition, or it has no such figure."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one trial. None: there is no such figure; NaN: it could not be computed."""

    auc: float
    ace: float
    #: The paper's: of the spectral attack on the party whose data are synthetic, not folded at 0.5.
    attack_auc: float | None = None
    #: Folded AUC of the strongest of all attacks on that party, and its name.
    leak: float | None = None
    leak_by: str = ""
    #: Mean loss of stretches of steps, and the last step of each; synthetic labels included.
    losses: Mapping[int, float] = field(default_factory=dict)
    epochs: Sequence[EpochFigures] = ()


@dataclass(frozen=True, slots=True)
class SeedMean:
    """The mean over seeds, and their standard deviation if there are several."""

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
        """One per seed.

        Raises:
            NotMeasured: there is none.
        """
        if condition not in self._trials:
            raise NotMeasured(condition)
        return self._trials[condition]

    def figure(self, condition: Condition, what: What) -> SeedMean:
        """The mean over the seeds.

        Raises:
            NotMeasured: a trial lacks it, or there is none.
        """
        values = [getattr(measured, what) for measured in self.trials(condition)]
        if any(value is None or value != value for value in values):  # noqa: PLR0124 - NaN
            raise NotMeasured(condition, what)
        return SeedMean(fmean(values), stdev(values) if len(values) > 1 else None)

    def find(self, condition: Condition, what: What) -> SeedMean | None:
        """As `figure`; None where it was not measured."""
        try:
            return self.figure(condition, what)
        except NotMeasured:
            return None

    def ratios(self, dataset: DatasetName, lacking: Lacking, method: str) -> list[float]:
        """At which this was measured, with one label per row, rising."""
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
    """One data set and one of the paper's three groups: figures by method and ratio."""

    results: Results
    dataset: DatasetName
    lacking: Lacking

    def __call__(self, what: What, method: str, ratio: float) -> float:
        """Mean over the seeds; of `baseline-full` whatever the ratio.

        Raises:
            NotMeasured: it was not.
        """
        condition = Condition(self.dataset, self.lacking, method, ratio)
        if method == FULL:
            condition = baseline_full(self.dataset)
        return self.results.figure(condition, what).value

    def change(self, method: str, ratio: float, baseline: str = PARTIAL) -> float:
        """Of the AUC against a baseline's, in percent of it.

        Raises:
            NotMeasured: either was not.
        """
        return 100 * (self("auc", method, ratio) / self("auc", baseline, ratio) - 1)

    def changes(self, method: str) -> dict[float, float]:
        """The change against baseline-partial by rising ratio, where both were measured."""
        found = {}
        for ratio in self.results.ratios(self.dataset, self.lacking, method):
            with suppress(NotMeasured):
                found[ratio] = self.change(method, ratio)
        return found

    def ratios(self, method: str) -> list[float]:
        """At which it was measured, rising.

        Raises:
            NotMeasured: at none.
        """
        if found := self.results.ratios(self.dataset, self.lacking, method):
            return found
        raise NotMeasured(self.dataset, self.lacking, method)
