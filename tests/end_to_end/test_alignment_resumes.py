"""A party that is killed while both align, and started again: what both had is not done again."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import pytest

from florist.experiments.sample_data import IdSample
from tests.support.parties import ROLES, SlowIds, Workspace, other

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.core.roles import RoleName
    from tests.support.parties import Party

SIZES = SlowIds(active=100, passive=100, shared=40)

FIRST_ROUNDS = ("steps 3-4", "steps 5-6")


def skipped(party: Party) -> set[str]:
    """The exchanges that it did not do again."""
    return {
        found[1]
        for line in party.lines
        if (found := re.search(r"(steps? [\d-]+).*already complete", line))
    }


def assert_over(workspace: Workspace) -> None:
    """Both have the true union, and nothing is left of the way to it."""
    workspace.assert_aligned()
    for role in ROLES:
        assert not workspace.run_directory(role).work("align").exists()


@pytest.mark.parametrize("victim", ["active", "passive"])
@pytest.mark.parametrize(
    "moment",
    [
        "steps 7-10.* of |steps 5-6.*done",
        pytest.param("hashing our IDs.*done", marks=pytest.mark.slow),
        pytest.param("steps 3-4.*done", marks=pytest.mark.slow),
    ],
)
def test_killed_and_started_again(tmp_path: Path, victim: RoleName, moment: str) -> None:
    """The other waits, gives the key of its secrets back, and both go on under the same ones."""
    workspace = Workspace.create(tmp_path / "pair", SIZES).patient()
    with workspace.start(other(victim)) as left:
        with workspace.start(victim) as killed:
            killed.wait_for(moment)
            killed.signal(signal.SIGKILL)
            killed.finish()
        with workspace.start(victim) as again:
            assert (again.finish(), left.finish()) == (0, 0)
    assert "resuming this union" in again.output
    assert skipped(again) == skipped(left)
    assert_over(workspace)


def test_both_killed_begin_anew(tmp_path: Path) -> None:
    """Nobody has the keys to the secrets any more."""
    workspace = Workspace.create(tmp_path / "pair", SIZES)
    with workspace.start("active") as active, workspace.start("passive") as passive:
        active.wait_for("steps 3-4.*done")
        for party in (active, passive):
            party.signal(signal.SIGKILL)
    for role in ROLES:
        assert workspace.run_directory(role).work("align").exists()
    with workspace.start("active") as active, workspace.start("passive") as passive:
        assert (active.finish(), passive.finish()) == (0, 0)
    assert "resuming" not in active.output + passive.output
    assert_over(workspace)


def test_within_a_small_limit(tmp_path: Path) -> None:
    """The smallest limit there is: sorted in runs on disk, and the result is the same."""
    workspace = Workspace.create(tmp_path / "pair", IdSample(3000, 300_000, 1500))
    for role in ROLES:
        workspace.change(role, "memory_limit: 2GB", "memory_limit: 256MB")
    with workspace.start("active") as active, workspace.start("passive") as passive:
        assert (active.finish(100), passive.finish(100)) == (0, 0)
    assert_over(workspace)


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "pair", IdSample(30, 40, 15))
    runs = workspace.run_directory("passive")
    runs.path.mkdir(parents=True, exist_ok=True)
    runs.work("align").touch()
    with workspace.start("active") as active, workspace.start("passive") as passive:
        assert (active.finish(), passive.finish()) == (5, 2)
    assert str(runs.work("align")) in passive.output
    assert "start again" in passive.output
