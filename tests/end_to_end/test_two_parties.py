"""Alignment by two real processes over mutual TLS on localhost, and how failures end it."""

from __future__ import annotations

import re
import signal
import time
from typing import TYPE_CHECKING

import pytest

from florist.common.transport.certificates import create_authority, issue
from florist.experiments.sample_data import IdSample
from tests.support.parties import NAMES, ROLES, SMALL, Party, SlowIds, Workspace, other

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.core.roles import RoleName


LONGER = SlowIds(active=150, passive=150, shared=60)

#: Seconds within which the loss of the peer must be reported.
REPORT_LIMIT = 15


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.create(tmp_path / "pair")


@pytest.mark.parametrize("first", ["active", "passive"])
def test_either_party_may_start_first(workspace: Workspace, first: RoleName) -> None:
    with workspace.start(first) as one:
        one.wait_for("waiting for|listening")
        time.sleep(0.5)
        with workspace.start(other(first)) as two:
            assert (one.finish(), two.finish()) == (0, 0)
    workspace.assert_aligned()


@pytest.mark.parametrize("group", ["modp2048", pytest.param("modp3072", marks=pytest.mark.slow)])
def test_the_groups_of_the_paper(tmp_path: Path, group: str) -> None:
    workspace = Workspace.create(tmp_path / "pair", IdSample(30, 40, 15))
    for role in ROLES:
        workspace.change(role, "group: x25519", f"group: {group}")
        # These groups are slow: little padding.
        workspace.change(role, "planted_pairs: 64", "planted_pairs: 2")
        workspace.change(role, "epsilon: 1.0", "epsilon: 10.0")
    with workspace.start("active") as active, workspace.start("passive") as passive:
        assert (active.finish(), passive.finish()) == (0, 0)
    workspace.assert_aligned()


@pytest.mark.parametrize(
    ("protocol", "sample", "merging"),
    [
        ("merged", IdSample(900, 300, 150), "passive"),
        ("merged", IdSample(300, 900, 150), "active"),
        ("algorithm-1", IdSample(300, 900, 150), None),
    ],
)
def test_the_smaller_set_is_merged_and_both_record_it(
    tmp_path: Path, protocol: str, sample: IdSample, merging: RoleName | None
) -> None:
    workspace = Workspace.create(tmp_path / "pair", sample)
    for role in ROLES:
        workspace.change(role, "protocol: merged", f"protocol: {protocol}")
    with workspace.start("active") as active, workspace.start("passive") as passive:
        assert (active.finish(), passive.finish()) == (0, 0)
    workspace.assert_aligned()
    for role in ROLES:
        summary = workspace.alignment(role).summary
        assert summary.agreement["union"]["protocol"] == protocol
        assert summary.merging == merging


def test_a_peer_with_the_other_protocol_is_rejected(workspace: Workspace) -> None:
    workspace.change("passive", "protocol: merged", "protocol: algorithm-1")
    with workspace.start("active") as active, workspace.start("passive") as passive:
        assert (active.finish(), passive.finish()) == (2, 2)
    differs = r"agreement\.union\.protocol: .?merged.? here, .?algorithm-1.? at the peer"
    assert re.search(differs, active.output)
    assert workspace.is_clean("active")


def test_dummies_hide_the_size_of_a_set(workspace: Workspace) -> None:
    workspace.change("passive", "dummies: 0", "dummies: 37")
    with workspace.start("active") as active, workspace.start("passive") as passive:
        assert (active.finish(), passive.finish()) == (0, 0)
    ours, theirs = workspace.alignment("active"), workspace.alignment("passive")
    assert 37 <= ours.summary.sizes.peer - SMALL.passive - ours.summary.sizes.pool <= 37 + 80
    assert len(theirs.rank_of_row) == theirs.summary.rows == SMALL.passive
    assert "37" not in {word.strip(",.") for word in active.output.split()}


def test_different_agreements_stop_both_parties_before_any_data_is_sent(
    workspace: Workspace,
) -> None:
    workspace.change("passive", "id_normalisation: strip", "id_normalisation: none")
    workspace.change("passive", "group: x25519", "group: modp2048")
    with workspace.start("active") as active, workspace.start("passive") as passive:
        assert (active.finish(), passive.finish()) == (2, 2)
    for party in (active, passive):
        assert "id_normalisation: " in party.output
        assert "group: " in party.output
        assert "merging party" not in party.output
    assert workspace.is_clean("active")
    assert workspace.is_clean("passive")


