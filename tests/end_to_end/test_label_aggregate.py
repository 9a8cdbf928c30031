"""Training over TLS with a label aggregate: ledger, evidence, files, and a kill in between."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from florist.common.evidence.evidence_file import load_stage_evidence
from florist.common.privacy.ledger import charges, ledger_folder
from florist.common.privacy.ledger_file import read_ledger
from florist.common.settings.loader import load_config
from tests.support.parties import ROLES, QuickClicks, Workspace

if TYPE_CHECKING:
    from florist.common.core.roles import RoleName
    from florist.common.privacy.ledger_entries import Charge


@dataclass(frozen=True)
class Clicks(QuickClicks):
    """A short training that starts from an aggregate, although there are few people."""

    people: int = 800

    def settings(self, role: RoleName) -> dict[str, object]:
        return QuickClicks.settings(self, role) | {
            "agreement.training.epochs": 1,
            "agreement.training.aggregate.min_count": 20,
        }


@pytest.fixture
def aligned(workspace: Workspace) -> Workspace:
    with (
        workspace.start_warm("active", stage="align") as active,
        workspace.start_warm("passive", stage="align") as passive,
    ):
        assert (active.finish(120), passive.finish(120)) == (0, 0)
    return workspace


@pytest.fixture
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    made = Workspace.create(tmp_path_factory.mktemp("run") / "pair", Clicks()).patient()
    for role in ROLES:
        privacy = {"epsilon": 2.0, "delta": 1e-7}
        made.configure(role, {"agreement.training.aggregate.privacy": privacy})
    return made


def charged(workspace: Workspace, role: RoleName) -> list[Charge]:
    config = load_config(workspace.directory / f"{role}.yml")
    return charges(read_ledger(ledger_folder(config))[0].entries)


def train(workspace: Workspace) -> None:
    with (
        workspace.start_warm("active", stage="train") as active,
        workspace.start_warm("passive", stage="train") as passive,
    ):
        assert (active.finish(240), passive.finish(240)) == (0, 0)


def test_it_is_charged_once_signed_by_both_and_leaves_no_secret(aligned: Workspace) -> None:
    train(aligned)
    labels = [charge for charge in charged(aligned, "active") if charge.announced == "labels"]
    assert [(charge.epsilon, charge.delta) for charge in labels] == [(2.0, 1e-7)]
    assert not [each for each in charged(aligned, "passive") if each.announced == "labels"]
    for role in ROLES:
        runs = aligned.run_directory(role)
        record = load_stage_evidence(runs.evidence / "train.json").record
        stated = record["statement"]["aggregate"]
        assert (stated["epsilon"], stated["delta"]) == (2.0, 1e-7)
        assert stated["coordinates"] >= stated["columns"] > 0
        assert not list(runs.path.rglob("aggregate.*"))


def test_a_run_that_is_killed_before_its_first_checkpoint_is_not_charged_again(
    aligned: Workspace,
) -> None:
    """The active party has sent encrypted labels to a peer that is gone before it asks for sums."""
    active_runs = aligned.run_directory("active")
    with aligned.start_warm("active", stage="train") as active:
        with aligned.start_warm("passive", stage="train") as passive:
            active.wait_for("encrypting labels", 120)
            passive.signal(signal.SIGKILL)
            passive.finish()
        with aligned.start_warm("passive", stage="train") as passive:
            assert (active.finish(240), passive.finish(240)) == (0, 0)
    labels = [charge for charge in charged(aligned, "active") if charge.announced == "labels"]
    assert len(labels) == 1
    assert (active_runs.training / "model.json").exists()
