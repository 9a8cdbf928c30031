"""Permutation importance: how much depends on a column, measured by exchanging its values.

The values of one column are exchanged between people at random, and everything else stays. The
active party measures how much lower the AUC is then. It has received the embeddings already and
permutes its own columns, so no message is needed. The passive party has no labels, and measures how
much of what it sends depends on the column. Why it does not ask its peer: see
docs/concepts/worth.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from florist.common.evaluation.paired_estimates import (
    Difference,
    auc_term,
    plain_auc,
    plain_auc_elements,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from florist.common.core.progress import StepProgress
    from florist.common.data.encoded_columns import EncodedColumn
    from florist.common.data.features import Features
    from florist.common.evaluation.metrics import Floats
    from florist.common.evaluation.paired_estimates import CorrectedTerm, ScoredPeople

#: The largest number of people whose predictions are repeated for each column, the smallest, and
#: about how many predictions are made in total.
MOST_PEOPLE, FEWEST_PEOPLE, PREDICTIONS = 20_000, 2_000, 10_000_000


@dataclass(frozen=True, slots=True)
class ColumnImportance:
    """The importance of a column, with its 95 % interval."""

    column: str
    importance: Difference


def sampled_people(rows: int, columns: int, per_person: int = 1) -> int:
    """Return on how many of `rows` people to measure, so that it takes about a minute at most.

    Each column takes `per_person` predictions for each person.
    """
    affordable = PREDICTIONS // max(columns * per_person, 1)
    return min(rows, max(FEWEST_PEOPLE, min(affordable, MOST_PEOPLE)))


def own_importance(
    columns: Sequence[EncodedColumn],
    own: Features,
    score: Callable[[Features], ScoredPeople],
    random: np.random.Generator,
    progress: StepProgress,
) -> tuple[list[ColumnImportance], Difference]:
    """Return the importance of the active party's columns, and of all that the peer sends.

    The importance is the AUC of the model minus its AUC after the values are exchanged. For the
    peer, people exchange their embeddings.

    Args:
        columns: the columns, of `own`.
        own: the active party's features of the people who were scored.
        score: scores the same people, with the same partners, with other features.
        random: draws the permutations; they need not be secret.
        progress: counts columns.
    """
    progress.expect(len(columns))
    scored = score(own)
    found, importance = auc_term(scored), []
    for column in columns:
        changed = column.permuted(own, random.permutation(len(own)))
        difference = found.minus_corrected(auc_term(score(changed)))
        importance.append(ColumnImportance(column.name, difference))
        progress.advance(1)
    return _sorted(importance), _peer_importance(scored, found)


def _peer_importance(scored: ScoredPeople, found: CorrectedTerm) -> Difference:
    """Return the importance of the embeddings; shuffled predictions contain those of others."""
    assert scored.shuffled is not None
    times = scored.shuffled.predictions.shape[1]
    each = [scored.shuffled.predictions[:, time] for time in range(times)]
    value = np.mean([plain_auc(scored.labels, predictions).value for predictions in each])
    elements = np.mean([plain_auc_elements(scored.labels, p) for p in each], axis=0)
    return found.minus(float(value), elements)


def share_importance(
    columns: Sequence[EncodedColumn],
    features: Features,
    embed: Callable[[Features], Floats],
    random: np.random.Generator,
    progress: StepProgress,
) -> list[ColumnImportance]:
    """Return which part of the variance of a party's embeddings depends on each of its columns.

    It is the mean square of the change when the values are exchanged, divided by twice the
    variance: the total effect of Sobol' (Jansen's estimator) if columns are independent. 0: nothing
    depends on the column; 1: everything does. Parts overlap where columns act together, so their
    sum may exceed 1.

    Args:
        columns: the columns, of `features`.
        features: at least two rows.
        embed: returns what the model computes for each row, (rows, width).
        random: draws the permutations; they need not be secret, because nothing is sent.
        progress: counts columns.
    """
    progress.expect(len(columns))
    plain = embed(features)
    spread = ((plain - plain.mean(axis=0)) ** 2).sum(axis=1)
    importance = []
    for column in columns:
        changed = embed(column.permuted(features, random.permutation(len(features))))
        moved = ((changed - plain) ** 2).sum(axis=1) / 2
        importance.append(ColumnImportance(column.name, _ratio(moved, spread)))
        progress.advance(1)
    return _sorted(importance)


def _ratio(above: Floats, below: Floats) -> Difference:
    """Return the ratio of two means over the same rows; 0 if the lower one is 0."""
    mean = float(below.mean())
    if mean <= 0:
        return Difference(0.0, 0.0)
    ratio = float(above.mean()) / mean
    error = (above - ratio * below).std(ddof=1) / mean / math.sqrt(len(below))
    return Difference(ratio, float(error))


def _sorted(importance: list[ColumnImportance]) -> list[ColumnImportance]:
    """Return the most important columns first; equal ones keep their order."""
    return sorted(importance, key=lambda each: -each.importance.value)