MOMENTS = [
    "agreements are identical",
    "steps 1-2.*started",
    *(
        pytest.param(moment, marks=pytest.mark.slow)
        for moment in (
            "steps 1-2.*done",
            "hashing our IDs.*done",
            "step 4.*started",
            "steps 1 and 3.*done",
        )
    ),
]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("victim", ["active", "passive"])
def test_a_killed_peer_is_reported(tmp_path: Path, victim: RoleName, moment: str) -> None:
    workspace = Workspace.create(tmp_path / "pair", LONGER)
    with workspace.start(victim) as killed, workspace.start(other(victim)) as left:
        killed.wait_for(moment)
        killed.signal(signal.SIGKILL)
        assert left.finish(REPORT_LIMIT) == 3
        assert "→" in left.output
    assert workspace.is_clean("active")
    assert workspace.is_clean("passive")


@pytest.mark.parametrize("victim", ["active", "passive"])
def test_a_frozen_peer_is_reported(tmp_path: Path, victim: RoleName) -> None:
    workspace = Workspace.create(tmp_path / "pair", LONGER)
    with workspace.start(victim) as frozen, workspace.start(other(victim)) as left:
        frozen.wait_for("steps 1-2.*started")
        frozen.signal(signal.SIGSTOP)
        assert left.finish(REPORT_LIMIT) == 3
    assert workspace.is_clean(other(victim))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stopped", ["active", "passive"])
def test_stopping_one_party_stops_both(
    tmp_path: Path, stopped: RoleName, number: signal.Signals
) -> None:
    workspace = Workspace.create(tmp_path / "pair", LONGER)
    with workspace.start(stopped) as one, workspace.start(other(stopped)) as two:
        one.wait_for("steps 1-2.*started")
        one.signal(number)
        assert one.finish(30) == 130
        assert two.finish(REPORT_LIMIT) == 5
        assert "operator stopped it" in two.output
    for role in ROLES:
        assert workspace.is_clean(role)


@pytest.mark.parametrize("role", ["active", "passive"])
def test_a_waiting_party_can_be_stopped(workspace: Workspace, role: RoleName) -> None:
    with workspace.start(role) as alone:
        alone.wait_for("waiting for|listening")
        alone.signal(signal.SIGTERM)
        assert alone.finish(10) == 130


def test_a_peer_that_never_connects_is_reported(workspace: Workspace) -> None:
    for role in ROLES:
        workspace.change(role, "connect: 600.0", "connect: 2.0")
        with workspace.start(role) as alone:
            assert alone.finish(20) == 3
            assert re.search(r"within (2|1\.\d+) s", alone.output), "what is left of the 2 s"


def test_a_complete_result_is_kept_without_force(workspace: Workspace) -> None:
    def run(*options: str) -> tuple[Party, Party]:
        with (
            workspace.start("active", *options) as active,
            workspace.start("passive", *options) as passive,
        ):
            active.finish()
            passive.finish()
            return active, passive

    run()
    digest = workspace.alignment("active").summary.union_sha256
    for party in run():
        assert party.process.returncode == 2
        assert "--force" in party.output
    assert workspace.alignment("active").summary.union_sha256 == digest
    for party in run("--force"):
        assert party.process.returncode == 0
    assert workspace.alignment("active").summary.union_sha256 != digest
    workspace.assert_aligned()


def test_bad_ids_are_rejected_before_connecting(workspace: Workspace) -> None:
    table = workspace.table("active")
    table.write_text(table.read_text() + table.read_text().splitlines()[5] + "\n")
    with workspace.start("active") as active:
        assert active.finish(20) == 2
        assert "listening" not in active.output
        assert "once" in active.output or "twice" in active.output or "repeat" in active.output
    assert workspace.is_clean("active")


@pytest.mark.parametrize("foreign", ["active", "passive"])
def test_a_certificate_of_another_authority_is_rejected(
    workspace: Workspace, foreign: RoleName
) -> None:
    elsewhere = workspace.directory / "elsewhere"
    authority = create_authority(elsewhere, "someone else", 10)
    issue(authority, NAMES[foreign], ["127.0.0.1"], elsewhere, 10)
    workspace.change(foreign, "certificates/", "elsewhere/")
    with workspace.start("active") as active, workspace.start("passive") as passive:
        assert passive.finish(30) == 3
        assert "authority" in passive.output
        active.signal(signal.SIGTERM)
        active.finish(10)
    assert workspace.is_clean("passive")


def test_plaintext_must_be_requested_on_both_sides(workspace: Workspace) -> None:
    with (
        workspace.start("active", "--insecure-plaintext") as active,
        workspace.start("passive", "--insecure-plaintext") as passive,
    ):
        assert (active.finish(), passive.finish()) == (0, 0)
    assert "TLS is off" in active.output
    assert "TLS is off" in passive.output
    with (
        workspace.start("active", "--force") as active,
        workspace.start("passive", "--force", "--insecure-plaintext") as passive,
    ):
        assert passive.finish(30) == 3
        assert "TLS" in passive.output
