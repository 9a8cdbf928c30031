"""Attacks on the recorded messages of runs with known weaknesses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from florist.common.audit.attacks import ACTIVE_ATTACKS, PASSIVE_ATTACKS
from florist.common.audit.statistics import evaluate
from florist.common.data.features import Features
from florist.common.settings.agreement import TrainingAgreement
from florist.common.settings.training import Model, Optimiser
from florist.experiments.simulation import Holdings, SimulationSettings, World, observe

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.audit.statistics import AttackResult
    from florist.common.audit.view import ActiveView, PassiveView

PEOPLE = 900
HOLDINGS = Holdings(np.arange(600), np.arange(300, 900))
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "label-minority": {"labels": {"strategy": "label-minority"}, "stand_ins": "plain"},
    "re-drawn": {"sticky": False},
}


@dataclass(frozen=True)
class Audited:
    passive: PassiveView
    label_is_real: npt.NDArray[np.bool_]
    active: ActiveView
    features_are_real: npt.NDArray[np.bool_]

    def attack(self, name: str) -> AttackResult:
        if name in PASSIVE_ATTACKS.names:
            return evaluate(name, PASSIVE_ATTACKS[name].score(self.passive), self.label_is_real)
        return evaluate(name, ACTIVE_ATTACKS[name].score(self.active), self.features_are_real)


def make_world() -> World:
    random = np.random.default_rng(1)
    numeric = random.random((PEOPLE, 4), dtype=np.float32)
    logits = (numeric - 0.5) @ np.array([6, -6, 4, 0]) - 1
    labels = (random.random(PEOPLE) < 1 / (1 + np.exp(-logits))).astype(np.int64)
    return World(Features(numeric, np.zeros((PEOPLE, 0), dtype=np.int32)), labels, ())


@cache
def audited(name: str) -> Audited:
    agreement = TrainingAgreement.model_validate(
        {
            "epochs": 3,
            "batch_size": 128,
            "micro_batch": 48,
            "cut_width": 8,
            "checkpoint_every": 0,
            **SETTINGS[name],
        }
    )
    how = SimulationSettings(agreement, Model(hidden=[16, 8]), Optimiser(learning_rate=3e-3))
    seen = observe(make_world(), HOLDINGS, None, how).seen
    assert seen is not None
    return Audited(
        seen.passive,
        seen.has_label[seen.passive.uids],
        seen.active,
        seen.has_features[seen.active.uids],
    )


def test_every_uid_is_seen_in_every_epoch() -> None:
    run = audited("default")
    for view in (run.passive, run.active):
        for steps in view.epochs():
            ranks = np.concatenate([step.ranks for step in steps])
            assert np.array_equal(np.sort(ranks), np.arange(PEOPLE))


def test_gradient_directions_reveal_label_minority() -> None:
    found = audited("label-minority").attack("gradient-direction")
    harmless = audited("default").attack("gradient-direction")
    assert found.folded_auc.value > 0.6
    assert found.folded_auc.low > harmless.folded_auc.high


def test_redrawn_stand_ins_are_revealed_by_their_changes() -> None:
    run, sticky = audited("re-drawn"), audited("default")
    assert run.attack("flips").folded_auc.value > sticky.attack("flips").folded_auc.high
    assert run.attack("embedding-drift").folded_auc.value > 0.9
    assert sticky.attack("embedding-drift").folded_auc.low < 0.55
