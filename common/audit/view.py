"""What a party saw of its peer, step by step over all epochs: all that an attack has to go by.

UIDs are ranks in the union. An attack asks, for each UID of the attacker's own, whether the peer's
data were real, which they are if the peer has this UID too.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np

from florist.common.transport.messages import EmbeddingBlock, GradientBlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from florist.common.training.blocks import Wire
    from florist.common.training.schedule import Schedule
    from florist.common.transport.recording import Record

    Ranks = npt.NDArray[np.int64]
    Rows = npt.NDArray[np.float32]
    Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PassiveStep:
    """One batch as the passive party saw it: what came, and what it had sent, row by row."""

    epoch: int
    ranks: Ranks
    gradients: Rows
    embeddings: Rows


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ActiveStep:
    """One batch as the active party saw it: what came, and its own labels, row by row."""

    epoch: int
    ranks: Ranks
    embeddings: Rows
    #: NaN where a label is synthetic and not kept.
    labels: Rows


class Step(Protocol):
    @property
    def epoch(self) -> int: ...
    @property
    def ranks(self) -> Ranks: ...


S = TypeVar("S", bound=Step)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class View(Generic[S]):
    """All steps in order; a UID comes at most once in an epoch.

    `uids` are those to score, ascending: the attacker's own. Others are known to be the peer's. A
    party that audits what it sends does not know which UIDs its peer has, and takes all.
    """

    union_size: int
    uids: Ranks
    steps: Sequence[S]

    def is_own(self) -> npt.NDArray[np.bool_]:
        """For each UID of the union, whether it is one of `uids`."""
        own = np.zeros(self.union_size, dtype=np.bool_)
        own[self.uids] = True
        return own

    def epochs(self) -> Iterator[list[S]]:
        """The steps of one epoch after the other."""
        for _, steps in groupby(self.steps, key=lambda step: step.epoch):
            yield list(steps)

    def means(self, seen: Iterable[tuple[Ranks, npt.NDArray[np.floating]]]) -> Floats:
        """For each of `uids` the mean of the values seen with it; NaN where there was none.

        Args:
            seen: ranks, none of them twice, and a finite value for each; any number of times.
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
        """As `means`, the last value less the first one; NaN where there were not two."""
        first = np.full(self.union_size, np.nan)
        change = np.full(self.union_size, np.nan)
        for ranks, values in seen:
            known = ~np.isnan(first[ranks])
            change[ranks[known]] = (values - first[ranks])[known]
            first[ranks[~known]] = values[~known]
        return change[self.uids]


class PassiveView(View[PassiveStep]):
    """The passive party attacks: were the labels of its own UIDs real?"""

    __slots__ = ()


class ActiveView(View[ActiveStep]):
    """The active party attacks: were the features of its own UIDs real?"""

    __slots__ = ()


def relative(values: Floats) -> Floats:
    """In units of their mean, so that batches and epochs of different scale can be averaged."""
    mean = values.mean() if len(values) else 0.0
    return values / mean if mean > 0 else np.zeros_like(values)


def quantiles(values: Floats) -> Floats:
    """Where each stands among them, from 0 to 1, equals alike: comparable whatever their scale."""
    _, level, counts = np.unique(values, return_inverse=True, return_counts=True)
    middles = counts.cumsum() - counts / 2
    return middles[level] / max(len(values), 1)


def lengths(rows: npt.NDArray[np.floating]) -> Floats:
    """Of each row, which may be in any precision."""
    found: Floats = np.linalg.norm(rows.astype(np.float64), axis=1)
    return found


def passive_view(
    records: Iterable[Record], schedule: Schedule, wire: Wire, uids: Ranks
) -> PassiveView:
    """From what crossed a link, recorded on either side of it."""
    steps = [
        PassiveStep(whole.epoch, whole.ranks, whole.gradients, whole.embeddings)
        for whole in _exchanges(records, schedule, wire)
    ]
    return PassiveView(schedule.union_size, uids, steps)


def active_view(
    records: Iterable[Record],
    schedule: Schedule,
    wire: Wire,
    uids: Ranks,
    labels: npt.NDArray[np.integer],
) -> ActiveView:
    """From what crossed a link, recorded on either side of it; `labels` are those of `uids`."""
    return as_active(passive_view(records, schedule, wire, uids), uids, labels)


def as_active(view: PassiveView, uids: Ranks, labels: npt.NDArray[np.integer]) -> ActiveView:
    """What the active party saw in the same steps; embeddings are in memory once."""
    label_of = np.full(view.union_size, np.nan, dtype=np.float32)
    label_of[uids] = labels
    steps = [
        ActiveStep(step.epoch, step.ranks, step.embeddings, label_of[step.ranks])
        for step in view.steps
    ]
    return ActiveView(view.union_size, uids, steps)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Exchange:
    """A batch of which every embedding was answered by its gradient."""

    epoch: int
    ranks: Ranks
    embeddings: Rows
    gradients: Rows


def _exchanges(records: Iterable[Record], schedule: Schedule, wire: Wire) -> Iterator[_Exchange]:
    """All complete steps, in order. Embeddings without a gradient are ignored."""
    sent: dict[tuple[int, int], Rows] = {}
    parts: list[tuple[Rows, Rows]] = []
    for record in records:
        message = record.message
        if not isinstance(message, EmbeddingBlock | GradientBlock):
            continue
        rows = _rows(message, wire)
        if isinstance(message, EmbeddingBlock):
            sent[message.step, message.start] = rows
            continue
        if message.start == 0:
            parts.clear()
        parts.append((sent.pop((message.step, message.start)), rows))
        epoch, step = divmod(message.step, schedule.steps_per_epoch)
        ranks = schedule.batch(epoch, step)
        if message.start + len(rows) == len(ranks):
            embeddings, gradients = (np.concatenate(kind) for kind in zip(*parts, strict=True))
            yield _Exchange(epoch, ranks, embeddings, gradients)


def _rows(block: EmbeddingBlock | GradientBlock, wire: Wire) -> Rows:
    count = len(block.values) // wire.row_bytes
    return wire.to_rows(block, block.step, block.start, count).numpy()
