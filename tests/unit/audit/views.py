"""Views with planted data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from florist.common.audit.statistics import evaluate
from florist.common.audit.view import ActiveStep, ActiveView, PassiveStep, PassiveView

if TYPE_CHECKING:
    from collections.abc import Iterator

    Array = npt.NDArray[Any]

V = TypeVar("V", PassiveView, ActiveView)

BATCH = 100


def batches(epochs: int, union_size: int, seed: int = 0) -> Iterator[tuple[int, Array]]:
    """Yield batches in which every UID occurs once per epoch, in a new order."""
    random = np.random.default_rng(seed)
    for epoch in range(epochs):
        order = random.permutation(union_size)
        for start in range(0, union_size, BATCH):
            yield epoch, order[start : start + BATCH]


def passive(
    gradients: Array, embeddings: Array | None = None, uids: Array | None = None
) -> PassiveView:
    """Return a view, given arrays of shape (epochs, union, width)."""
    epochs, size, _ = gradients.shape
    gradients = gradients.astype(np.float32)
    sent = gradients if embeddings is None else embeddings.astype(np.float32)
    steps = [
        PassiveStep(epoch, ranks, gradients[epoch, ranks], sent[epoch, ranks])
        for epoch, ranks in batches(epochs, size)
    ]
    return PassiveView(size, np.arange(size) if uids is None else uids, steps)


def active(embeddings: Array, labels: Array | None = None, uids: Array | None = None) -> ActiveView:
    """Return a view, given embeddings (epochs, union, width) and labels, NaN for no label."""
    epochs, size, _ = embeddings.shape
    embeddings = embeddings.astype(np.float32)
    known = (np.zeros(size) if labels is None else labels).astype(np.float32)
    steps = [
        ActiveStep(epoch, ranks, embeddings[epoch, ranks], known[ranks])
        for epoch, ranks in batches(epochs, size)
    ]
    return ActiveView(size, np.arange(size) if uids is None else uids, steps)


def in_float16(view: V) -> V:
    """Return the same view in half precision."""
    steps: list[Any] = [
        replace(
            step,
            **{
                name: getattr(step, name).astype(np.float16)
                for name in ("embeddings", "gradients")
                if hasattr(step, name)
            },
        )
        for step in view.steps
    ]
    return type(view)(view.union_size, view.uids, steps)


def half_real(size: int, seed: int = 1) -> npt.NDArray[np.bool_]:
    truth: npt.NDArray[np.bool_] = np.random.default_rng(seed).permutation(size) % 2 == 0
    return truth


def is_at_chance(scores: Array) -> bool:
    """Return whether the scores are at chance for most of twenty unrelated truths.

    Of intervals of 95%, fewer than 15 in 20 hold the true figure once in 3,000 times.
    """
    found = [
        evaluate("any", scores, half_real(len(scores), seed), samples=100).auc for seed in range(20)
    ]
    return sum(auc.low <= 0.5 <= auc.high for auc in found) >= 15
