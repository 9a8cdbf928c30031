"""Baselines for the demo. They need all data in one place, so they are simulated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from florist.common.data.preprocessing_fitter import fit_preprocessing
from florist.common.settings.loader import load_config
from florist.common.training.history import EpochFigures, History
from florist.experiments.methods import METHODS
from florist.experiments.simulation import Holdings, SimulationSettings, World, simulate

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.session.run_directory import RunDirectory
    from florist.common.settings.party_config import PartyConfig
    from florist.experiments.click_data import ClickData, ClickSplit
    from florist.experiments.methods import Method
    from florist.experiments.sample_data import ClickSample


@dataclass(frozen=True, slots=True)
class Comparison:
    """A training method, its number of rows with real label and features, and test metrics."""

    name: str
    real_rows: int
    auc: float
    ace: float


def compare(directory: Path, sample: ClickSample, finished: RunDirectory) -> list[Comparison]:
    """Simulate both baselines and the paper's FLORIST; append the finished run."""
    config = load_config(directory / "passive.yml")
    data, who = sample.data()
    everyone = who_holds_all(data, who)
    union = Holdings(who.active, who.passive)
    paper, same = METHODS["florist-paper"], METHODS["default"]
    rows = [
        _simulated("baseline-full: both parties have everybody", data, who, everyone, config, same),
        _simulated(
            "baseline-partial: the intersection only", data, who, union.shared, config, same
        ),
        _simulated("FLORIST as in the paper", data, who, union, config, paper),
    ]
    history = History.from_json(finished.load_history())
    rows.append(_row("FLORIST, default (the run above)", len(who.shared), history.epochs[-1]))
    return rows


def who_holds_all(data: ClickData, who: ClickSplit) -> Holdings:
    """Give both parties everybody except the test people."""
    train = np.setdiff1d(np.arange(len(data)), who.test)
    return Holdings(train, train)


def _simulated(
    name: str,
    data: ClickData,
    who: ClickSplit,
    holdings: Holdings,
    config: PartyConfig,
    method: Method,
) -> Comparison:
    preprocessing = config.data.preprocessing
    if method.bins is not None:
        preprocessing = preprocessing.model_copy(update={"bins": method.bins})
    fitted = fit_preprocessing(data.raw(holdings.passive), preprocessing)
    agreement = config.agreement.training
    settings = SimulationSettings(
        type(agreement).model_validate(agreement.model_dump() | method.agreement),
        config.model,
        config.optimiser,
    )
    everyone = np.arange(len(data))
    world = World(fitted.transform(data.raw(everyone)), data.labels, fitted.cardinalities)
    test = World(fitted.transform(data.raw(who.test)), data.labels[who.test], fitted.cardinalities)
    active, _ = simulate(world, holdings, test, settings)
    real = len(np.intersect1d(holdings.active, holdings.passive))
    return _row(name, real, active.run.history.epochs[-1])


def _row(name: str, real_rows: int, figures: EpochFigures) -> Comparison:
    assert figures.auc is not None
    assert figures.ace is not None
    return Comparison(name, real_rows, figures.auc, figures.ace)
