"""A real data set: a registry of guaranteed loans, and the banks; see docs/tutorial/sba-loans.

    python benchmarks/sba_loans.py prepare --source SBA_LOANS --out sba
    python benchmarks/sba_loans.py baselines --out sba

`prepare` reads registry.parquet and bank.parquet, which list the same loans. It holds out some of
them for testing, and gives each party an independent random part of the others. `baselines` trains,
by simulation and with the parties' settings, the models to which the run over the network is
compared. It needs the folder `truth`, which no party has.
"""

from __future__ import annotations

import argparse
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from florist.common.data.features import Features
from florist.common.data.labels import read_labels
from florist.common.data.preprocessing_fitter import fit_preprocessing
from florist.common.data.table_reader import read_whole_table
from florist.common.session.run_directory import RunDirectory
from florist.common.settings.loader import load_config
from florist.common.training.history import EpochFigures, History
from florist.experiments.simulation import Holdings, SimulationSettings, World, simulate

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.settings.party_config import PartyConfig

ID = "LoanNr_ChkDgt"
CASE = Path(__file__).parents[1] / "docs" / "tutorial" / "sba-loans"


# --- the parties' tables ---


def prepare(
    source: Path, out: Path, *, loans: int | None, test: float, held: float, seed: int
) -> None:
    """Write each party's tables, the tables that no party has, and the configurations."""
    registry, banks = _sorted(source / "registry.parquet"), _sorted(source / "bank.parquet")
    if not registry.column(ID).equals(banks.column(ID)):
        raise SystemExit("the two files must list the same loans")
    draws = np.random.RandomState(seed)
    order = draws.permutation(len(registry))[:loans]
    tested, others = np.split(order, [round(test * len(order))])
    each = round(held * len(others))
    of_registry, of_banks = (draws.choice(others, each, replace=False) for _ in range(2))
    both, either = np.intersect1d(of_registry, of_banks), np.union1d(of_registry, of_banks)
    (out / "data").mkdir(parents=True, exist_ok=True)
    (out / "truth").mkdir(exist_ok=True)
    for name, table, own in (("registry", registry, of_registry), ("banks", banks, of_banks)):
        parquet.write_table(table.take(own), out / f"data/{name}-train.parquet")
        parquet.write_table(table.take(tested), out / f"data/{name}-test.parquet")
        parquet.write_table(table.take(both), out / f"truth/{name}-both.parquet")
        parquet.write_table(table.take(either), out / f"truth/{name}-either.parquet")
    for name in ("active.yml", "passive.yml"):
        shutil.copyfile(CASE / name, out / name)
    print(
        f"held out for the test: {len(tested):,}; registry: {each:,}; banks: {each:,}; "
        f"in both: {len(both):,}; union: {len(either):,}"
    )


def _sorted(path: Path) -> pa.Table:
    table = parquet.read_table(path)
    return table.take(pc.sort_indices(table.column(ID)))


# --- baselines ---


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Side:
    """A party's columns of the training and test loans, and its labels."""

    train: Features
    test: Features
    cardinalities: tuple[int, ...] = ()
    train_labels: npt.NDArray[np.int64] | None = None
    test_labels: npt.NDArray[np.int64] | None = None

    @classmethod
    def read(cls, config: PartyConfig, path: Path) -> Side:
        """Read the tables like the party would, with the training table at `path`."""
        table, normalisation = config.data.train, config.agreement.id_normalisation
        raw = read_whole_table(table.model_copy(update={"path": path}), normalisation)
        fitted = fit_preprocessing(raw, config.data.preprocessing)
        assert config.data.test_table is not None
        test = read_whole_table(config.data.test_table, normalisation, features=fitted.features)
        columns = fitted.transform(raw), fitted.transform(test), fitted.cardinalities
        if table.label is None:
            return cls(*columns)
        return cls(*columns, read_labels(raw).classes, read_labels(test).classes)

    @classmethod
    def without_features(cls, other: Side) -> Side:
        """Return a party with the same loans but no information: one column of zeros."""
        return cls(_zeros(len(other.train)), _zeros(len(other.test)))


def _zeros(rows: int) -> Features:
    return Features(np.zeros((rows, 1), np.float32), np.empty((rows, 0), np.int32))


def baselines(out: Path, seeds: list[int]) -> None:
    """Train the baselines, and print the metrics of each on the test loans."""
    active, passive = load_config(out / "active.yml"), load_config(out / "passive.yml")
    if (active.model, active.optimiser) != (passive.model, passive.optimiser):
        raise SystemExit("a simulation has one model and one optimiser for both parties")
    training = active.agreement.training
    print(f"{'':<26}{'loans':>9}{'AUC':>8}{'ACE':>8}{'log loss':>10}{'seconds':>9}")
    for name, tables in (
        ("registry alone", (active.data.train.path, None)),
        (
            "baseline-partial",
            (out / "truth/registry-both.parquet", out / "truth/banks-both.parquet"),
        ),
        (
            "baseline-full",
            (out / "truth/registry-either.parquet", out / "truth/banks-either.parquet"),
        ),
    ):
        registry = Side.read(active, tables[0])
        banks = (
            Side.without_features(registry) if tables[1] is None else Side.read(passive, tables[1])
        )
        for seed in seeds:
            started = time.monotonic()
            settings = SimulationSettings(training, active.model, active.optimiser, seed)
            figures = train(registry, banks, settings)
            _show(name, len(registry.train), figures, time.monotonic() - started)
    runs = RunDirectory(active.run_directory)
    if runs.training.exists():
        history = History.from_json(runs.load_history())
        seconds = history.compute + history.wire + history.wait
        union = runs.load_alignment().summary.union_size
        _show("FLORIST, over the network", union, history.epochs[-1], seconds)


def train(registry: Side, banks: Side, settings: SimulationSettings) -> EpochFigures:
    """Train both halves with two parties that have the same loans."""
    assert registry.train_labels is not None
    assert registry.test_labels is not None
    world, test = (
        World(theirs, labels, banks.cardinalities, ours, registry.cardinalities)
        for theirs, labels, ours in (
            (banks.train, registry.train_labels, registry.train),
            (banks.test, registry.test_labels, registry.test),
        )
    )
    everyone = np.arange(len(registry.train))
    active, _ = simulate(world, Holdings(everyone, everyone), test, settings)
    return active.run.history.epochs[-1]


def _show(name: str, loans: int, figures: EpochFigures, seconds: float) -> None:
    quality = f"{figures.auc:>8.4f}{figures.ace:>8.4f}{figures.log_loss:>10.4f}"
    print(f"{name:<26}{loans:>9,}{quality}{seconds:>9.0f}", flush=True)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("prepare")
    first.add_argument("--source", type=Path, required=True)
    first.add_argument("--out", type=Path, required=True)
    first.add_argument("--loans", type=int, help="number of loans to use; default: all")
    first.add_argument("--test", type=float, default=0.15, help="fraction held out for testing")
    first.add_argument(
        "--held", type=float, default=0.7, help="fraction of the others that each party has"
    )
    first.add_argument("--seed", type=int, default=0)
    second = commands.add_parser("baselines")
    second.add_argument("--out", type=Path, required=True)
    second.add_argument("--seeds", type=int, nargs="+", default=[0])
    arguments = vars(parser.parse_args())
    if arguments.pop("command") == "prepare":
        prepare(**arguments)
    else:
        baselines(**arguments)


if __name__ == "__main__":
    main()
