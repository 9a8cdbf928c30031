"""Views with planted data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from florist.common.audit.statistics import evaluate
from florist.common.audit.view import (
    ActiveStep,
    ActiveView,
    OwnFeatures,
    PassiveStep,
    PassiveView,
)
from florist.common.data.features import Features

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
    gradients: Array,
    embeddings: Array | None = None,
    uids: Array | None = None,
    features: OwnFeatures | None = None,
    logit_columns: int = 0,
) -> PassiveView:
    """Return a view, given arrays of shape (epochs, union, width)."""
    epochs, size, _ = gradients.shape
    gradients = gradients.astype(np.float32)
    sent = gradients if embeddings is None else embeddings.astype(np.float32)
    steps = [
        PassiveStep(epoch, ranks, gradients[epoch, ranks], sent[epoch, ranks], logit_columns)
        for epoch, ranks in batches(epochs, size)
    ]
    return PassiveView(size, np.arange(size) if uids is None else uids, steps, features)


def active(
    embeddings: Array,
    labels: Array | None = None,
    uids: Array | None = None,
    features: OwnFeatures | None = None,
) -> ActiveView:
    """Return a view, given embeddings (epochs, union, width) and labels, NaN for no label."""
    epochs, size, _ = embeddings.shape
    embeddings = embeddings.astype(np.float32)
    known = (np.zeros(size) if labels is None else labels).astype(np.float32)
    steps = [
        ActiveStep(epoch, ranks, embeddings[epoch, ranks], known[ranks])
        for epoch, ranks in batches(epochs, size)
    ]
    return ActiveView(size, np.arange(size) if uids is None else uids, steps, features)


def own_features(numeric: Array, categories: Array) -> OwnFeatures:
    """Return features, one row per UID of a view."""
    codes = np.ascontiguousarray(categories, dtype=np.int32)
    rows = Features(np.ascontiguousarray(numeric, dtype=np.float32), codes)
    return OwnFeatures(rows, tuple(int(column.max()) + 1 for column in codes.T))


def random_features(size: int, seed: int = 9) -> OwnFeatures:
    """Return features that nothing else depends on."""
    random = np.random.default_rng(seed)
    return own_features(random.random((size, 2)), random.integers(0, 5, (size, 3)))


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
    return with_steps(view, steps)


def with_steps(view: V, steps: Sequence[Any]) -> V:
    """Return the view with other steps."""
    changes: dict[str, Any] = {"steps": steps}
    return replace(view, **changes)


def half_real(size: int, seed: int = 1) -> npt.NDArray[np.bool_]:
    truth: npt.NDArray[np.bool_] = np.random.default_rng(seed).permutation(size) % 2 == 0
    return truth


def auc_of(scores: Array, is_real: Array) -> float:
    return evaluate("any", scores, is_real, samples=2).auc.value


def is_at_chance(scores: Array) -> bool:
    """Return whether the scores are at chance for most of twenty unrelated truths.

    Of intervals of 95%, fewer than 15 in 20 hold the true figure once in 3,000 times. Scores that
    are all NaN have no figure, and are not at chance.
    """
    found = [
        evaluate("any", scores, half_real(len(scores), seed), samples=100).auc for seed in range(20)
    ]
    return sum(auc.low <= 0.5 <= auc.high for auc in found) >= 15
