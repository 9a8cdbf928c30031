"""Windows of training steps, and the confidence of the intervals in each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from florist.common.audit.attack_runner import MOST_STRATA, oriented
from florist.common.audit.attacks import ACTIVE_ATTACKS, PASSIVE_ATTACKS
from florist.common.audit.comparisons import FALSE_ALARMS, Comparisons
from florist.common.audit.findings import SCOPE_TEXTS, Finding, verdict
from florist.common.audit.statistics import evaluate
from florist.common.audit.training_windows import (
    EARLY_STEPS,
    TRAINING_WINDOWS,
    early_rows,
    windows_ending_at,
)
from florist.common.settings.audit import AuditSettings
from florist.common.training.schedule import Schedule

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.audit.findings import Scope

ATTACKS = len(PASSIVE_ATTACKS.names)


def test_every_step_is_in_a_window() -> None:
    for step in range(2 * EARLY_STEPS):
        found = [name for name, window in TRAINING_WINDOWS.items() if window.contains(step)]
        assert len(found) == (2 if step == 0 else 1)
        assert ("later-batches" in found) == (step >= EARLY_STEPS)
    assert set(TRAINING_WINDOWS) < set(SCOPE_TEXTS)


@pytest.mark.parametrize("steps", [1, 3, 5, 12, 20, 500])
def test_each_early_window_ends_once(steps: int) -> None:
    ended = [name for step in range(1, steps + 1) for name in windows_ending_at(step, steps)]
    assert ended == [
        name
        for name, window in TRAINING_WINDOWS.items()
        if window.stop is not None and window.start < steps
    ]


@pytest.mark.parametrize("rows", [400, 2000])
def test_each_early_window_has_enough_rows(rows: int) -> None:
    for window in TRAINING_WINDOWS.values():
        if window.stop is not None:
            kept = sum(early_rows(step, rows) for step in range(window.start, window.stop))
            assert rows <= kept <= 2 * rows


def test_all_intervals_of_a_run_together_have_the_stated_confidence() -> None:
    schedule = Schedule(bytes(32), 100_000, batch_size=100, epochs=3)
    counted = Comparisons.of_run("active", schedule, every=50)
    audits: list[Scope] = [*["batches"] * 60, *["epochs", "later-batches"] * 3]  # type: ignore[list-item]
    audits += [name for name, window in TRAINING_WINDOWS.items() if window.stop is not None]
    errors = sum(3 * (1 - counted.confidence(over)) for over in audits)
    errors += 3 * MOST_STRATA * (1 - counted.stratum_confidence())  # once per epoch
    assert counted.attacks * errors == pytest.approx(FALSE_ALARMS)


def test_attacks_that_a_party_cannot_make_on_itself_are_not_counted() -> None:
    counted = (
        Comparisons.of_one_audit("active").attacks,
        Comparisons.of_one_audit("passive").attacks,
    )
    assert counted == (len(PASSIVE_ATTACKS.names) - 4, len(ACTIVE_ATTACKS.names) - 2)


def test_a_long_run_has_the_same_intervals_in_its_first_batches() -> None:
    short, long = (
        Comparisons.of_run("passive", Schedule(bytes(32), size, 100, 1), every=100)
        for size in (10_000, 10_000_000)
    )
    assert long.confidence("batch-0") == short.confidence("batch-0")
    assert long.confidence("batches") > short.confidence("batches")


#: How the scores of attacks look: all different, two groups, and ties.
KINDS = ("different", "groups", "ties")


def null_scores(kind: str, size: int, random: np.random.Generator) -> npt.NDArray[np.float64]:
    if kind == "different":
        return random.normal(size=size)
    groups = (random.random(size) < 0.03).astype(np.float64)
    return groups if kind == "ties" else groups + 0.01 * random.normal(size=size)


def false_alarms(runs: int) -> int:
    """Return how many runs without any leak raise an alarm if the limits are chance itself.

    A run has the early windows with a batch size of 1,024 and `rows` of 2,000, and as many attacks
    as there are on an active party. Their scores are independent, which is the worst case.
    """
    settings = AuditSettings(warn_above=0.5, warn_tpr_above=0.01)
    confidence = Comparisons(ATTACKS, early=4, later=1).confidence("batch-0")
    random = np.random.default_rng(1)
    alarms = 0
    for _ in range(runs):
        found = []
        for size in (1024, 2624, 2000, 2000):
            truth = np.arange(size) % 3 > 0
            for attack in range(ATTACKS):
                scores = oriented(null_scores(KINDS[attack % 3], size, random), truth)
                found.append(
                    Finding.of(evaluate("any", scores, truth, samples=50, confidence=confidence))
                )
        alarms += verdict([one for one in found if one], settings) != "fine"
    return alarms


def test_runs_without_a_leak_raise_few_alarms() -> None:
    """At the allowed 2.5% per run, more than 2 of 8 have a probability of 0.1%.

    With 95% intervals about 70% of the runs would raise one, since a run has 24 AUCs.
    """
    assert false_alarms(8) <= 2


@pytest.mark.slow
def test_the_rate_of_false_alarms_is_at_most_the_stated_one() -> None:
    """The windows have half of the allowed 5%: 3 of 120 runs; 8 have a probability of 1%."""
    assert false_alarms(120) < 8
