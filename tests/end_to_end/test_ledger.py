"""The privacy ledger in real runs: what is charged, and what is rejected before connecting."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from florist.active_party.role import ACTIVE
from florist.common.core.errors import FloristError, Interrupted
from florist.common.core.progress import NoProgress
from florist.common.privacy.ledger import charges, ledger_folder, open_ledger, settlements
from florist.common.privacy.ledger_file import read_ledger
from florist.common.session.stage_state import StageOptions
from florist.common.settings.loader import load_config
from florist.common.stages.run_stages import run_stage
from florist.common.transport.in_memory import linked_pair
from florist.experiments.sample_data import IdSample
from florist.passive_party.role import PASSIVE
from tests.support.in_process import RoleOverLink, RoleWithoutPeer
from tests.support.parties import ROLES, Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from florist.common.core.progress import Progress
    from florist.common.core.roles import RoleName
    from florist.common.privacy.ledger_entries import Charge, Settlement
    from florist.common.stages.role import Role

BOTH: dict[RoleName, Role] = {"active": ACTIVE, "passive": PASSIVE}
FORCE = StageOptions(force=True)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.create(tmp_path / "pair", IdSample(active=60, passive=80, shared=30))


class StopsInTheRounds(NoProgress):
    """An operator who stops the party when elements are exchanged, after the sizes were."""

    def advance(self, done: int) -> None:  # noqa: ARG002
        raise Interrupted("stopped by the test")


def align(
    workspace: Workspace,
    options: StageOptions = FORCE,
    progress: Mapping[RoleName, Progress] | None = None,
) -> dict[RoleName, FloristError | None]:
    """Align both parties in this process; return how each ended."""
    links = dict(zip(ROLES, linked_pair(), strict=True))

    def end(role: RoleName) -> FloristError | None:
        side = RoleOverLink(BOTH[role], links[role])
        config = load_config(workspace.config(role))
        try:
            run_stage("align", side, config, options, (progress or {}).get(role, NoProgress()))
        except FloristError as error:
            links[role].close()
            return error
        return None

    with ThreadPoolExecutor(2) as both:
        ends = {role: both.submit(end, role) for role in ROLES}
        return {role: each.result(timeout=60) for role, each in ends.items()}


def alone(workspace: Workspace, role: RoleName, options: StageOptions = FORCE) -> FloristError:
    """Return the error of a party that fails before it connects to its peer."""
    config = load_config(workspace.config(role))
    with pytest.raises(FloristError) as end:
        run_stage("align", RoleWithoutPeer(BOTH[role]), config, options, NoProgress())
    return end.value


def ledger(workspace: Workspace, role: RoleName) -> tuple[list[Charge], dict[int, Settlement]]:
    folder = ledger_folder(load_config(workspace.config(role)))
    entries = read_ledger(folder)[0].entries
    return charges(entries), settlements(entries)


def change_one_person(workspace: Workspace, role: RoleName) -> None:
    table = workspace.table(role)
    table.write_text(f'{table.read_text()}"somebody@example.org"\n')


def test_both_parties_record_what_was_announced(workspace: Workspace) -> None:
    assert align(workspace) == {"active": None, "passive": None}
    for role in ROLES:
        (charge,), settled = ledger(workspace, role)
        sizes = workspace.alignment(role).summary.sizes
        assert (charge.table, charge.own_size) == ("train", sizes.own)
        assert (charge.epsilon, charge.delta) == (1.0, 1e-9)
        assert settled[1].outcome == "finished"
        assert (settled[1].peer_size, settled[1].union_size) == (sizes.peer, sizes.union)
    digests = {ledger(workspace, role)[0][0].agreement_digest for role in ROLES}
    assert len(digests) == 1


def test_a_run_beyond_the_budget_is_rejected_before_connecting(workspace: Workspace) -> None:
    workspace.configure("active", {"privacy.budget": {"epsilon": 1.5, "delta": 1e-6}})
    assert align(workspace) == {"active": None, "passive": None}
    error = alone(workspace, "active")
    assert error.exit_code == 2
    assert "only epsilon 0.5 and delta" in error.reason
    assert "(finished)" in error.reason
    assert "epsilon" not in error.for_peer
    assert len(ledger(workspace, "active")[0]) == 1


def test_a_run_that_fails_after_the_sizes_were_exchanged_is_charged(workspace: Workspace) -> None:
    ends = align(workspace, progress={"passive": StopsInTheRounds()})
    assert isinstance(ends["passive"], Interrupted)
    assert ends["active"] is not None
    for role in ROLES:
        (charge,), settled = ledger(workspace, role)
        assert charge.own_size > 60
        assert settled[1].outcome == "failed"
    # Both lost their secrets, so the union starts over, with new draws: charged again.
    assert align(workspace, StageOptions()) == {"active": None, "passive": None}
    for role in ROLES:
        charged, settled = ledger(workspace, role)
        assert len(charged) == 2
        assert [settled[number].outcome for number in (1, 2)] == ["failed", "finished"]


def test_the_budget_also_limits_unions_that_start_over(workspace: Workspace) -> None:
    workspace.configure("active", {"privacy.budget": {"epsilon": 1.0, "delta": 1e-6}})
    align(workspace, progress={"passive": StopsInTheRounds()})
    ends = align(workspace, StageOptions())
    assert ends["active"] is not None
    assert "privacy.budget" in ends["active"].reason
    assert ends["passive"] is not None
    assert len(ledger(workspace, "active")[0]) == 1


def test_a_run_that_fails_before_is_not_charged(workspace: Workspace) -> None:
    workspace.configure("passive", {"agreement.id_normalisation": "none"})
    ends = align(workspace)
    assert all(ends.values())
    for role in ROLES:
        assert ledger(workspace, role) == ([], {})


@pytest.mark.parametrize("role", ROLES)
def test_a_small_difference_is_rejected_before_connecting(
    workspace: Workspace, role: RoleName
) -> None:
    assert align(workspace) == {"active": None, "passive": None}
    change_one_person(workspace, role)
    error = alone(workspace, role)
    assert error.exit_code == 2
    assert "privacy.minimum_change" in error.reason
    accepted = StageOptions(force=True, accept_difference="a person was forgotten")
    assert align(workspace, accepted) == {"active": None, "passive": None}
    for each in ROLES:
        reason = ledger(workspace, each)[0][1].accepted_difference
        assert reason == ("a person was forgotten" if each == role else None)


def test_a_ledger_in_use_is_reported(workspace: Workspace) -> None:
    with open_ledger(load_config(workspace.config("active"))):
        error = alone(workspace, "active")
    assert error.exit_code == 2
    assert "in use by another run" in error.reason


def test_the_command_takes_the_reason(workspace: Workspace) -> None:
    assert align(workspace) == {"active": None, "passive": None}
    change_one_person(workspace, "active")
    with workspace.start("active", "--force") as party:
        assert party.finish() == 2
    assert "--accept-difference" in party.output
    options = ("--force", "--accept-difference", "a correction")
    with (
        workspace.start("active", *options) as active,
        workspace.start("passive", "--force") as passive,
    ):
        assert (active.finish(), passive.finish()) == (0, 0)
    assert ledger(workspace, "active")[0][-1].accepted_difference == "a correction"
