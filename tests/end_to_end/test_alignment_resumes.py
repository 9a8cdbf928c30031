"""A party is killed during alignment and started again: both resume where they can."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import pytest

from florist.common.privacy.ledger import charges, ledger_folder
from florist.common.privacy.ledger_file import read_ledger
from florist.common.settings.loader import load_config
from florist.experiments.sample_data import IdSample
from tests.support.parties import ROLES, SlowIds, Workspace, other

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.core.roles import RoleName
    from tests.support.parties import Party

SIZES = SlowIds(active=100, passive=100, shared=40)


def skipped(party: Party) -> set[str]:
    """Return the exchanges that it skipped."""
    return {
        found[1]
        for line in party.lines
        if (found := re.search(r"(steps? [\d-]+).*already complete", line))
    }


def assert_complete(workspace: Workspace) -> None:
    """Check that both have the correct union, and that the work folders are gone."""
    workspace.assert_aligned()
    for role in ROLES:
        assert not workspace.run_directory(role).work("align").exists()


def charged(workspace: Workspace, role: RoleName) -> int:
    """Return how often the privacy ledger charged a union."""
    entries = read_ledger(ledger_folder(load_config(workspace.config(role))))[0].entries
    return len(charges(entries))


@pytest.mark.parametrize("victim", ["active", "passive"])
@pytest.mark.parametrize(
    ("protocol", "moment"),
    [
        ("merged", "steps 2-3.* of |steps 1 and 3.*done"),
        pytest.param("merged", "hashing our IDs.*done", marks=pytest.mark.slow),
        pytest.param("merged", "steps 1-2.*done", marks=pytest.mark.slow),
        pytest.param("algorithm-1", "steps 7-10.* of |steps 5-6.*done", marks=pytest.mark.slow),
        pytest.param("algorithm-1", "steps 3-4.*done", marks=pytest.mark.slow),
    ],
)
def test_killed_and_started_again(
    tmp_path: Path, victim: RoleName, protocol: str, moment: str
) -> None:
    """The other party waits and returns the key of the secrets, and both resume under them."""
    workspace = Workspace.create(tmp_path / "pair", SIZES).patient()
    for role in ROLES:
        workspace.change(role, "protocol: merged", f"protocol: {protocol}")
    with workspace.start(other(victim)) as left:
        with workspace.start(victim) as killed:
            killed.wait_for(moment)
            killed.signal(signal.SIGKILL)
            killed.finish()
        with workspace.start(victim) as again:
            assert (again.finish(), left.finish()) == (0, 0)
    assert "resuming this union" in again.output
    assert skipped(again) == skipped(left)
    assert_complete(workspace)
    assert [charged(workspace, role) for role in ROLES] == [1, 1]


def test_both_killed_start_over(tmp_path: Path) -> None:
    """Nobody has the keys of the secrets any more."""
    workspace = Workspace.create(tmp_path / "pair", SIZES)
    with workspace.start("active") as active, workspace.start("passive") as passive:
        active.wait_for("steps 1-2.*done")
        for party in (active, passive):
            party.signal(signal.SIGKILL)
    for role in ROLES:
        assert workspace.run_directory(role).work("align").exists()
    with workspace.start("active") as active, workspace.start("passive") as passive:
        assert (active.finish(), passive.finish()) == (0, 0)
    assert "resuming" not in active.output + passive.output
    assert_complete(workspace)
    assert [charged(workspace, role) for role in ROLES] == [2, 2]


def test_within_the_smallest_memory_limit(tmp_path: Path) -> None:
    """Sets are sorted in runs on disk, and the result is the same."""
    workspace = Workspace.create(tmp_path / "pair", IdSample(3000, 300_000, 1500))
    for role in ROLES:
        workspace.change(role, "memory_limit: 2GB", "memory_limit: 256MB")
    with workspace.start("active") as active, workspace.start("passive") as passive:
        assert (active.finish(100), passive.finish(100)) == (0, 0)
    assert_complete(workspace)


def test_an_unusable_folder_is_named(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "pair", IdSample(30, 40, 15))
    runs = workspace.run_directory("passive")
    runs.path.mkdir(parents=True, exist_ok=True)
    runs.work("align").touch()
    with workspace.start("active") as active, workspace.start("passive") as passive:
        assert (active.finish(), passive.finish()) == (5, 2)
    assert str(runs.work("align")) in passive.output
    assert "start again" in passive.output
