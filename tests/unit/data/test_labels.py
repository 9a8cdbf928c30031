"""Labels as classes, from every type of column, and labels that are refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.core.errors import ConfigurationError
from florist.common.data.column_values import ValueRules
from florist.common.data.labels import MAX_DISTINCT, LabelReader, Labels, read_labels
from florist.common.data.raw_table import RawTable


def raw(values: Any, kind: pa.DataType | None = None) -> RawTable:  # noqa: ANN401
    label = values if isinstance(values, pa.Array) else pa.array(values, kind)
    ids = pa.array([str(row) for row in range(len(label))])
    return RawTable.from_arrow("people.csv", ids, pa.table({}), label)


def read(values: Any, *arguments: Any, **options: Any) -> Labels:  # noqa: ANN401
    return read_labels(raw(values), *arguments, **options)


def refusal(values: Any, *arguments: Any, **options: Any) -> str:  # noqa: ANN401
    with pytest.raises(ConfigurationError) as caught:
        read(values, *arguments, **options)
    text = str(caught.value)
    assert text.startswith("people.csv, column 'label': ")
    assert text.isprintable()
    return text.removeprefix("people.csv, column 'label': ")


@pytest.mark.parametrize(
    "values",
    [
        [0, 1, 1],
        [0.0, 1.0, 1.0],
        [False, True, True],
        ["0", "1", "1"],
        ["0.0", "1.0", "1"],
        ["false", "true", "TRUE"],
        [" 0", "1 ", "1"],
        pa.array([0, 1, 1], pa.uint8()),
        pa.array(["0", "1", "1"]).dictionary_encode(),
    ],
)
def test_binary_labels(values: Any) -> None:  # noqa: ANN401
    labels = read(values)
    assert labels.classes.tolist() == [0, 1, 1]
    assert labels.classes.dtype == np.int64
    assert labels.names == ("0", "1")
    assert repr(labels) == "Labels(3 rows, 2 classes)"


def test_more_classes() -> None:
    numbers = read([2, 0, 2, 1], 4)
    assert numbers.classes.tolist() == [2, 0, 2, 1]
    assert numbers.names == ("0", "1", "2", "3")
    assert read(["2.0", "0", "1"], 3).classes.tolist() == [2, 0, 1]
    texts = read(["red", "blue", "red", "Green"], 3)
    assert texts.classes.tolist() == [2, 1, 2, 0]
    assert texts.names == ("Green", "blue", "red")


def test_other_tables_use_the_class_names_of_the_training_table() -> None:
    names = ("Green", "blue", "red")
    assert read(["red", "blue"], 3, names=names).classes.tolist() == [2, 1]
    assert read([2, 1], 3, names=("0", "1", "2")).classes.tolist() == [2, 1]
    assert refusal(["red", "grey"], 3, names=names).startswith(
        "contains 'grey', but the classes of the model are 'Green', 'blue', 'red'; correct or"
    )
    assert refusal([1, 2], 3, names=names).startswith("contains '1', '2', but the classes of the")


def test_agreed_names_number_the_classes() -> None:
    assert read(["low", "high", "mid"], 3, names=("low", "mid", "high")).classes.tolist() == [
        0,
        2,
        1,
    ]
    assert read(["no", "yes"], 2, names=("no", "yes")).classes.tolist() == [0, 1]
    assert read([1, 3, 2], 3, names=("1", "2", "3")).classes.tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("values", "positive", "expected"),
    [
        (["yes", "no", " yes "], "yes", [1, 0, 1]),
        (["NO", "<30", ">30"], "<30", [0, 1, 0]),
        ([1, 2, 1], "2", [0, 1, 0]),
        ([False, True], "false", [1, 0]),
    ],
)
def test_one_text_against_the_rest(values: Any, positive: str, expected: list[int]) -> None:  # noqa: ANN401
    table = raw(values)
    reader = LabelReader(table.source, "label", positive=positive)
    assert table.label is not None
    reader.add(table.label)
    labels = reader.labels()
    assert labels.classes.tolist() == expected
    assert labels.names == ("", positive)
    # Other tables are read by the names, whatever their reader was told.
    assert read(values, names=labels.names).classes.tolist() == expected
    assert refusal(["a", "b"], names=labels.names) == (
        f"no label is {positive!r}; it contains 'a', 'b'; correct `positive_label`"
    )


def test_texts_that_mean_a_missing_label() -> None:
    reader = LabelReader("people.csv", "label", ValueRules(na_values=("?",)))
    reader.add(pa.chunked_array([["0", " ?", "1"]]))
    with pytest.raises(ConfigurationError, match="labels are missing in 1 of 3 rows"):
        reader.labels()


def test_a_column_of_far_too_many_texts_is_refused_while_it_is_read() -> None:
    many = [f"text {number}" for number in range(MAX_DISTINCT + 1)]
    assert refusal(many) == (
        "contains more than 10,000 different texts, so it cannot be a label; correct `label`"
    )
    reader = LabelReader("people.csv", "label", positive="text 7")
    reader.add(pa.chunked_array([many]))
    assert reader.labels().classes.sum() == 1


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=30))
def test_text_classes_match_the_slow_version(values: list[str]) -> None:
    known = sorted(set(values))
    if len(known) < 3:
        return
    labels = read(values, len(known))
    assert [labels.names[each] for each in labels.classes] == values
    assert Counter(labels.classes.tolist()) == Counter(map(known.index, values))


@pytest.mark.parametrize(
    ("values", "classes", "expected"),
    [
        ([0, 1, 2], 2, "contains 3 classes, '0', '1', '2', but `agreement.training.classes` is 2"),
        ([0, 1, 2], 2, "; set classes: 3 at both parties, or set `positive_label` under `data"),
        ([-1, 1], 2, "contains '-1', '1'; set `positive_label` under `data.train` to the one"),
        ([0.5, 1], 2, "contains '0.5', '1'; set `positive_label`"),
        (["yes", "no"], 2, 'to the one that is class 1, such as positive_label: "yes"'),
        (["\x1b[2J", "no"], 2, r"contains '\x1b[2J', 'no'"),
        (range(51), 2, "contains 51 different numbers, such as '0', '1', '2': a continuous label"),
        (range(50), 2, "contains 50 classes, '0', '1', '10', '11', '12' and 45 more, but"),
        ([each / 4 for each in range(11)], 2, "a continuous label needs regression, which is not"),
        ([0, None, 1, None], 2, "labels are missing in 2 of 4 rows; add the labels or remove"),
        (["0", "", "1"], 2, "labels are missing in 1 of 3 rows"),
        ([0, float("nan"), 1], 2, "labels are missing in 1 of 3 rows"),
        ([1, 1], 2, "is '1' in every row; training needs rows of different classes"),
        (["a"], 3, "is 'a' in every row"),
        ([1, 2, 3], 3, "must be integers from 0 to 2 but contains '1', '2', '3'; renumber the"),
        ([-1, 2], 3, "contains 2 classes, '-1', '2', but `agreement.training.classes` is 3"),
        (["a", "b"], 3, "contains 2 classes, 'a', 'b', but `agreement.training.classes` is 3; s"),
        ([1, 2, 2.5], 4, "contains 3 classes, '1', '2', '2.5', but"),
        ([{"a": 1}], 2, "has type struct<a: int64>"),
    ],
)
def test_labels_that_are_refused(values: Any, classes: int, expected: str) -> None:  # noqa: ANN401
    assert refusal(values, classes).startswith(expected) or expected in refusal(values, classes)


def test_no_label_column() -> None:
    table = RawTable.from_arrow("people.csv", pa.array(["a"]), pa.table({}))
    with pytest.raises(ConfigurationError, match=r"people\.csv: the label column is not spe"):
        read_labels(table)
