"""Builds views from the messages of a link, recorded on either side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.view import ActiveStep, ActiveView, PassiveStep, PassiveView
from florist.common.transport.messages import EmbeddingBlock, GradientBlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from florist.common.audit.view import Ranks, Rows
    from florist.common.training.row_codec import RowCodec
    from florist.common.training.schedule import Schedule
    from florist.common.transport.recording import Record


def passive_view(
    records: Iterable[Record], schedule: Schedule, codec: RowCodec, uids: Ranks
) -> PassiveView:
    """Return what the passive party saw in all complete steps; `uids` are those that it has."""
    return PassiveView(schedule.union_size, uids, list(_steps(records, schedule, codec)))


def as_active(view: PassiveView, uids: Ranks, labels: npt.NDArray[np.integer]) -> ActiveView:
    """Return what the active party saw in the same steps, sharing the embeddings in memory.

    `uids` are those that the active party has, and `labels` their labels.
    """
    label_of = np.full(view.union_size, np.nan, dtype=np.float32)
    label_of[uids] = labels
    steps = [
        ActiveStep(step.epoch, step.ranks, step.embeddings, label_of[step.ranks])
        for step in view.steps
    ]
    return ActiveView(view.union_size, uids, steps)


def _steps(records: Iterable[Record], schedule: Schedule, codec: RowCodec) -> Iterator[PassiveStep]:
    """Yield all complete steps, in order. Embeddings without a gradient are ignored."""
    sent: dict[tuple[int, int], Rows] = {}
    parts: list[tuple[Rows, Rows]] = []
    for record in records:
        message = record.message
        if not isinstance(message, EmbeddingBlock | GradientBlock):
            continue
        rows = _rows(message, codec)
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
            yield PassiveStep(epoch, ranks, gradients, embeddings)


def _rows(block: EmbeddingBlock | GradientBlock, codec: RowCodec) -> Rows:
    count = len(block.values) // codec.row_bytes
    return codec.decode_block(block, block.step, block.start, count).numpy()
