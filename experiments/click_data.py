"""Generated clicks on advertisements: data in Criteo's format with known true probabilities.

Used by the demo, tests and experiments. Columns are independent of each other. The label is drawn
from the logistic function of a sum of effects of numbers, categories and pairs of categories. Rare
categories have effects too, which no model can learn from few rows; this keeps models as far below
the optimal ranking as they are on real clicks.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from florist.common.data.raw_table import RawTable
from florist.common.settings.formats import CRITEO

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

ID_COLUMN = "person"
LABEL = "click"
NUMERIC, CATEGORICAL = CRITEO.numeric, CRITEO.categorical
#: Number of categories of each column.
CARDINALITIES = tuple(int(size) for size in np.geomspace(3, 20_000, len(CATEGORICAL)).round())

POSITIVE_RATE = 0.25
#: Standard deviation of the logits; the AUC of the true probabilities is then 0.80.
_SPREAD = 1.4
#: Shares of the variance of the logits.
_NUMBERS, _CATEGORIES, _PAIRS = 0.30, 0.55, 0.15
#: Columns with few categories whose pairs have effects.
_PAIRED = 5


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ClickData:
    """Features, labels and true probabilities; row `i` of each belongs to the same person."""

    ids: pa.StringArray
    #: NUMERIC (float64) and CATEGORICAL (string), null where missing.
    features: pa.Table
    labels: npt.NDArray[np.int64]
    #: The true probability that the label is 1.
    probabilities: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"ClickData({len(self)} rows)"

    def raw(self, rows: npt.NDArray[np.int64]) -> RawTable:
        """Return these rows as if they had been read from a file."""
        places = pa.array(rows)
        return RawTable.from_arrow(
            "click data",
            self.ids.take(places),
            self.features.take(places),
            pa.array(self.labels[rows]),
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ClickSplit:
    """The rows of each party; each array is in its own random order."""

    #: Rows for training.
    active: npt.NDArray[np.int64]
    passive: npt.NDArray[np.int64]
    #: Test rows, which both parties have.
    test: npt.NDArray[np.int64]

    @property
    def union(self) -> npt.NDArray[np.int64]:
        return np.union1d(self.active, self.passive)

    @property
    def shared(self) -> npt.NDArray[np.int64]:
        return np.intersect1d(self.active, self.passive)


def generate(rows: int, seed: int, sample: int = 1) -> ClickData:
    """Generate `rows` people; the same arguments give the same data.

    Categories and effects depend only on the seed, so any number of rows follows the same
    distribution. Different samples, numbered from 1, have different people.
    """
    truth, random = np.random.default_rng([seed, 0]), np.random.default_rng([seed, sample])
    features: dict[str, pa.Array] = {}
    numbers, places = [], []
    for column in NUMERIC:
        features[column], effect = _numeric_column(truth, random, rows)
        numbers.append(effect)
    for column, size in zip(CATEGORICAL, CARDINALITIES, strict=True):
        features[column], place = _categorical_column(truth, random, rows, size)
        places.append(place)
    categories = [
        truth.standard_normal(size + 1)[place]
        for size, place in zip(CARDINALITIES, places, strict=True)
    ]
    pairs = [
        truth.standard_normal((CARDINALITIES[i] + 1, CARDINALITIES[j] + 1))[places[i], places[j]]
        for i, j in pairwise(range(_PAIRED + 1))
    ]
    logits = (
        np.sqrt(_NUMBERS) * _blended(numbers)
        + np.sqrt(_CATEGORIES) * _blended(categories)
        + np.sqrt(_PAIRS) * _blended(pairs)
    )
    probabilities = _with_mean(_SPREAD * logits, POSITIVE_RATE)
    labels = (random.random(rows) < probabilities).astype(np.int64)
    people = pa.array(random.permutation(rows)).cast(pa.string())
    prefix = "p" if sample == 1 else f"p{sample}-"
    ids = pc.binary_join_element_wise(prefix, pc.utf8_lpad(people, 9, "0"), "")
    return ClickData(ids, pa.table(features), labels, probabilities)


def split(
    data: ClickData, test_fraction: float, alpha: float, beta: float, seed: int
) -> ClickSplit:
    """Hold out test rows, and remove training rows from each party, as in the paper.

    Args:
        data: the people to split.
        test_fraction: fraction of all rows to hold out.
        alpha: fraction of the training rows that the passive party lacks.
        beta: fraction that the active party lacks, drawn independently. People whom both lack are
            in no table.
        seed: the same arguments give the same rows.
    """
    random = np.random.default_rng(seed)
    shuffled = random.permutation(len(data))
    train, test = np.split(shuffled, [len(data) - round(test_fraction * len(data))])
    active = random.permutation(train)[round(beta * len(train)) :]
    passive = random.permutation(train)[round(alpha * len(train)) :]
    return ClickSplit(active, passive, test)


# --- the parties' tables ---


def active_table(
    data: ClickData, rows: npt.NDArray[np.int64], features: Sequence[str] = ()
) -> pa.Table:
    """Return a table of IDs, labels and any features."""
    columns = {LABEL: pa.array(data.labels[rows])}
    return _party_table(data, rows, columns, features)


def passive_table(
    data: ClickData,
    rows: npt.NDArray[np.int64],
    features: Sequence[str] = (*NUMERIC, *CATEGORICAL),
) -> pa.Table:
    """Return a table of IDs and features."""
    return _party_table(data, rows, {}, features)


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table as CSV (.csv or .csv.gz) or Parquet, depending on the file name."""
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
        return
    with pa.output_stream(path, compression="gzip" if path.suffix == ".gz" else None) as file:
        csv.write_csv(table, file)


