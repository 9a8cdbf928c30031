"""Tests of the settings of the label aggregate."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from florist.common.settings.agreement import (
    AUTO_AGGREGATE_FROM,
    AggregatePrivacy,
    TrainingAgreement,
)


def test_auto_follows_the_size_of_the_union() -> None:
    agreement = TrainingAgreement()
    assert agreement.resolved(AUTO_AGGREGATE_FROM - 1).known_aggregate_privacy is None
    assert agreement.resolved(AUTO_AGGREGATE_FROM).known_aggregate_privacy == AggregatePrivacy()
    with pytest.raises(ValueError, match="not resolved"):
        _ = agreement.known_aggregate_privacy


def test_auto_needs_a_wide_part() -> None:
    without = TrainingAgreement.model_validate(
        {"wide": False, "cut_width": 8, "stand_ins": "plain"}
    )
    assert without.resolved(10**6).known_aggregate_privacy is None


def test_an_explicit_guarantee_is_kept_for_any_size() -> None:
    agreement = TrainingAgreement.model_validate({"aggregate": {"privacy": {"epsilon": 0.5}}})
    assert agreement.resolved(50).known_aggregate_privacy == AggregatePrivacy(epsilon=0.5)
    none = TrainingAgreement.model_validate({"aggregate": {"privacy": None}})
    assert none.resolved(10**7).known_aggregate_privacy is None


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"aggregate": {"privacy": "automatic"}}, "must be `auto`, null"),
        ({"aggregate": {"privacy": {"epsilon": 0}}}, "greater than or equal"),
        ({"aggregate": {"privacy": {"delta": 1.0}}}, "less than 1"),
        ({"aggregate": {"min_count": 0}}, "greater than or equal to 1"),
        ({"aggregate": {"uses": []}}, "at least 1 item"),
        ({"aggregate": {"uses": ["labels"]}}, "'weights' or 'donors'"),
        (
            {"wide": False, "cut_width": 8, "stand_ins": "plain", "aggregate": {"privacy": {}}},
            "needs wide: true",
        ),
    ],
)
def test_errors_name_the_fix(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        TrainingAgreement.model_validate(changes)


def test_donors_from_the_start_need_the_aggregate_and_oblivious_stand_ins() -> None:
    def has(**changes: object) -> bool:
        agreement = TrainingAgreement.model_validate({"aggregate": {"privacy": {}}} | changes)
        return agreement.resolved(100).has_donors_from_the_start

    assert has()
    assert not has(stand_ins="plain")
    assert not has(aggregate={"privacy": {}, "uses": ["weights"]})
    assert not has(aggregate={"privacy": None})
