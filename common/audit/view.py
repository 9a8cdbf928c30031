"""What a party saw of its peer, step by step over all epochs: the input of an attack.

UIDs are given by their ranks in the union. For each UID that the attacker has, an attack asks
whether the peer's data were real, which is the case if the peer has this UID too.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from florist.common.data.features import Features
    from florist.common.label_aggregate.first_model import Aggregate

    Ranks = npt.NDArray[np.int64]
    Rows = npt.NDArray[np.float32]
    Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PassiveStep:
    """One batch as the passive party saw it: gradients received and embeddings sent, by row."""

    epoch: int
    ranks: Ranks
    gradients: Rows
    embeddings: Rows
    #: The number of last columns that are added to the logits. Their gradients are `(D' - y)`
    #: divided by the size of the batch, so they show label and prediction exactly.
    logit_columns: int = 0
    #: The number of rows of the whole batch; None if the step has all of them.
    batch_size: int | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ActiveStep:
    """One batch as the active party saw it: embeddings received and its own labels, by row."""

    epoch: int
    ranks: Ranks
    embeddings: Rows
    #: NaN where the label is synthetic and was not kept.
    labels: Rows
    #: The number of last columns that are added to the logits.
    logit_columns: int = 0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OwnFeatures:
    """The attacker's own features: row `i` belongs to the `i`-th UID of the view."""

    rows: Features
    #: The number of categories of each categorical column.
    cardinalities: tuple[int, ...]


class StepView(Protocol):
    """What the views of both parties have in common: a batch's epoch, UIDs and embeddings."""

    @property
    def epoch(self) -> int:
        """The epoch, counted from 0."""

    @property
    def ranks(self) -> Ranks:
        """The rank of each row in the union."""

    @property
    def embeddings(self) -> Rows:
        """The embedding of each row."""

    @property
    def logit_columns(self) -> int:
        """The number of last columns of embeddings that are added to the logits."""


S = TypeVar("S", bound=StepView)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class View(Generic[S]):
    """All steps in order. A UID occurs at most once per epoch.

    `uids` are the UIDs to score, in ascending order: those that the attacker has. The others are
    known to be the peer's alone. A party that audits what it sends does not know which UIDs its
    peer has, so it scores all of them.
    """

    union_size: int
    uids: Ranks
    steps: Sequence[S]
    #: None if the attacker has no features, or if a party that audits itself does not know them.
    features: OwnFeatures | None = None
    #: Ranks of UIDs for which the peer is known to have synthetic data: the attacker's own dummies.
    #: They are not among `uids`. None if there are none.
    known_stand_ins: Ranks | None = None
    #: What the passive party learned from the label aggregate; None without one, and for the active
    #: party.
    aggregate: Aggregate | None = None

    def is_own(self) -> npt.NDArray[np.bool_]:
        """Return, for each UID of the union, whether it is one of `uids`."""
        own = np.zeros(self.union_size, dtype=np.bool_)
        own[self.uids] = True
        return own

    def epochs(self) -> Iterator[list[S]]:
        """Yield the steps of each epoch."""
        for _, steps in groupby(self.steps, key=lambda step: step.epoch):
            yield list(steps)

    def means(self, seen: Iterable[tuple[Ranks, npt.NDArray[np.floating]]]) -> Floats:
        """Return the mean of all values seen for each of `uids`; NaN where there was none.

        Args:
            seen: any number of pairs of distinct ranks and a finite value for each rank.
        """
        total = np.zeros(self.union_size)
        count = np.zeros(self.union_size, dtype=np.int64)
        for ranks, values in seen:
            total[ranks] += values
            count[ranks] += 1
        mean = np.full(self.union_size, np.nan)
        np.divide(total, count, out=mean, where=count > 0)
        return mean[self.uids]

    def changes(self, seen: Iterable[tuple[Ranks, npt.NDArray[np.floating]]]) -> Floats:
        """Return the last value minus the first one for each of `uids`; NaN with fewer than two.

        Args:
            seen: as in `means`.
        """
        first = np.full(self.union_size, np.nan)
        change = np.full(self.union_size, np.nan)
        for ranks, values in seen:
            known = ~np.isnan(first[ranks])
            change[ranks[known]] = (values - first[ranks])[known]
            first[ranks[~known]] = values[~known]
        return change[self.uids]


class PassiveView(View[PassiveStep]):
    """The view of the passive party, which asks whether the labels of its own UIDs are real."""

    __slots__ = ()


class ActiveView(View[ActiveStep]):
    """The view of the active party, which asks whether the features of its own UIDs are real."""

    __slots__ = ()


def concatenated(steps: Sequence[StepView]) -> tuple[Ranks, Rows]:
    """Return the ranks and embeddings of several steps."""
    return (
        np.concatenate([step.ranks for step in steps]),
        np.concatenate([step.embeddings for step in steps]).astype(np.float32),
    )


def relative(values: Floats) -> Floats:
    """Divide by the mean, so that batches and epochs of different scale can be averaged."""
    mean = values.mean() if len(values) else 0.0
    return values / mean if mean > 0 else np.zeros_like(values)


def quantiles(values: Floats) -> Floats:
    """Return the quantile of each value among all, from 0 to 1; equal values get the same one."""
    _, level, counts = np.unique(values, return_inverse=True, return_counts=True)
    middles = counts.cumsum() - counts / 2
    return middles[level] / max(len(values), 1)


def lengths(rows: npt.NDArray[np.floating]) -> Floats:
    """Return the Euclidean length of each row, computed in float64."""
    found: Floats = np.linalg.norm(rows.astype(np.float64), axis=1)
    return found
