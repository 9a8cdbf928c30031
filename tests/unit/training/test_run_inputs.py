"""What has changed since a run was started is named, without values of the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from florist.common.training.run_inputs import (
    InputRecord,
    Inputs,
    TableContent,
    compared_settings,
)
from tests.support.settings import MINIMAL, parse

if TYPE_CHECKING:
    from pydantic import JsonValue

SETTINGS: dict[str, JsonValue] = {"optimiser.learning_rate": 0.002, "training.seed": 7}
TRAIN = TableContent({"age": "aa", "city": "bb"}, "11")


def changed(settings: dict[str, JsonValue] | None = None, train: TableContent = TRAIN) -> list[str]:
    record = InputRecord.of(Inputs(SETTINGS, {"train": TRAIN}))
    stored = InputRecord.model_validate_json(record.model_dump_json())
    return stored.differences(Inputs(SETTINGS | (settings or {}), {"train": train}))


def test_the_same_inputs_are_the_same() -> None:
    assert changed() == []


def test_a_changed_setting_is_named_with_both_values() -> None:
    (found,) = changed({"optimiser.learning_rate": 0.01})
    assert found == "optimiser.learning_rate was 0.002, now 0.01"


def test_a_seed_is_not_shown() -> None:
    assert changed({"training.seed": 8}) == ["training.seed has changed"]
    assert ": 7" not in InputRecord.of(Inputs(SETTINGS, {})).model_dump_json()


def test_settings_that_only_one_release_knows_are_not_compared() -> None:
    assert changed({"optimiser.new": 1}) == []


@pytest.mark.parametrize(
    ("train", "says"),
    [
        (
            TableContent({"age": "ac", "city": "bb"}, "11"),
            "data.train: column 'age' has",
        ),
        (TableContent({"city": "bb"}, "11"), r"column 'age' has changed"),
        (
            TableContent({"age": "aa", "city": "bb", "new": "c"}, "11"),
            r"column 'new' has changed",
        ),
        (TableContent({"city": "bb", "age": "aa"}, "11"), "the order of the features has changed"),
        (TableContent(TRAIN.columns, "12"), "the labels have changed"),
    ],
)
def test_changed_tables_are_named(train: TableContent, says: str) -> None:
    (found,) = changed(train=train)
    assert says in found


def test_a_table_without_labels_is_compared_by_its_features() -> None:
    record = InputRecord.of(Inputs({}, {"train": TRAIN}))
    assert record.changed_content("train", TableContent(TRAIN.columns)) == ""
    assert "'age'" in record.changed_content("train", TableContent({"age": "x", "city": "bb"}))
    assert record.changed_content("test", TRAIN) == ""  # nothing is known of it


def test_fingerprints_are_salted() -> None:
    one, two = (InputRecord.of(Inputs({}, {"train": TRAIN})) for _ in range(2))
    assert one.tables != two.tables
    assert "aa" not in one.tables["train"].values()
    assert "salt" not in repr(one)


def test_what_may_change_is_not_compared() -> None:
    keys = compared_settings(parse(MINIMAL))
    assert {"optimiser.learning_rate", "model.hidden", "data.preprocessing.scaling"} <= keys.keys()
    assert {"data.train.label", "training.seed", "agreement.training.epochs"} <= keys.keys()
    for free in ("data.train.path", "training.threads", "training.device", "agreement.serving"):
        assert not [key for key in keys if key.startswith(free)]