def _party_table(
    data: ClickData,
    rows: npt.NDArray[np.int64],
    columns: dict[str, pa.Array],
    features: Sequence[str],
) -> pa.Table:
    places = pa.array(rows)
    chosen = data.features.select(list(features)).take(places)
    return pa.table(
        {
            ID_COLUMN: data.ids.take(places),
            **columns,
            **dict(zip(chosen.column_names, chosen.columns, strict=True)),
        }
    )


# --- columns and effects ---


def _numeric_column(
    truth: np.random.Generator, random: np.random.Generator, rows: int
) -> tuple[pa.Array, npt.NDArray[np.float64]]:
    """Return long-tailed integers and the effect of their logarithm; 0 where missing."""
    location, scale = truth.uniform(0.5, 4), truth.uniform(0.8, 1.8)
    missing = _missing(truth, random, rows)
    values = np.floor(random.lognormal(location, scale, rows))
    effect = np.where(missing, 0, np.log1p(values) - location)
    return pa.array(values, mask=missing), truth.choice([-1, 1]) * effect


def _categorical_column(
    truth: np.random.Generator, random: np.random.Generator, rows: int, size: int
) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return strings, few of them frequent and most rare, and the index of each.

    Missing values have the index `size`.
    """
    frequencies = np.arange(1.0, size + 1) ** -truth.uniform(0.9, 1.3)
    places = random.choice(size, rows, p=frequencies / frequencies.sum())
    missing = _missing(truth, random, rows)
    codes = truth.choice(1 << 28, size, replace=False)
    # A prefix that no number has.
    texts = pa.array([f"k{code:07x}" for code in codes.tolist()])
    return texts.take(pa.array(places, mask=missing)), np.where(missing, size, places)


def _missing(
    truth: np.random.Generator, random: np.random.Generator, rows: int
) -> npt.NDArray[np.bool_]:
    """Draw the rows without a value: none in half of the columns, up to half in the others."""
    rate = max(0.0, truth.uniform(-0.5, 0.5))
    return random.random(rows) < rate


def _blended(effects: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    """Return the sum with equal weights, standardised to mean 0 and variance 1."""
    return _standardised(np.sum([_standardised(effect) for effect in effects], axis=0))


def _standardised(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    spread = values.std()
    return (values - values.mean()) / spread if spread else np.zeros_like(values)


def _with_mean(logits: npt.NDArray[np.float64], mean: float) -> npt.NDArray[np.float64]:
    """Return the probabilities of the logits, shifted so that their mean is `mean`."""
    low, high = -20.0, 20.0
    for _ in range(50):
        middle = (low + high) / 2
        probabilities = 1 / (1 + np.exp(-(logits + middle)))
        low, high = (middle, high) if probabilities.mean() < mean else (low, middle)
    return probabilities
