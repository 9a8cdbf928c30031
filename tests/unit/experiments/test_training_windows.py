"""No training window reveals membership, not even the first batch.

Attacks on the recorded messages of simulated runs of the default network, by the position of the
batch in the run.
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
from florist.common.audit.training_windows import TRAINING_WINDOWS, TrainingWindow
from florist.common.audit.view import ActiveView
from florist.common.synthetic import label_strategies
from tests.support.simulated_windows import run

if TYPE_CHECKING:
    from torch import Tensor

    from florist.common.audit.statistics import IntervalEstimate
    from florist.common.audit.training_windows import WindowName
    from florist.common.synthetic.label_strategies import LabelRequest
    from florist.experiments.simulation import Observed

RATES = (0.25, 0.03, 0.01)
BATCH_SIZES = (256, 1024)
#: 5% for all windows of all runs together (Bonferroni).
CONFIDENCE = 1 - 0.05 / (len(TRAINING_WINDOWS) * len(RATES) * len(BATCH_SIZES))
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
    def half_width(self) -> float:
        """Half the interval's width: a leak that is larger by this and more would be found."""
        low, high = self.interval()
        return (high - low) / 2

    @property
    def is_leak(self) -> bool:
        if not self.people:
            return False
        low, high = self.interval()
        return not low <= self.prior <= high


def shown_ones(observed: Observed) -> dict[WindowName, Shown]:
    seen = observed.seen
    assert seen is not None
    own = seen.passive.is_own()
    steps = [
        (seen.has_label[ranks[own[ranks]]], labels[own[ranks]])
        for ranks, labels in inferred_labels(seen.passive)
    ]
    found = {}
    for name, window in TRAINING_WINDOWS.items():
        inside = steps[window.start : window.stop]
        shared, ones = (np.concatenate(each) for each in zip(*inside, strict=True))
        found[name] = Shown(int(ones.sum()), int(shared[ones].sum()), float(shared.mean()))
    return found


@cache
def observed_run(rate: float, batch_size: int) -> Observed:
    return run(rate, batch_size, steps=STEPS)


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


def without_matching(
    predictions: Tensor, _own: Tensor, _rates: tuple[float, ...], wanted: Tensor
) -> Tensor:
    """Replace `with_rates`: labels are drawn from the predictions as they are."""
    return predictions[wanted]


