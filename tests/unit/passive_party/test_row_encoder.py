"""Single rows are encoded like the rows of a table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.data.preprocessing_fitter import fit_preprocessing
from florist.common.data.raw_table import RawTable, convert_features
from florist.common.settings.data import PreprocessingSettings, Scaling
from florist.passive_party.row_encoder import BadRow, RowEncoder

if TYPE_CHECKING:
    from florist.common.data.preprocessing import Preprocessing

CITIES = ["Bern", "Chur", "Bern", "", "Genève", "Chur", "7"]
AGES = [41.0, None, -3.5, 12.0, 1e6, 0.0, math.nan]


def fitted(scaling: Scaling = "linear") -> Preprocessing:
    columns = pa.table(
        {"age": AGES, "constant": [5.0] * 7, "city": CITIES, "colour": ["red"] * 6 + [None]}
    )
    raw = RawTable.from_arrow("test", pa.array([str(n) for n in range(7)]), columns)
    return fit_preprocessing(raw, PreprocessingSettings(scaling=scaling, min_count=2))


ENCODERS = {
    scaling: (fitted(scaling), RowEncoder(fitted(scaling))) for scaling in ("linear", "log")
}

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "age": st.none() | st.floats(allow_infinity=False) | st.integers(-(10**12), 10**12),
            "constant": st.none() | st.floats(-10, 10),
            "city": st.none() | st.sampled_from(CITIES) | st.text(max_size=8),
            "colour": st.none() | st.sampled_from(["red", "blue", "RED"]),
        }
    ),
    min_size=1,
    max_size=20,
)


@pytest.mark.parametrize("scaling", ["linear", "log"])
@settings(deadline=None)
@given(rows=ROWS)
def test_single_rows_are_encoded_like_a_table(scaling: str, rows: list[dict[str, Any]]) -> None:
    preprocessing, encode = ENCODERS[scaling]
    types = {"age": pa.float64(), "constant": pa.float64(), "city": pa.string()}
    table = pa.table(
        {
            name: pa.array([row[name] for row in rows], types.get(name, pa.string()))
            for name in ("city", "age", "colour", "constant")
        }
    )
    whole = preprocessing.transform(convert_features("test", table, preprocessing.features))
    single = encode(rows)
    np.testing.assert_allclose(single.numeric, whole.numeric, atol=1e-7)
    np.testing.assert_array_equal(single.categories, whole.categories)


def row(**changes: object) -> dict[str, object]:
    return {"age": 1, "constant": 5, "city": "Bern", "colour": "red"} | changes


@pytest.mark.parametrize("seven", [7, 7.0, np.int32(7), "7"])
def test_integers_are_converted_to_categories(seven: object) -> None:
    preprocessing = fit_preprocessing(
        RawTable.from_arrow("test", pa.array(["1"]), pa.table({"code": ["7"]})),
        PreprocessingSettings(),
    )
    assert RowEncoder(preprocessing)([{"code": seven}]).categories.tolist() == [[1]]


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (row(age="41"), "row 1, column 'age': must be a number, or null if missing"),
        (row(age=True), "row 1, column 'age': must be a number"),
        (row(age=math.inf), "row 1, column 'age': contains an infinite number"),
        (row(age=10**400), "row 1, column 'age': contains an infinite number"),
        (row(city=1.5), "row 1, column 'city': must be text or an integer, or null"),
        (row(city=False), "row 1, column 'city': must be text"),
        (row(city=math.nan), "row 1, column 'city': must be text"),
        (row(city=10**400), "row 1, column 'city': must be text"),
        (row(city=["Bern"]), "row 1, column 'city': must be text"),
        (row(size=3), "row 1: has columns that the model does not use: 'size'; remove them"),
        ({"age": 3}, "row 1: lacks columns .*: 'city', 'colour', 'constant'; add them"),
    ],
)
def test_errors_name_the_row_and_the_column(bad: dict[str, object], problem: str) -> None:
    with pytest.raises(BadRow, match=problem):
        ENCODERS["linear"][1]([row(), bad])


def test_no_rows() -> None:
    assert len(ENCODERS["linear"][1]([])) == 0
