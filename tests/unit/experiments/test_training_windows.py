"""No training window reveals membership, not even the first batch.

Attacks on the recorded messages of simulated runs, by the position of the batch in the run.
"""

from __future__ import annotations

from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from florist.active_party import training as active_training
from florist.common.audit.attack_tools.inferred_labels import inferred_labels
from florist.common.audit.attacks import ACTIVE_ATTACKS
from florist.common.audit.statistics import evaluate
from florist.common.audit.view import ActiveView
from florist.common.data.features import Features
from florist.common.settings.agreement import TrainingAgreement
from florist.common.settings.training import Model, Optimiser
from florist.experiments.simulation import Holdings, SimulationSettings, World, observe

if TYPE_CHECKING:
    from florist.common.audit.statistics import IntervalEstimate
    from florist.experiments.simulation import Observed

#: The first batch of each window and the first one after it.
WINDOWS = {
    "first batch": (0, 1),
    "batches 0-4": (0, 5),
    "batches 5-9": (5, 10),
    "batches 10-19": (10, 20),
    "rest": (20, None),
}
RATES = (0.25, 0.03, 0.01)
BATCH_SIZES = (256, 1024)
#: 5% for all windows of all runs together (Bonferroni).
CONFIDENCE = 1 - 0.05 / (len(WINDOWS) * len(RATES) * len(BATCH_SIZES))
STEPS = 26


class Shown(NamedTuple):
    """The people of a window who show a 1, as the passive party infers it."""

    people: int
    shared: int
    #: P(shared) among all people whom the passive party has in this window.
    prior: float

    def interval(self) -> tuple[float, float]:
        """Return the Wilson interval of P(shared | shows a 1)."""
        z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
        share, spread = self.shared / self.people, z * z / self.people
        middle = (share + spread / 2) / (1 + spread)
        half = np.sqrt(share * (1 - share) * spread + spread * spread / 4) / (1 + spread)
        return middle - half, middle + half

    @property
    def is_leak(self) -> bool:
        if not self.people:
            return False
        low, high = self.interval()
        return not low <= self.prior <= high


def make_world(people: int, rate: float, seed: int) -> World:
    """Make weakly informative features, and labels with exactly this rate of positives."""
    random = np.random.default_rng(seed)
    numeric = random.random((people, 8), dtype=np.float32)
    scores = (numeric - 0.5) @ np.array([1.5, -1.5, 1, 0.5, 0, 0, 0, 0])
    scores += random.logistic(size=people)
    labels = (scores >= np.quantile(scores, 1 - rate)).astype(np.int64)
    return World(Features(numeric, np.zeros((people, 0), dtype=np.int32)), labels, ())


def run(
    rate: float, batch_size: int, *, steps: int = STEPS, seed: int = 1, **agreed: object
) -> Observed:
    """Train one epoch; half of the people of each party are shared."""
    people = batch_size * steps
    agreement = TrainingAgreement.model_validate(
        {"batch_size": batch_size, "cut_width": 32, "checkpoint_every": 0, **agreed}
    )
    settings = SimulationSettings(agreement, Model(hidden=[32, 32]), Optimiser(), seed=seed)
    third = people // 3
    holdings = Holdings(np.arange(2 * third), np.arange(third, 3 * third))
    return observe(make_world(people, rate, seed), holdings, None, settings)


def shown_ones(observed: Observed) -> dict[str, Shown]:
    seen = observed.seen
    assert seen is not None
    own = seen.passive.is_own()
    steps = [
        (seen.has_label[ranks[own[ranks]]], labels[own[ranks]])
        for ranks, labels in inferred_labels(seen.passive)
    ]
    found = {}
    for name, (start, stop) in WINDOWS.items():
        shared, ones = (np.concatenate(each) for each in zip(*steps[start:stop], strict=True))
        found[name] = Shown(int(ones.sum()), int(shared[ones].sum()), float(shared.mean()))
    return found


@cache
def observed_run(rate: float, batch_size: int) -> Observed:
    return run(rate, batch_size)


@pytest.mark.parametrize("batch_size", BATCH_SIZES)
@pytest.mark.parametrize("rate", RATES)
def test_who_shows_a_1_is_shared_as_often_as_anybody(rate: float, batch_size: int) -> None:
    found = shown_ones(observed_run(rate, batch_size))
    assert sum(shown.people for shown in found.values()) > 0
    assert {name: shown for name, shown in found.items() if shown.is_leak} == {}


def test_the_first_loss_is_that_of_the_base_rate() -> None:
    for rate in RATES:
        entropy = -rate * np.log(rate) - (1 - rate) * np.log(1 - rate)
        losses = observed_run(rate, 1024).active.run.history.losses
        assert losses[0] == pytest.approx(entropy, rel=0.3)


@pytest.mark.parametrize(
    ("rate", "batch_size"), [(0.25, 1024), (0.03, 256), (0.03, 1024), (0.01, 256), (0.01, 1024)]
)
def test_a_model_that_starts_at_one_half_leaks(
    rate: float, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail: without the initial bias, the first batch reveals membership."""
    monkeypatch.setattr(active_training, "start_at_base_rate", lambda _model, _data: None)
    found = shown_ones(run(rate, batch_size, steps=21))["first batch"]
    assert found.is_leak
    assert found.shared / found.people < found.prior


def attack_on_features(observed: Observed, attack: str) -> dict[str, IntervalEstimate]:
    """Return the folded AUC of an attack by the active party in each window, and in all batches."""
    seen = observed.seen
    assert seen is not None
    view, found = seen.active, {}
    for name, (start, stop) in {**WINDOWS, "all": (0, None)}.items():
        window = ActiveView(view.union_size, view.uids, view.steps[start:stop])
        scores = ACTIVE_ATTACKS[attack].score(window)
        truth = seen.has_features[view.uids]
        result = evaluate(attack, scores, truth, samples=200, confidence=CONFIDENCE)
        found[name] = result.folded_auc
    return found


@pytest.mark.parametrize(("rate", "batch_size"), [(0.25, 256), (0.03, 1024), (0.01, 1024)])
def test_embeddings_of_stand_ins_are_no_outliers(rate: float, batch_size: int) -> None:
    found = attack_on_features(observed_run(rate, batch_size), "spectral")
    assert {name for name, auc in found.items() if auc.low > 0.5} == set()


@pytest.mark.parametrize(("rate", "batch_size"), [(0.25, 256), (0.03, 1024)])
def test_no_window_reveals_more_copied_rows_than_the_whole_run(
    rate: float, batch_size: int
) -> None:
    """So few and simple columns make near twins; a window has fewer of them than the whole run."""
    found = attack_on_features(observed_run(rate, batch_size), "embedding-collision")
    assert {name for name, auc in found.items() if auc.low > found["all"].value} == set()


def test_random_embeddings_are_recognised_in_every_window() -> None:
    observed = run(0.25, 256, steps=21, features={"strategy": "fea-random"})
    assert min(auc.low for auc in attack_on_features(observed, "spectral").values()) > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", BATCH_SIZES)
@pytest.mark.parametrize("rate", RATES)
def test_the_rates_hold_on_average_over_several_runs(rate: float, batch_size: int) -> None:
    """Runs differ in people, weights and draws; the deviations of single runs cancel out."""
    runs = [shown_ones(run(rate, batch_size, seed=seed)) for seed in range(2, 10)]
    for name in WINDOWS:
        pooled = [found[name] for found in runs]
        people = sum(shown.people for shown in pooled)
        shared = sum(shown.shared for shown in pooled)
        prior = float(np.mean([shown.prior for shown in pooled]))
        assert not Shown(people, shared, prior).is_leak, name
