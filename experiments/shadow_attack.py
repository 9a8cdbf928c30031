"""What an attacker needs to play both parties itself, with the people that it has.

It knows all sizes from the union, so it deals its own people out in the same shares. It has half of
the data of these people; for the other half it takes what the real run showed it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.attack_tools.embedding_frames import standardised
from florist.common.audit.attack_tools.inferred_labels import inferred_labels

if TYPE_CHECKING:
    from florist.common.audit.view import ActiveView, PassiveView, Ranks, Rows


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ShadowSplit:
    """Which rows of the attacker's own table each made-up party gets."""

    active: Ranks
    passive: Ranks


def shadow_split(rows: int, active: int, passive: int, union: int, seed: int = 0) -> ShadowSplit:
    """Deal out all rows in the shares of the real run.

    Args:
        rows: of the attacker's own table.
        active: size of the active party's set in the real run, dummies included.
        passive: that of the passive party's.
        union: that of their union.
        seed: of the deal.

    Raises:
        ValueError: no two sets have such a union.
    """
    shared = active + passive - union
    if not 0 <= shared <= min(active, passive):
        raise ValueError(f"sets of {active} and {passive} have no union of {union}")
    order = np.random.default_rng(seed).permutation(rows)
    both, either = round(rows * shared / union), round(rows * active / union)
    return ShadowSplit(
        np.sort(order[:either]), np.sort(np.concatenate([order[:both], order[either:]]))
    )


def guessed_labels(view: PassiveView) -> Ranks:
    """Of each UID to score, the label that its gradients showed most often: 1 for the rarer one.

    Half of the sightings or more count; 0 for a UID that was never seen.
    """
    means = view.means((ranks, label.astype(np.float64)) for ranks, label in inferred_labels(view))
    return (np.nan_to_num(means) >= 0.5).astype(np.int64)


def guessed_features(view: ActiveView) -> Rows:
    """Of each UID to score, its mean embedding, to stand for features; 0 if it was never seen."""
    total = np.zeros((view.union_size, view.steps[0].embeddings.shape[1]), dtype=np.float32)
    count = np.zeros((view.union_size, 1), dtype=np.float32)
    for steps in view.epochs():
        for step, rows in zip(steps, standardised(steps), strict=True):
            total[step.ranks] += rows
            count[step.ranks] += 1
    return (total / np.maximum(count, 1))[view.uids].astype(np.float32)
