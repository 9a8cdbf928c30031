"""A party that rejects its own input tells its peer so, which then does not wait in vain."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from florist.common.transport.certificates import create_authority, issue
from tests.support.parties import NAMES, ROLES, Workspace, other

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.core.roles import RoleName


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Parties that tell each other, however busy this machine is."""
    found = Workspace.create(tmp_path / "pair")
    for role in ROLES:
        found.change(role, "notice: 0.0", "notice: 30.0")
    return found


def repeat_an_id(table: Path) -> str:
    """Spoil a table; return the ID that is now there twice."""
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines, lines[1]]) + "\n")
    return lines[1].strip('"')


@pytest.mark.parametrize("bad", ROLES)
def test_the_peer_is_told_and_ends(workspace: Workspace, bad: RoleName) -> None:
    repeated = repeat_an_id(workspace.table(bad))
    with workspace.start_warm(other(bad), stage="align") as good:
        good.wait_for("waiting for .*, until 20.* at most")
        with workspace.start_warm(bad, stage="align") as party:
            assert party.finish() == 2
            assert f"{NAMES[other(bad)]} was told: its training table was rejected" in party.output
        assert good.finish() == 5
    assert "the peer cannot start: its training table was rejected" in good.output
    assert str(workspace.table(bad)) not in good.output
    assert repeated not in good.output


def test_a_party_can_wait_until_its_peer_is_mended(workspace: Workspace) -> None:
    table = workspace.table("passive")
    whole = table.read_text()
    repeat_an_id(table)
    workspace.configure("active", {"timeouts.if_peer_cannot_start": "wait"})
    with workspace.start_warm("active", stage="align") as active:
        active.wait_for("listening")
        with workspace.start_warm("passive", stage="align") as passive:
            assert passive.finish() == 2
        active.wait_for("waiting for telco to be started again, for .* s at most")
        table.write_text(whole)
        with workspace.start_warm("passive", stage="align") as passive:
            assert (active.finish(), passive.finish()) == (0, 0)
    workspace.assert_aligned()


def test_an_invalid_file_is_reported_as_far_as_it_can_be_read(workspace: Workspace) -> None:
    workspace.change("passive", "id_column: person", "id_columm: person")
    with workspace.start_warm("active", stage="align") as active:
        active.wait_for("listening")
        with workspace.start_warm("passive", stage="align") as passive:
            assert passive.finish() == 2
            assert "id_columm" in passive.output
        assert active.finish() == 5
    assert "the peer cannot start: its configuration or data are invalid" in active.output
    assert "id_columm" not in active.output


def test_nobody_is_told_what_another_process_is_doing(workspace: Workspace) -> None:
    """The peer talks to the process that runs, whatever a second one finds."""
    with workspace.start_warm("passive", stage="align") as running:
        running.wait_for("waiting for")
        with workspace.start_warm("passive", stage="align") as second:
            assert second.finish() == 2
            assert "is in use by another running party" in second.output
            assert "telling" not in second.output
        with workspace.start_warm("active", stage="align") as active:
            assert (active.finish(), running.finish()) == (0, 0)


def test_a_notice_takes_no_longer_than_configured(workspace: Workspace) -> None:
    repeat_an_id(workspace.table("active"))
    workspace.configure("active", {"timeouts.notice": 1.0})
    with workspace.start_warm("active", stage="align") as alone:
        assert alone.finish(timeout=20) == 2
    assert "telling telco so, for 1 s at most (timeouts.notice)" in alone.output
    assert "telco was not told: telco did not connect" in alone.output
    workspace.configure("active", {"timeouts.notice": 0})
    with workspace.start_warm("active", stage="align") as silent:
        assert silent.finish() == 2
    assert "telling" not in silent.output


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("active", "the certificate of bank at .* has expired"),
        ("passive", "ended during the TLS handshake: .* an expired certificate, a wrong clock"),
    ],
)
def test_a_wrong_clock_is_named_here_and_there(
    workspace: Workspace, bad: RoleName, reason: str
) -> None:
    """The expired certificate stands for a clock that is ahead: both look the same to its owner."""
    folder = workspace.directory / "certificates"
    past = datetime.now(UTC) - timedelta(days=100)
    authority = create_authority(folder, "FLORIST trial", 1000, force=True, now=past)
    for role in ROLES:
        days = 10 if role == bad else 1000
        issue(authority, NAMES[role], {"127.0.0.1"}, folder, days, force=True, now=past)
    with workspace.start_warm(other(bad), stage="align") as good:
        good.wait_for("waiting for")
        with workspace.start_warm(bad, stage="align") as party:
            assert party.finish() == 2
            assert "expired on" in party.output
            assert "or correct this machine's clock, which shows 20" in party.output
        good.wait_for(reason)
