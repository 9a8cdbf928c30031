"""Generated clicks: rate, difficulty, missing values, tails, and repeatability."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder

from florist.common.data.labels import read_labels
from florist.common.data.preprocessing_fitter import fit_preprocessing
from florist.common.data.raw_table import FeatureColumns
from florist.common.data.table_reader import read_whole_table
from florist.common.settings.data import PreprocessingSettings, Table
from florist.experiments.click_data import (
    CARDINALITIES,
    CATEGORICAL,
    ID_COLUMN,
    LABEL,
    NUMERIC,
    ClickData,
    active_table,
    generate,
    passive_table,
    split,
    write_table,
)

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from florist.common.data.features import Features


@pytest.fixture(scope="module", params=[0, 1, 7])
def clicks(request: pytest.FixtureRequest) -> ClickData:
    return generate(24_000, request.param)


def test_shape(clicks: ClickData) -> None:
    assert clicks.features.column_names == [*NUMERIC, *CATEGORICAL]
    assert clicks.features.schema.types == [pa.float64()] * 13 + [pa.string()] * 26
    assert len(clicks) == len(clicks.ids) == clicks.features.num_rows == 24_000
    assert len(set(clicks.ids.to_pylist())) == 24_000
    assert repr(clicks) == "ClickData(24000 rows)"


def test_positive_rate_and_best_ranking(clicks: ClickData) -> None:
    assert clicks.probabilities.mean() == pytest.approx(0.25, abs=1e-6)
    assert clicks.labels.mean() == pytest.approx(0.25, abs=0.015)
    assert roc_auc_score(clicks.labels, clicks.probabilities) == pytest.approx(0.80, abs=0.015)
    for low in np.arange(0, 0.8, 0.1):
        chosen = (low <= clicks.probabilities) & (clicks.probabilities < low + 0.1)
        rate, expected = clicks.labels[chosen].mean(), clicks.probabilities[chosen].mean()
        assert rate == pytest.approx(expected, abs=4 * 0.5 / chosen.sum() ** 0.5)


def test_missing_values_and_tails(clicks: ClickData) -> None:
    rates = [column.null_count / len(clicks) for column in clicks.features.columns]
    assert 8 <= sum(rate > 0 for rate in rates) <= 31
    assert max(rates) <= 0.52
    for column in NUMERIC:
        values = clicks.features.column(column).drop_null().to_numpy()
        assert values.min() >= 0
        assert values.max() > 8 * values.mean()
    assert CARDINALITIES[0] == 3
    assert CARDINALITIES[-1] == 20_000
    for column, size in zip(CATEGORICAL, CARDINALITIES, strict=True):
        counts = Counter(clicks.features.column(column).drop_null().to_pylist())
        assert len(counts) <= size
        if size > 1000:
            assert len(counts) > 500
            assert counts.most_common(1)[0][1] > 100 * min(counts.values())


def test_the_data_depend_only_on_the_seed() -> None:
    one, same, other = generate(500, 3), generate(500, 3), generate(500, 4)
    assert one.ids.equals(same.ids)
    assert one.features.equals(same.features)
    assert np.array_equal(one.labels, same.labels)
    assert np.array_equal(one.probabilities, same.probabilities)
    assert not one.features.equals(other.features)
    # More rows, the same categories.
    more = generate(5000, 3)
    few = set(one.features.column("C5").to_pylist())
    assert few <= {*more.features.column("C5").to_pylist(), None}


def test_a_hundred_thousand_rows_in_seconds() -> None:
    started = time.process_time()
    assert len(generate(100_000, 0)) == 100_000
    assert time.process_time() - started < 20


# --- how well it can be learned ---


def test_a_simple_model_learns_much_but_not_everything(clicks: ClickData) -> None:
    parts = split(clicks, 1 / 6, alpha=0, beta=0, seed=0)
    assert len(parts.union) == 20_000
    train, test = clicks.raw(parts.active), clicks.raw(parts.test)
    fitted = fit_preprocessing(train, PreprocessingSettings(min_count=10, scaling="log"))
    features = ColumnTransformer(
        [
            ("numbers", MinMaxScaler((0, 3)), slice(len(NUMERIC))),
            ("one-hot", OneHotEncoder(handle_unknown="ignore"), slice(len(NUMERIC), None)),
        ]
    )
    model = make_pipeline(features, LogisticRegression(C=0.05, max_iter=200))
    model.fit(side_by_side(fitted.transform(train)), read_labels(train).classes)
    scores = model.decision_function(side_by_side(fitted.transform(test)))
    assert 0.69 < roc_auc_score(read_labels(test).classes, scores) < 0.77


def side_by_side(features: Features) -> npt.NDArray[np.float64]:
    return np.hstack([features.numeric, features.categories]).astype(np.float64)


# --- splits and tables ---


@pytest.mark.parametrize(
    ("test_fraction", "alpha", "beta"), [(0.1, 0.5, 0.5), (0.2, 0, 0.3), (0.25, 0.8, 0), (0, 0, 0)]
)
def test_split_takes_fractions_independently(
    test_fraction: float, alpha: float, beta: float
) -> None:
    data = generate(20_000, 0)
    parts = split(data, test_fraction, alpha, beta, seed=1)
    train = 20_000 - len(parts.test)
    assert len(parts.test) == round(test_fraction * 20_000)
    assert len(parts.active) == train - round(beta * train)
    assert len(parts.passive) == train - round(alpha * train)
    assert len(parts.shared) / train == pytest.approx((1 - alpha) * (1 - beta), abs=0.02)
    assert len(parts.union) / train == pytest.approx(1 - alpha * beta, abs=0.02)
    active, passive, test = (
        set(each.tolist()) for each in (parts.active, parts.passive, parts.test)
    )
    assert not test & (active | passive)
    assert (len(active), len(passive), len(test)) == (
        len(parts.active),
        len(parts.passive),
        len(parts.test),
    )
    assert set(parts.union.tolist()) == active | passive
    assert set(parts.shared.tolist()) == active & passive
    again, other = split(data, test_fraction, alpha, beta, 1), split(data, 0.1, alpha, beta, 2)
    assert np.array_equal(parts.active, again.active)
    assert np.array_equal(parts.passive, again.passive)
    assert not np.array_equal(parts.active, other.active)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_the_parties_tables_round_trip(tmp_path: Path, suffix: str) -> None:
    data = generate(300, 0)
    parts = split(data, 0.1, 0.5, 0.5, 0)
    active_file, passive_file = tmp_path / f"active{suffix}", tmp_path / f"passive{suffix}"
    write_table(active_table(data, parts.active, ["I1"]), active_file)
    write_table(passive_table(data, parts.passive, [*NUMERIC[1:], *CATEGORICAL]), passive_file)
    active = read_whole_table(Table(path=active_file, id_column=ID_COLUMN, label=LABEL), "strip")
    assert active.features == FeatureColumns(("I1",), ())
    assert read_labels(active).classes.tolist() == data.labels[parts.active].tolist()
    assert people(data, parts.active) == [each.decode() for each in active.ids]
    passive = read_whole_table(Table(path=passive_file, id_column=ID_COLUMN), "strip")
    assert passive.features == FeatureColumns(NUMERIC[1:], CATEGORICAL)
    assert passive.label is None
    kept = data.raw(parts.passive)
    assert passive.columns.equals(kept.columns.select([*NUMERIC[1:], *CATEGORICAL]))
    assert active_table(data, parts.test).column_names == [ID_COLUMN, LABEL]
    assert passive_table(data, parts.test).column_names == [ID_COLUMN, *NUMERIC, *CATEGORICAL]


def people(data: ClickData, rows: npt.NDArray[np.int64]) -> list[str]:
    names: list[str] = data.ids.take(pa.array(rows)).to_pylist()
    return names
