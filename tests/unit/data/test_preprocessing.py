"""Preprocessing: compared with a slow, obvious version, saved and loaded, and errors."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from florist.common.core.errors import ConfigurationError
from florist.common.data import preprocessing as module
from florist.common.data.preprocessing import VERSION, Preprocessing
from florist.common.data.preprocessing_fitter import fit_preprocessing
from florist.common.data.raw_table import FeatureColumns, RawTable
from florist.common.data.table_reader import read_whole_table
from florist.common.settings.data import PreprocessingSettings, Scaling, Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.data.features import Features

Number = float | None
Category = str | None


def raw(**columns: list[Any]) -> RawTable:
    """A table of these columns; their values determine whether they are numbers or categories."""
    rows = len(next(iter(columns.values())))
    kinds = {
        name: pa.string() if any(isinstance(value, str) for value in values) else pa.float64()
        for name, values in columns.items()
    }
    table = pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()})
    return RawTable.from_arrow("memory", pa.array([f"p{row}" for row in range(rows)]), table)


def fit(table: RawTable, **chosen: Any) -> Preprocessing:  # noqa: ANN401
    return fit_preprocessing(table, PreprocessingSettings(**chosen))


def same(one: Features, other: Features) -> bool:
    return np.array_equal(one.numeric, other.numeric) and np.array_equal(
        one.categories, other.categories
    )


# --- the slow version ---


def slow_category(train: list[Category], value: Category, min_count: int) -> int:
    texts = ["" if each is None else each for each in train]
    known = sorted({text for text in texts if texts.count(text) >= min_count}, key=str.encode)
    text = "" if value is None else value
    return known.index(text) + 1 if text in known else 0


def slow_number(train: list[Number], value: Number, scaling: Scaling) -> float:
    def on_scale(number: Number) -> Fraction:
        if number is None or math.isnan(number):
            return Fraction(0)
        if scaling == "linear":
            return Fraction(number)
        return Fraction(math.copysign(math.log1p(abs(number)), number))

    low, high = min(map(on_scale, train)), max(map(on_scale, train))
    if low == high:
        return 0
    return float(min(max((on_scale(value) - low) / (high - low), Fraction(0)), Fraction(1)))


categories = st.lists(st.none() | st.sampled_from(["", "a", "b", "B", "\u00e9", "z", "NA"]))
# No values so close to 0 that differences vanish.
finite = st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: not 0 < abs(x) < 1e-200)
numbers = st.lists(st.none() | st.just(math.nan) | st.integers(-5, 5).map(float) | finite)


@settings(deadline=None)
@given(
    categories.filter(bool),
    categories | st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=3),
    st.integers(1, 4),
)
def test_categories_match_the_slow_version(
    train: list[Category], test: list[Category], min_count: int
) -> None:
    # A leading text makes the column categorical, whatever follows.
    train, test = ["first", *train], ["first", *test]
    fitted = fit(raw(c=train), min_count=min_count)
    for values in (train, test):
        found = fitted.transform(raw(c=values)).categories[:, 0].tolist()
        assert found == [slow_category(train, value, min_count) for value in values]
        assert max(found) < fitted.cardinalities[0]
    known = {"" if value is None else value for value in train}
    if min_count == 1:
        assert fitted.cardinalities == (len(known) + 1,)


@settings(deadline=None, max_examples=200)
@given(numbers.filter(bool), numbers, st.sampled_from(get_args(Scaling)))
def test_numbers_match_the_slow_version(
    train: list[Number], test: list[Number], scaling: Scaling
) -> None:
    fitted = fit(raw(n=train), scaling=scaling)
    for values in (train, test):
        found = fitted.transform(raw(n=values)).numeric[:, 0]
        expected = [slow_number(train, value, scaling) for value in values]
        assert found.tolist() == pytest.approx(expected, abs=1e-6)
        assert all(0 <= number <= 1 for number in found.tolist())


# --- examples ---


def test_the_example_of_the_paper() -> None:
    table = raw(age=[20, None, 40, 10], city=["Rome", None, "Oslo", "Rome"])
    features = fit(table, bins=0).transform(table)
    assert features.numeric.tolist() == [[0.5], [0], [1], [0.25]]
    assert features.categories.tolist() == [[3], [1], [2], [3]]
    assert features.numeric.dtype == np.float32
    assert features.categories.dtype == np.int32


def test_rare_and_unseen_categories_share_index_0() -> None:
    fitted = fit(raw(c=["a", "a", "b", "c", "c"]), min_count=2)
    assert fitted.cardinalities == (3,)
    found = fitted.transform(raw(c=["a", "b", "c", "new", ""])).categories[:, 0]
    assert found.tolist() == [1, 0, 2, 0, 0]


def test_numbers_outside_the_training_range_are_clipped() -> None:
    fitted = fit(raw(n=[0, 10]))
    found = fitted.transform(raw(n=[-1e300, -5, 5, 15, 1e300, None])).numeric[:, 0]
    assert found.tolist() == [0, 0, 0.5, 1, 1, 0]


def test_a_constant_column_is_0() -> None:
    fitted = fit(raw(n=[7, 7], missing=[None, None]))
    found = fitted.transform(raw(n=[7, 8], missing=[None, 1])).numeric
    assert found.tolist() == [[0, 0], [0, 0]]


def test_log_scale_is_odd_and_monotonic() -> None:
    fitted = fit(raw(n=[-1e6, 0, 9, 1e6]), scaling="log")
    found = fitted.transform(raw(n=[-9, 0, 9])).numeric[:, 0].astype(float)
    assert found[1] == 0.5
    assert found[2] - 0.5 == pytest.approx(0.5 - found[0], abs=1e-6)
    assert found[2] == pytest.approx(0.5 + math.log(10) / math.log(1e6 + 1) / 2, abs=1e-6)


def test_the_order_of_rows_makes_no_difference(tmp_path: Path) -> None:
    values: dict[str, list[Any]] = {"n": [3.0, -0.0, 0.0, None], "c": ["b", "a", None, "a"]}
    backwards = {name: column[::-1] for name, column in values.items()}
    one, other = fit(raw(**values)), fit(raw(**backwards))
    one.save(tmp_path / "one")
    other.save(tmp_path / "other")
    for name in ("preprocessing.json", "vocabularies.parquet"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_the_order_of_columns_is_that_of_training() -> None:
    fitted = fit(raw(a=[0, 1], x=["p", "q"], b=[0, 2], y=["r", "s"]))
    assert fitted.numeric_columns == ("a", "b")
    assert fitted.categorical_columns == ("x", "y")
    assert fitted.features == FeatureColumns(("a", "b"), ("x", "y"))
    found = fitted.transform(raw(y=["s"], extra=[5], b=[1], x=["p"], a=[1]))
    assert found.numeric.tolist() == [[1, 0.5]]
    assert found.categories.tolist() == [[1, 2, 2, 1]]


def test_a_party_without_features(tmp_path: Path) -> None:
    table = RawTable.from_arrow("memory", pa.array(["a", "b"]), pa.table({}))
    fitted = fit(table)
    fitted.save(tmp_path)
    for each in (fitted, Preprocessing.load(tmp_path)):
        features = each.transform(table)
        assert features.numeric.shape == features.categories.shape == (2, 0)
        assert each.cardinalities == ()


def test_rows_in_many_chunks_and_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROWS", 7)
    texts = [f"c{index % 5}" for index in range(100)]
    chunks = pa.chunked_array([texts[:30], texts[30:31], texts[31:]])
    table = pa.table({"n": pa.array(np.arange(100.0)), "m": pa.array([1.0] * 100), "c": chunks})
    one = RawTable.from_arrow("memory", pa.array([str(index) for index in range(100)]), table)
    features = fit(one).transform(one)
    assert features.numeric[:, 0].tolist() == pytest.approx([index / 99 for index in range(100)])
    assert features.categories[:, 0].tolist() == [index % 5 + 1 for index in range(100)]


def test_a_hundred_thousand_categories() -> None:
    texts = pa.array(np.random.default_rng(0).permutation(100_000)).cast(pa.string())
    table = RawTable.from_arrow("memory", texts, pa.table({"c": texts}))
    fitted = fit(table)
    assert fitted.cardinalities == (100_001,)
    found = fitted.transform(table).categories[:, 0]
    assert sorted(found.tolist()) == list(range(1, 100_001))
    expected = {text: index for index, text in enumerate(sorted(texts.to_pylist()), 1)}
    assert found[:50].tolist() == [expected[text] for text in texts[:50].to_pylist()]


def test_repr_has_no_values() -> None:
    assert repr(fit(raw(n=[1], c=["secret"]))) == "Preprocessing(1 numeric, cardinalities (2, 2))"


# --- saving and loading ---


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(finite, st.text(st.characters(exclude_categories=["Cs"]))), min_size=1),
    st.integers(1, 3),
    st.sampled_from(get_args(Scaling)),
)
def test_loaded_preprocessing_transforms_identically(
    rows: list[tuple[float, str]], min_count: int, scaling: Scaling
) -> None:
    table = raw(n=[number for number, _ in rows], c=[text for _, text in rows], d=["x"] * len(rows))
    fitted = fit(table, min_count=min_count, scaling=scaling)
    with TemporaryDirectory() as folder:
        first, second = Path(folder, "first"), Path(folder, "deep", "second")
        fitted.save(first)
        loaded = Preprocessing.load(first)
        loaded.save(second)
        for file in first.iterdir():
            assert file.read_bytes() == (second / file.name).read_bytes()
    assert same(loaded.transform(table), fitted.transform(table))
    assert loaded.features == fitted.features
    assert loaded.cardinalities == fitted.cardinalities
    assert loaded.settings == fitted.settings


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    fit(raw(n=[1, 2], c=["a", "b"])).save(tmp_path / "saved")
    return tmp_path / "saved"


def change(folder: Path, **changes: Any) -> None:  # noqa: ANN401
    file = folder / "preprocessing.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        (lambda folder: (folder / "preprocessing.json").unlink(), "contains no saved prep"),
        (lambda folder: (folder / "vocabularies.parquet").unlink(), "contains no saved prep"),
        (lambda folder: (folder / "preprocessing.json").write_text("{"), ".json: is damaged, or"),
        (lambda folder: (folder / "preprocessing.json").write_text("[]"), ".json: is damaged, or"),
        (lambda folder: (folder / "preprocessing.json").write_bytes(b"\xff"), ".json: is damaged"),
        (
            lambda folder: change(folder, version=VERSION + 1),
            "version '4', but this release reads 3",
        ),
        (
            lambda folder: change(folder, kind="other"),
            ".json: is damaged, or was",
        ),
        (lambda folder: change(folder, colour="red"), ".json: is damaged"),
        (lambda folder: change(folder, numeric=[{"column": "n"}]), ".json: is damaged"),
        (
            lambda folder: change(folder, bins=[{"column": "n", "edges": [2.0, 1.0]}]),
            ".json: is damaged",
        ),
        (
            lambda folder: change(folder, vocabularies_sha256="0" * 64),
            ".parquet: is damaged",
        ),
        (lambda folder: flip(folder / "vocabularies.parquet"), ".parquet: is damaged"),
        (lambda folder: change(folder, categorical=[]), ".parquet: is damaged"),
    ],
)
def test_damaged_and_foreign_files(
    saved: Path, harm: Callable[[Path], object], expected: str
) -> None:
    harm(saved)
    with pytest.raises(ConfigurationError) as caught:
        Preprocessing.load(saved)
    assert str(caught.value).startswith(str(saved))
    assert expected in str(caught.value)
    assert str(caught.value).endswith("train again")


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_a_foreign_parquet_file_with_the_right_digest(saved: Path) -> None:
    file = saved / "vocabularies.parquet"
    schema = module._SCHEMA
    foreign = [
        pa.table({"other": [1]}),
        pa.table({"column": ["a"], "category": ["a"]}),
        pa.table({"column": pa.array([0], pa.int32()), "category": [None]}),
        *(pa.table([columns, ["a", "b"]], schema=schema) for columns in ([0, 5], [1, 0], [-1, 0])),
    ]
    for table in foreign:
        parquet.write_table(table, file)
        change(saved, vocabularies_sha256=sha256(file.read_bytes()).hexdigest())
        with pytest.raises(ConfigurationError, match=r"vocabularies\.parquet: is damaged"):
            Preprocessing.load(saved)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigurationError, match="cannot be written: "):
        fit(raw(n=[1])).save(tmp_path / "file")


# --- tables that do not match ---


def refusal(fitted: Preprocessing, table: RawTable) -> str:
    with pytest.raises(ConfigurationError) as caught:
        fitted.transform(table)
    return str(caught.value)


def test_missing_columns_are_all_named() -> None:
    fitted = fit(raw(n=[1], m=[2], c=["x"]))
    assert refusal(fitted, raw(m=[1])) == (
        "memory: lacks columns that the model was trained with: 'n', 'c'; add them"
    )


def test_columns_of_another_kind_are_named_with_the_fix() -> None:
    fitted = fit(raw(n=[1], c=["x"]))
    assert refusal(fitted, raw(n=["one"], c=["x"])) == (
        "memory: contains text in columns that were numeric in training: 'n'; write numbers, or "
        "leave missing values empty"
    )
    assert refusal(fitted, raw(n=[1], c=[7])) == (
        "memory: contains numbers in columns that were categorical in training: 'c'; list them "
        "under `categorical`"
    )


@pytest.mark.parametrize("infinite", [math.inf, -math.inf])
def test_infinite_numbers_are_refused(infinite: float) -> None:
    expected = "memory, column 'n': contains infinite values; write finite"
    with pytest.raises(ConfigurationError, match=expected):
        fit(raw(n=[1, infinite]))
    assert refusal(fit(raw(n=[1])), raw(n=[infinite])).startswith(expected)


def test_from_a_file_to_features(tmp_path: Path) -> None:
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    train.write_text("id,zip,age\na,x07,1\nb,008,3\n")
    test.write_text("id,zip,age\nc,008,NA\nd,8,2\n")
    fitted = fit(read_whole_table(Table(path=train, id_column="id"), "strip"))
    further = read_whole_table(Table(path=test, id_column="id"), "strip", features=fitted.features)
    features = fitted.transform(further)
    assert features.categories.tolist() == [[1, 0], [0, 1]]
    assert features.numeric.tolist() == [[0], [0.5]]
    test.write_text("id,zip,age\nc,008,old\n")
    with pytest.raises(ConfigurationError, match="column 'age': must be numeric but contains text"):
        read_whole_table(Table(path=test, id_column="id"), "strip", features=fitted.features)
