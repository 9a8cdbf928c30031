"""Permutation importance: known truth, coverage, and what a permuted column would reveal."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from florist.common.core.progress import NoProgress
from florist.common.data.encoded_columns import EncodedColumn
from florist.common.data.features import Features
from florist.common.evaluation import metrics
from florist.common.evaluation.importance import (
    FEWEST_PEOPLE,
    MOST_PEOPLE,
    own_importance,
    sampled_people,
    share_importance,
)
from florist.common.evaluation.paired_estimates import Difference, ScoredPeople
from florist.common.evaluation.shuffled_estimate import Shuffled, shuffles

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

WEIGHTS = np.array([1.0, 0.4, 0.0])
COLUMNS = tuple(EncodedColumn(name, (place,), ()) for place, name in enumerate("abc"))


def prediction(x: Floats, e: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(1 - 1.2 * (x @ WEIGHTS + e))))


def people(rows: int, random: np.random.Generator) -> tuple[Floats, Floats, Labels]:
    x = random.standard_normal((rows, 3)).astype(np.float32).astype(np.float64)
    e = 0.3 * x[:, 0] + math.sqrt(1 - 0.3**2) * random.standard_normal(rows)
    labels = random.random(rows) < 1 / (1 + np.exp(1 - 0.8 * (x @ WEIGHTS + e)))
    return x, e, labels.astype(np.int64)


def numeric(x: Floats) -> Features:
    values = np.ascontiguousarray(x, dtype=np.float32)
    return Features(values, np.empty((len(x), 0), dtype=np.int32))


@cache
def truth() -> dict[str, float]:
    random = np.random.default_rng(0)
    x, e, labels = people(300_000, random)
    whole = metrics.auc(labels, prediction(x, e))
    drops = {"peer": whole - metrics.auc(labels, prediction(x, random.permutation(e)))}
    for column in COLUMNS:
        changed = column.permuted(numeric(x), random.permutation(len(x))).numeric
        drops[column.name] = whole - metrics.auc(labels, prediction(changed.astype(float), e))
    return drops


def measured(rows: int, shared: int, random: np.random.Generator) -> dict[str, Difference]:
    x, e, labels = people(rows, random)
    others = random.permutation(rows) >= shared
    e[others] = people(rows - shared, random)[1]
    partners = shuffles(rows, 4, random)

    def score(own: Features) -> ScoredPeople:
        values = own.numeric.astype(float)
        each = np.stack([prediction(values, e[p]) for p in partners.T], axis=1)
        return ScoredPeople(labels, prediction(values, e), Shuffled(each, partners), shared, 0.0)

    found, peer = own_importance(COLUMNS, numeric(x), score, random, NoProgress())
    values = [each.importance.value for each in found]
    assert values == sorted(values, reverse=True)
    return {each.column: each.importance for each in found} | {"peer": peer}


@pytest.mark.parametrize("shared", [300, 800])
def test_own_importance_is_unbiased_and_covers(shared: int) -> None:
    random = np.random.default_rng(shared)
    replications = 100
    found = [measured(800, shared, random) for _ in range(replications)]
    for name, true in truth().items():
        values = np.array([each[name].value for each in found])
        if name == "c":  # no weight at all
            assert not values.any()
            continue
        assert abs(values.mean() - true) < 3.5 * values.std() / math.sqrt(replications)
        coverage = np.mean([each[name].low <= true <= each[name].high for each in found])
        assert 0.88 <= coverage <= 1


def test_the_importance_of_own_columns_for_what_is_sent() -> None:
    """For a sum of independent columns, it is their part of the variance."""
    random = np.random.default_rng(1)
    weights = np.array([2.0, 1.0, 0.0])
    x = random.standard_normal((4000, 3))
    found = share_importance(
        COLUMNS,
        numeric(x),
        lambda features: (features.numeric @ weights)[:, None].astype(np.float64),
        random,
        NoProgress(),
    )
    assert [each.column for each in found] == ["a", "b", "c"]
    for each, true in zip(found, (0.8, 0.2, 0.0), strict=True):
        assert each.importance.low <= true <= each.importance.high
        assert each.importance.half_width < 0.05


def test_a_constant_output_has_no_important_column() -> None:
    found = share_importance(
        COLUMNS,
        numeric(np.arange(30.0).reshape(10, 3)),
        lambda features: np.ones((len(features), 2)),
        np.random.default_rng(0),
        NoProgress(),
    )
    assert {each.importance for each in found} == {Difference(0.0, 0.0)}


def test_the_sample_shrinks_with_the_number_of_columns() -> None:
    assert sampled_people(500, 3) == 500
    assert sampled_people(1_000_000, 3, 5) == MOST_PEOPLE
    assert FEWEST_PEOPLE < sampled_people(1_000_000, 300, 5) < MOST_PEOPLE
    assert sampled_people(1_000_000, 10**6, 5) == FEWEST_PEOPLE


def test_embeddings_with_a_permuted_column_would_reveal_its_values() -> None:
    """Why the passive party does not send them: two numbers of a person differ by one column.

    With late fusion, a person's number is a sum over columns, of which one of eight explains an
    eighth. The difference from the number with a permuted column contains nothing but that column,
    of the person and of another one.
    """
    random = np.random.default_rng(2)
    rows, columns, values = 4000, 8, 5
    table = random.integers(0, values, (rows, columns))
    weights = random.normal(size=(columns, values))
    weights = (weights - weights.mean(axis=1, keepdims=True)) / weights.std(axis=1, keepdims=True)
    permuted = table.copy()
    permuted[:, 0] = random.permutation(table[:, 0])
    sent, again = (weights[np.arange(columns), t].sum(axis=1) for t in (table, permuted))
    part = weights[0, table[:, 0]]

    def explained(*seen: Floats) -> float:
        """Return the part of the column's variance that a linear fit of what is seen explains."""
        inputs = np.stack((*seen, np.ones(rows)), axis=1)
        left = part - inputs @ np.linalg.lstsq(inputs, part, rcond=None)[0]
        return float(1 - left.var() / part.var())

    assert explained(sent) < 0.15
    assert explained(sent, again) > 0.5
