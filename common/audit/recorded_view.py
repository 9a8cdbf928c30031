"""Builds views from what the parties saw of each other, recorded on either side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.view import ActiveStep, ActiveView, PassiveStep, PassiveView
from florist.common.training.class_weights import without_weights

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from florist.common.audit.view import Ranks, Rows
    from florist.common.training.row_codec import RowCodec
    from florist.common.training.schedule import Schedule
    from florist.common.training.seen_rows import SeenRows


def passive_view(
    seen: Iterable[SeenRows],
    schedule: Schedule,
    codec: RowCodec,
    uids: Ranks,
    logit_columns: int = 0,
    weights: tuple[float, float] | None = None,
) -> PassiveView:
    """Return what the passive party saw in all complete steps.

    `uids` are those that it has. The last `logit_columns` columns of embeddings are added to the
    logits. `weights` are the class weights of the loss, which it undoes.
    """
    steps = list(_steps(seen, schedule, codec, logit_columns, weights))
    return PassiveView(schedule.union_size, uids, steps)


def as_active(view: PassiveView, uids: Ranks, labels: npt.NDArray[np.integer]) -> ActiveView:
    """Return what the active party saw in the same steps, sharing the embeddings in memory.

    `uids` are those that the active party has, and `labels` their labels.
    """
    label_of = np.full(view.union_size, np.nan, dtype=np.float32)
    label_of[uids] = labels
    steps = [
        ActiveStep(
            step.epoch, step.ranks, step.embeddings, label_of[step.ranks], step.logit_columns
        )
        for step in view.steps
    ]
    return ActiveView(view.union_size, uids, steps)


def _steps(
    seen: Iterable[SeenRows],
    schedule: Schedule,
    codec: RowCodec,
    logit_columns: int,
    weights: tuple[float, float] | None,
) -> Iterator[PassiveStep]:
    """Yield all complete steps, in order."""
    parts: list[tuple[Rows, Rows]] = []
    for part in seen:
        if part.start == 0:
            parts.clear()
        parts.append((codec.decode(part.embeddings).numpy(), codec.decode(part.gradients).numpy()))
        epoch, step = divmod(part.step, schedule.steps_per_epoch)
        ranks = schedule.batch(epoch, step)
        if part.start + len(parts[-1][0]) == len(ranks):
            embeddings, gradients = (np.concatenate(kind) for kind in zip(*parts, strict=True))
            gradients = without_weights(gradients, weights, len(ranks))
            yield PassiveStep(epoch, ranks, gradients, embeddings, logit_columns)