@pytest.mark.parametrize(("rate", "batch_size"), [(0.03, 256), (0.03, 1024), (0.01, 1024)])
def test_a_model_that_starts_at_one_half_leaks(
    rate: float, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail: without the two measures, the first batch reveals membership."""
    monkeypatch.setattr(active_training, "start_at_base_rate", lambda _model, _data: None)
    monkeypatch.setattr(label_strategies, "with_rates", without_matching)
    # With late fusion the first predictions for the peer are the base rate, whatever the model is.
    found = shown_ones(run(rate, batch_size, steps=21, cut_width=128))["batch-0"]
    assert found.is_leak
    assert found.shared / found.people < found.prior


def drawn_rates(
    monkeypatch: pytest.MonkeyPatch,
    rate: float,
    batch_size: int,
    seed: int = 1,
    **agreed: object,
) -> dict[WindowName, float]:
    """Return the mean probability of a synthetic 1 in each window, relative to the base rate.

    If it is r, and half of the people of a window are shared, P(shared | shows a 1) is 1 / (1 + r).
    The probabilities show deviations that are far too small to be seen in the labels themselves.
    """
    seen: list[tuple[int, float, int]] = []
    real = label_strategies._sample

    def sample(uniforms: Tensor, probabilities: Tensor) -> Tensor:
        seen[-1] = (seen[-1][0], float(probabilities.sum()), len(probabilities))
        return real(uniforms, probabilities)

    def count(strategy: label_strategies.LabelStrategy, request: LabelRequest) -> Tensor:
        seen.append((len(request.labels), 0.0, 0))
        frequency.append(request.frequencies[1])
        return targets(strategy, request)

    frequency: list[float] = []
    targets = label_strategies.targets
    monkeypatch.setattr(label_strategies, "_sample", sample)
    monkeypatch.setattr(active_training, "targets", count)
    run(rate, batch_size, steps=STEPS, seed=seed, **agreed)
    rows, sums, drawn = (np.array(each) for each in zip(*seen, strict=True))
    step = (rows.cumsum() - 1) // batch_size
    found = {}
    for name, window in TRAINING_WINDOWS.items():
        inside = np.array([window.contains(int(each)) for each in step])
        found[name] = float(sums[inside].sum() / drawn[inside].sum() / frequency[0])
    return found


@pytest.mark.parametrize("batch_size", BATCH_SIZES)
@pytest.mark.parametrize("rate", RATES)
def test_synthetic_labels_are_drawn_with_the_base_rate_in_every_window(
    rate: float, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 4%, so P(shared | shows a 1) is within one percentage point of the prior."""
    found = drawn_rates(monkeypatch, rate, batch_size)
    assert list(found.values()) == pytest.approx([1.0] * len(found), abs=0.04)


@pytest.mark.parametrize("rate", [0.03, 0.01])
def test_the_predictions_of_a_learning_model_have_other_rates(
    rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why labels are not drawn from the predictions as they are."""
    monkeypatch.setattr(label_strategies, "with_rates", without_matching)
    found = drawn_rates(monkeypatch, rate, 1024, cut_width=128)
    assert max(abs(value - 1) for value in found.values()) > 0.1


def attack_on_features(observed: Observed, attack: str) -> dict[str, IntervalEstimate]:
    """Return the folded AUC of an attack by the active party in each window, and in all batches."""
    seen = observed.seen
    assert seen is not None
    view, found = seen.active, {}
    windows: dict[str, TrainingWindow] = {"all": TrainingWindow(0, None)}
    windows.update(TRAINING_WINDOWS.items())
    for name, window in windows.items():
        steps = view.steps[window.start : window.stop]
        scores = ACTIVE_ATTACKS[attack].score(ActiveView(view.union_size, view.uids, steps))
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
    """A copy is found by its original, if the window has both: here every fifth or third time.

    The share of such pairs is the window's share of the union, so no window is above the whole run.
    """
    found = attack_on_features(observed_run(rate, batch_size), "embedding-collision")
    assert {name for name, auc in found.items() if auc.low > found["all"].value} == set()


def test_random_embeddings_are_recognised_in_every_window() -> None:
    strategy = {"strategy": "fea-random"}
    observed = run(
        0.25, 256, steps=21, features=strategy, stand_ins="plain", wide=False, cut_width=128
    )
    assert min(auc.low for auc in attack_on_features(observed, "spectral").values()) > 0.5


#: Half the width of the widest interval of the test below, by the rate of positives: smaller
#: deviations of P(shared | shows a 1) from the prior may go unnoticed in the window with the fewest
#: people, which is the first batch of 256. In batches 5-9 of 1,024 it is 0.03, 0.06 and 0.10.
UNNOTICED = {0.25: 0.08, 0.03: 0.2, 0.01: 0.35}


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", BATCH_SIZES)
@pytest.mark.parametrize("rate", RATES)
def test_the_rates_hold_on_average_over_several_runs(rate: float, batch_size: int) -> None:
    """Runs differ in people, weights and draws."""
    runs = [shown_ones(run(rate, batch_size, steps=STEPS, seed=seed)) for seed in range(2, 18)]
    for name in TRAINING_WINDOWS:
        found = [shown[name] for shown in runs]
        people = sum(shown.people for shown in found)
        shared = sum(shown.shared for shown in found)
        pooled = Shown(people, shared, float(np.mean([shown.prior for shown in found])))
        assert pooled.half_width < UNNOTICED[rate]
        assert not pooled.is_leak, name
