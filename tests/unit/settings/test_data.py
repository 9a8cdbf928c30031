"""Tables in a configuration: formats, columns and held-out tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from florist.common.settings.formats import AVAZU, CRITEO
from tests.support.settings import parse, problem, with_value

if TYPE_CHECKING:
    from florist.common.settings.data import Table


def train(**changes: Any) -> Table:  # noqa: ANN401
    table = {"path": "people.csv", "id_column": "id", **changes}
    return parse(with_value("data.train", table)).data.train


@pytest.mark.parametrize(("name", "known"), [("criteo", CRITEO), ("avazu", AVAZU)])
def test_a_known_format_needs_only_the_path(name: str, known: Any) -> None:  # noqa: ANN401
    for settled in (
        {},
        {"label": None, "numeric": "auto", "categorical": "auto"},
        {"label": known.label, "delimiter": known.delimiter, "id_column": known.id_column},
        {"numeric": list(known.numeric), "categorical": list(known.categorical)},
    ):
        values = with_value("data.train", {"path": "people.csv", "format": name, **settled})
        table = parse(values).data.train
        assert {key: getattr(table, key) for key in known.settings()} == known.settings()
    some = {"path": "people.csv", "format": name, "numeric": [], "categorical": ["C21", "C14"]}
    table = parse(with_value("data.train", some)).data.train
    assert (table.numeric, table.categorical) == ((), ("C21", "C14"))


def test_criteo_with_an_added_id_column() -> None:
    table = train(format="criteo", id_column="user")
    assert (table.id_column, table.delimiter, table.label) == ("user", "\t", "label")


def test_features_by_name() -> None:
    table = train(label="y", numeric=["b", "a"], categorical=[])
    assert (table.numeric, table.categorical) == (("b", "a"), ())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"numeric": "age"},
            "numeric: must be `auto` or a list of columns, such as [age, city], n",
        ),
        ({"numeric": None}, "numeric: must be `auto` or a list of columns, such as [age, city], n"),
        ({"numeric": {"a": 1}}, "numeric: must be `auto` or a list of columns"),
        ({"numeric": [7]}, "numeric: must list column names, not 7; put it in quotes"),
        ({"categorical": ["a", ""]}, "categorical: must list column names, not ''; put it in"),
        ({"numeric": ["a", "b", "a"]}, "numeric: lists 'a' twice; remove one"),
        (
            {"numeric": ["a"], "categorical": ["b", "a"]},
            "categorical: 'a' is also listed under numeric; keep one",
        ),
        ({"categorical": ["id"]}, "categorical: 'id' is the ID or label column; remove it"),
        ({"label": "y", "numeric": ["y"]}, "numeric: 'y' is the ID or label column; remove it"),
        ({"label": "id"}, "label: must differ from id_column, not 'id'"),
        ({"label": ""}, "label: must have at least 1 character"),
        ({"label": 5}, "label: must be text, not 5; put it in quotes"),
        ({"format": "xls"}, "format: must be one of `plain`, `criteo`, `avazu`, not 'xls'"),
        ({"format": ["criteo"]}, "format: must be one of `plain`, `criteo`, `avazu`, not a list"),
        (
            {"format": "criteo", "delimiter": ","},
            "delimiter: must be '\\t' in this format, or omitted, not ','",
        ),
        ({"format": "avazu"}, "id_column: must be 'id' in this format, or omitted, not 'person'"),
        ({"format": "criteo", "id_column": "C1"}, "id_column: must be 'row_number' in this format"),
        (
            {"format": "criteo", "label": "click"},
            "label: must be 'label' in this format, or om",
        ),
        (
            {"format": "criteo", "numeric": ["I1", "C1"]},
            "numeric: this format has no such column 'C1'; remove it",
        ),
        (
            {"format": "criteo", "categorical": ["I1"]},
            "categorical: this format has no such column 'I1'",
        ),
    ],
)
def test_contradictory_tables(changes: dict[str, Any], expected: str) -> None:
    id_column = "person" if changes.get("format") == "avazu" else "id"
    table = {"path": "people.csv", "id_column": id_column, **changes}
    text = problem(with_value("data.train", table))
    assert text.startswith(f"data.train.{expected}")
    assert "\n" not in text


def test_the_test_table_has_the_columns_of_the_training_table() -> None:
    values = with_value("data.test", {"path": "held_out.csv"})
    values["data"]["train"] |= {"delimiter": ";", "label": "y", "numeric": ["a"]}
    data = parse(values).data
    expected = data.train.model_copy(update={"path": Path("/conf/held_out.csv")})
    assert data.test_table == expected
    values["data"]["test"]["delimiter"] = "|"
    assert parse(values).data.test_table == expected.model_copy(update={"delimiter": "|"})


def test_the_test_table_can_have_another_format() -> None:
    values = with_value("data.test", {"path": "held_out.csv", "format": "plain"})
    values["data"]["train"] = {"path": "train.txt", "format": "criteo", "id_column": "user"}
    table = parse(values).data.test_table
    assert table is not None
    assert (table.format, table.delimiter, table.id_column) == ("plain", ",", "user")
    assert table.categorical == CRITEO.categorical
    values["data"]["test"] |= {"format": "criteo"}
    table = parse(values).data.test_table
    assert table is not None
    assert table.delimiter == "\t"
