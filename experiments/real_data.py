"""Public data sets for studies, each divided into the columns of two organisations.

The files are not part of FLORIST: the user gives the folder in which they are, with the names of
their publishers. Each data set has its own sub-folder:

    sba_loans/registry.parquet, bank.parquet              guarantor and lending banks
    default_credit/guest.csv.gz, host.csv.gz              credit card clients, as FATE divides them
    diabetes130/diabetic_data.csv.gz                      hospital stay; payer, history, drugs
    bank_marketing/bank-additional-full.csv.gz            clients; campaign and economy
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from florist.common.core.errors import ConfigurationError
from florist.common.core.registry import Registry
from florist.experiments.people import HeldOut, People

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RealTable:
    """All rows of a data set."""

    #: The features; those of type float64 are numbers, those of type string are categories.
    columns: pa.Table
    active_columns: tuple[str, ...]
    labels: Integers
    #: Rows of the same group are held out together.
    groups: Integers


@dataclass(frozen=True, slots=True)
class RealData:
    """A known data set."""

    name: str
    read: Callable[[Path], RealTable]


REAL_DATA: Registry[RealData] = Registry("data set")


def load_real_data(
    name: str,
    folder: Path,
    *,
    rows: int | None = None,
    split: HeldOut = HeldOut(),  # noqa: B008 - frozen
) -> People:
    """Read a data set, and hold some people out.

    Args:
        name: of a data set in `REAL_DATA`.
        folder: contains the sub-folder of the data set.
        rows: number of rows to sample; None for all.
        split: who is held out.

    Raises:
        ConfigurationError: the name is unknown, or a file cannot be read.
    """
    source = folder / name
    try:
        table = REAL_DATA[name].read(source)
    except (OSError, pa.ArrowException, KeyError) as error:
        raise ConfigurationError(
            f"{source}: does not contain the data set {name}: {error}; see experiments/real_data.py"
        ) from None
    random = np.random.default_rng(split.seed)
    order = random.permutation(len(table.labels))[:rows]
    group_of_row = table.groups[order]
    groups = random.permutation(np.unique(group_of_row))
    cuts = np.cumsum([round(part * len(groups)) for part in (split.test, split.validation)])
    test, validation, train = (
        np.sort(order[np.isin(group_of_row, part)]) for part in np.split(groups, cuts)
    )
    return People(
        str(source), table.columns, table.labels, train, validation, test, table.active_columns
    )


# --- the data sets ---


def _sba_loans(folder: Path) -> RealTable:
    key, label = "LoanNr_ChkDgt", "charged_off"
    registry, banks = (
        table.take(pc.sort_indices(table.column(key)))
        for table in (parquet.read_table(folder / f"{name}.parquet") for name in _SBA_FILES)
    )
    if not registry.column(key).equals(banks.column(key)):
        raise KeyError(f"the same {key} in both files")
    numeric = ("NoEmp", "CreateJob", "RetainedJob", "DisbursementGross", "GrAppv", "SBA_Appv")
    active = _features(registry, numeric, without=(key, label))
    passive = _features(banks, numeric, without=(key,))
    return _table(active, passive, registry.column(label).to_numpy() == 1)


_SBA_FILES = ("registry", "bank")


def _default_credit(folder: Path) -> RealTable:
    guest, host = (
        table.take(pc.sort_indices(table.column("id")))
        for table in (csv.read_csv(folder / f"{name}.csv.gz") for name in ("guest", "host"))
    )
    if not guest.column("id").equals(host.column("id")):
        raise KeyError("the same id in both files")
    active = _features(guest, guest.column_names, without=("id", "y"))
    passive = _features(host, host.column_names, without=("id",))
    passive = passive.rename_columns([f"host_{name}" for name in passive.column_names])
    return _table(active, passive, guest.column("y").to_numpy() == 1)


#: What the hospital knows of a stay. The other party has payer, history, labs and drugs.
_STAY = (
    *("race", "gender", "age", "time_in_hospital", "medical_specialty"),
    *("admission_type_id", "discharge_disposition_id", "admission_source_id"),
    *("num_procedures", "diag_1", "diag_2", "diag_3", "number_diagnoses"),
)
_COUNTS = (
    *("time_in_hospital", "num_lab_procedures", "num_procedures", "num_medications"),
    *("number_outpatient", "number_emergency", "number_inpatient", "number_diagnoses"),
)


def _diabetes130(folder: Path) -> RealTable:
    stays = csv.read_csv(folder / "diabetic_data.csv.gz")
    patient = stays.column("patient_nbr").to_numpy()
    is_early = pc.equal(stays.column("readmitted"), "<30").to_numpy()
    known = _features(stays, _COUNTS, without=("encounter_id", "patient_nbr", "readmitted"))
    others = [name for name in known.column_names if name not in _STAY]
    return _table(known.select(list(_STAY)), known.select(others), is_early, patient)


_CLIENT = ("age", "job", "marital", "education", "default", "housing", "loan")
_ECONOMY = ("emp.var.rate", "cons.price.idx", "cons.conf.idx", "euribor3m", "nr.employed")


def _bank_marketing(folder: Path) -> RealTable:
    path = folder / "bank-additional-full.csv.gz"
    calls = csv.read_csv(path, parse_options=csv.ParseOptions(delimiter=";"))
    bought = pc.equal(calls.column("y"), "yes").to_numpy()
    numeric = ("age", "campaign", "pdays", "previous", *_ECONOMY)
    # The duration of a call is known only after it.
    known = _features(calls, numeric, without=("duration", "y"))
    others = [name for name in known.column_names if name not in _CLIENT]
    return _table(known.select(list(_CLIENT)), known.select(others), bought)


def _features(table: pa.Table, numeric: Collection[str], without: tuple[str, ...]) -> pa.Table:
    """Return all columns except some: those in `numeric` as numbers, the others as categories."""

    def converted(name: str) -> pa.ChunkedArray:
        column = table.column(name)
        if name not in numeric:
            return column.cast(pa.string())
        if pa.types.is_large_string(column.type) or pa.types.is_string(column.type):
            column = pc.if_else(pc.equal(column, ""), None, column)
        return column.cast(pa.float64())

    return pa.table({name: converted(name) for name in table.column_names if name not in without})


def _table(
    active: pa.Table,
    passive: pa.Table,
    is_positive: npt.NDArray[np.bool_],
    groups: Integers | None = None,
) -> RealTable:
    columns = pa.table(dict(zip(active.column_names, active.columns, strict=True)))
    for name, column in zip(passive.column_names, passive.columns, strict=True):
        columns = columns.append_column(name, column)
    labels = is_positive.astype(np.int64)
    everyone = np.arange(len(labels)) if groups is None else groups
    return RealTable(columns, tuple(active.column_names), labels, everyone)


REAL_DATA.register(RealData("sba_loans", _sba_loans))
REAL_DATA.register(RealData("default_credit", _default_credit))
REAL_DATA.register(RealData("diabetes130", _diabetes130))
REAL_DATA.register(RealData("bank_marketing", _bank_marketing))
