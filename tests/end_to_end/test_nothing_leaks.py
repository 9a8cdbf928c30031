"""Logs and results contain no secrets and do not reveal who is shared."""

from __future__ import annotations

import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from florist.active_party.role import ACTIVE
from florist.cli.progress_display import LineProgress
from florist.common.psu import keys as keys_module
from florist.common.psu.hashed_ids import DummyIds
from florist.common.psu.keys import OwnSecrets
from florist.common.session.stage_state import StageOptions
from florist.common.settings.loader import load_config
from florist.common.stages.run_stages import run_stage
from florist.passive_party.role import PASSIVE
from tests.support.parties import ROLES, QuickClicks, Workspace

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.core.roles import RoleName
    from florist.common.groups.group import Group
    from florist.common.privacy.count_noise import CountNoise


#: What may differ between two runs on sets of the same sizes: times, addresses, random names.
CHANGES = [
    (r"\d{4}-\d\d-\d\d[T ][\d:.,+]+", "TIME"),
    (r"\d+(\.\d+)? s\b", "SECONDS"),
    (r'"seconds": [\d.]+', '"seconds": 0'),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r'"process": "[0-9a-f]+"', '"process": ""'),
]


def people(first: int, count: int) -> list[str]:
    return [f"citizen-{number:05d}" for number in range(first, first + count)]


def write_table(path: Path, ids: list[str]) -> None:
    path.write_text("person\n" + "\n".join(ids) + "\n")


def log_of_run(directory: Path, tables: dict[RoleName, list[str]]) -> dict[RoleName, list[str]]:
    """Return the output of both parties, made comparable; exchanges may run in any order."""
    workspace = Workspace.create(directory)
    for role, ids in tables.items():
        write_table(workspace.table(role), ids)
        # Otherwise sizes are random; and no budget covers exact sizes.
        workspace.configure(role, {"agreement.union.privacy": None, "privacy.budget": None})
    options = ("--log-format", "json", "--verbose")
    with (
        workspace.start("active", *options) as active,
        workspace.start("passive", *options) as passive,
    ):
        assert (active.finish(), passive.finish()) == (0, 0)
    logs: dict[RoleName, list[str]] = {}
    for role, party in zip(ROLES, (active, passive), strict=True):
        text = party.output.replace(str(directory), "FOLDER")
        for pattern, replacement in CHANGES:
            text = re.sub(pattern, replacement, text)
        assert "citizen-" not in text
        lines = [line for line in text.splitlines() if line.startswith("{")]
        logs[role] = sorted(line for line in lines if "waiting for" not in line)
    return logs


def test_logs_do_not_depend_on_who_is_shared(tmp_path: Path) -> None:
    """With the same sizes but other shared people, the logs are equal; they contain no ID."""
    ours = people(0, 200)
    first = log_of_run(tmp_path / "one", {"active": ours, "passive": people(150, 200)})
    second = log_of_run(
        tmp_path / "two", {"active": ours, "passive": people(0, 50) + people(1000, 150)}
    )
    assert first == second
    assert any("step-done" in line for line in first["active"])


def test_json_logs_contain_nothing_else_and_say_where_they_come_from(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "pair", QuickClicks())
    options = ("--log-format", "json", "--log-file")
    with (
        workspace.start_warm("active", *options, str(tmp_path / "bank.log"), stage="all") as active,
        workspace.start_warm(
            "passive", *options, str(tmp_path / "telco.log"), stage="all"
        ) as passive,
    ):
        assert (active.finish(120), passive.finish(120)) == (0, 0)
    runs = []
    for role, party in (("active", active), ("passive", passive)):
        name, peer = ("bank", "telco") if role == "active" else ("telco", "bank")
        events = [json.loads(line) for line in party.lines]
        assert {"step-start", "step-done"} <= {event.get("event") for event in events}
        assert all({"time", "level", "message", "process"} <= event.keys() for event in events)
        assert {(e["party"], e["peer"], e["role"]) for e in events} == {(name, peer, role)}
        assert len({event["process"] for event in events}) == 1
        results = {e["stage"]: e["figures"] for e in events if e.get("event") == "stage-done"}
        assert list(results) == ["align", "train", "evaluate"]
        assert results["train"]["loss"] > 0
        assert {event["stage"] for event in events if "stage" in event} == results.keys()
        first = next(number for number, event in enumerate(events) if "run" in event)
        assert all("run" in event for event in events[first:])
        assert "stage-done" in (tmp_path / f"{name}.log").read_text()
        runs.append({event["run"] for event in events[first:]})
    assert runs[0] == runs[1], "both parties name the same run"
    assert len(runs[0]) == 1


@pytest.fixture
def drawn_secrets(monkeypatch: pytest.MonkeyPatch) -> list[OwnSecrets]:
    """Record all secrets that are drawn."""
    drawn: list[OwnSecrets] = []
    fresh = OwnSecrets.fresh

    def recorded(group: Group, noise: CountNoise | None = None) -> OwnSecrets:
        drawn.append(fresh(group, noise))
        return drawn[-1]

    monkeypatch.setattr(keys_module.OwnSecrets, "fresh", recorded)
    return drawn


def test_secrets_are_neither_logged_nor_stored(
    tmp_path: Path, drawn_secrets: list[OwnSecrets], caplog: pytest.LogCaptureFixture
) -> None:
    workspace = Workspace.create(tmp_path / "pair")
    for role in ROLES:
        workspace.configure(role, {"alignment.dummies": 9})
    log = logging.getLogger("florist")
    log.propagate = True
    with caplog.at_level(logging.DEBUG, logger="florist"), ThreadPoolExecutor(2) as both:
        progress = LineProgress(log, every_seconds=0.0)
        runs = [
            both.submit(
                run_stage,
                "align",
                role,
                load_config(workspace.config(role.name)),
                StageOptions(),
                progress,
            )
            for role in (ACTIVE, PASSIVE)
        ]
        for run in runs:
            run.result(timeout=60)
    alignments = [workspace.run_directory(role).load_alignment() for role in ROLES]
    assert (
        alignments[0].summary.sizes.shared_estimate == alignments[1].summary.sizes.shared_estimate
    )
    assert len(drawn_secrets) == 2
    written = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    for own in drawn_secrets:
        shown = caplog.text + repr(alignments) + repr(own) + repr(own.keys)
        for dummy in (own.dummy_key, *DummyIds(own.dummy_key, 9).rows(0, 9)):
            assert dummy.hex() not in shown
            assert dummy not in written
            assert dummy.hex().encode() not in written
        for secret in map(int, (own.keys.first, own.keys.second, own.keys.third)):
            assert str(secret) not in shown
            assert f"{secret:x}" not in shown
            for order in ("little", "big"):
                raw = secret.to_bytes(32, order)
                assert raw not in written
                assert raw.hex().encode() not in written


def test_the_result_contains_no_id_and_no_element(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "pair")
    with workspace.start("active") as active, workspace.start("passive") as passive:
        assert (active.finish(), passive.finish()) == (0, 0)
    for role in ROLES:
        files = [p for p in workspace.run_directory(role).path.rglob("*") if p.is_file()]
        assert {str(p.relative_to(workspace.run_directory(role).path)) for p in files} == {
            ".lock",
            "alignment/manifest.json",
            "alignment/train/alignment.json",
            "alignment/train/ranks.parquet",
            "alignment/train/commitment.json",
            "alignment/train/commitment.key",
            "evidence/align.json",
            "evidence/manifest.json",
        }
        assert not any(b"person-" in p.read_bytes() for p in files)
