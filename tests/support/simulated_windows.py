"""Simulated runs for tests of single training windows, with the default network."""

from __future__ import annotations

import numpy as np

from florist.common.data.features import Features
from florist.common.settings.agreement import TrainingAgreement
from florist.common.settings.training import Model, Optimiser
from florist.experiments.simulation import Holdings, Observed, SimulationSettings, World, observe


def make_world(people: int, rate: float, seed: int) -> World:
    """Make weakly informative features, and labels with exactly this rate of positives."""
    random = np.random.default_rng(seed)
    numeric = random.random((people, 8), dtype=np.float32)
    scores = (numeric - 0.5) @ np.array([1.5, -1.5, 1, 0.5, 0, 0, 0, 0])
    scores += random.logistic(size=people)
    labels = (scores >= np.quantile(scores, 1 - rate)).astype(np.int64)
    return World(Features(numeric, np.zeros((people, 0), dtype=np.int32)), labels, ())


def run(rate: float, batch_size: int, *, steps: int, seed: int = 1, **agreed: object) -> Observed:
    """Train the default network for one epoch; half of the people of each party are shared."""
    people = batch_size * steps
    agreement = TrainingAgreement.model_validate(
        {"batch_size": batch_size, "checkpoint_every": 0, **agreed}
    )
    settings = SimulationSettings(agreement, Model(), Optimiser(), seed=seed)
    third = people // 3
    holdings = Holdings(np.arange(2 * third), np.arange(third, 3 * third))
    return observe(make_world(people, rate, seed), holdings, None, settings)
