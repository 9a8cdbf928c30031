"""Widths on the wire, and batch size and learning rate for the size of the union."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from florist.common.settings.agreement import (
    AUTO_AGGREGATE_FROM,
    AggregateAgreement,
    AggregatePrivacy,
    TrainingAgreement,
)


@pytest.mark.parametrize(
    ("changes", "outputs", "wire_width"),
    [
        ({"cut_width": 128}, 1, 129),
        ({"cut_width": 128, "classes": 5}, 5, 133),
        ({"cut_width": 128, "wide": False, "stand_ins": "plain"}, 1, 128),
        ({"wide": False, "stand_ins": "plain", "classes": 5, "cut_width": 8}, 5, 8),
    ],
)
def test_the_wide_part_follows_the_cut(
    changes: dict[str, object], outputs: int, wire_width: int
) -> None:
    agreement = TrainingAgreement.model_validate(changes)
    assert agreement.outputs == outputs
    assert agreement.wire_width == wire_width
    assert agreement.wide_outputs == wire_width - agreement.cut_width


def test_numbers_are_kept() -> None:
    for privacy in (None, AggregatePrivacy(epsilon=2.0)):
        aggregate = AggregateAgreement(privacy=privacy)
        agreement = TrainingAgreement(batch_size=100, learning_rate=0.5, aggregate=aggregate)
        assert agreement.resolved(10**6) == agreement
        assert agreement.most_aggregate_privacy == privacy
        assert agreement.steps(1001) == 11


def test_an_aggregate_by_auto_needs_a_large_union_and_a_wide_part() -> None:
    agreement = TrainingAgreement()
    assert agreement.most_aggregate_privacy == AggregatePrivacy()
    for size, privacy in (
        (AUTO_AGGREGATE_FROM, AggregatePrivacy()),
        (AUTO_AGGREGATE_FROM - 1, None),
    ):
        assert agreement.resolved(size).known_aggregate_privacy == privacy
    narrow = TrainingAgreement(cut_width=8, wide=False, stand_ins="plain")
    assert narrow.most_aggregate_privacy is None
    assert narrow.resolved(10**6).known_aggregate_privacy is None
    with pytest.raises(ValueError, match="not resolved"):
        _ = agreement.known_aggregate_privacy


@pytest.mark.parametrize(
    ("union_size", "epochs", "batch_size", "rate"),
    [
        (1, 1, 64, 0.005),
        (1000, 1, 64, 0.005),
        (18_000, 1, 128, 0.005),
        (82_000, 1, 256, 0.0033),
        (82_000, 3, 256, 0.0019),
        (10**6, 1, 1024, 0.0019),
        (10**7, 1, 4096, 0.0012),
        (10**8, 1, 8192, 0.00054),
        (10**10, 1, 8192, 0.000054),
    ],
)
def test_auto(union_size: int, epochs: int, batch_size: int, rate: float) -> None:
    agreement = TrainingAgreement(epochs=epochs).resolved(union_size)
    assert (agreement.batch_size, agreement.learning_rate) == (batch_size, rate)
    assert agreement.resolved(1) == agreement


@given(st.integers(1, 2**40))
def test_batches_are_powers_of_two_near_the_root_of_the_size(union_size: int) -> None:
    size = TrainingAgreement().resolved(union_size).known_batch_size
    assert size.bit_count() == 1
    if 64 < size < 8192:
        assert size**2 / 2 <= union_size < 2 * size**2


def test_more_people_get_larger_batches_and_smaller_rates() -> None:
    resolved = [TrainingAgreement().resolved(10**power) for power in range(1, 10)]
    for fewer, more in pairwise(resolved):
        assert fewer.known_batch_size <= more.known_batch_size
        assert fewer.known_learning_rate >= more.known_learning_rate


def test_auto_must_be_resolved_first() -> None:
    agreement = TrainingAgreement()
    with pytest.raises(ValueError, match="batch size"):
        agreement.known_batch_size  # noqa: B018 - it raises
    with pytest.raises(ValueError, match="learning rate"):
        agreement.known_learning_rate  # noqa: B018 - it raises


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": "large"}, "batch_size"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": "high"}, "learning_rate"),
        ({"rate_schedule": "cosine"}, "rate_schedule"),
    ],
)
def test_other_values_are_refused(values: dict[str, object], key: str) -> None:
    with pytest.raises(ValidationError, match=key):
        TrainingAgreement.model_validate(values)
