"""The self-audit in real runs: it stops leaks, lets clean runs finish, and sends nothing."""

from __future__ import annotations

import json
import logging
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from florist.active_party.role import ACTIVE
from florist.cli.tool import app, reported
from florist.common.audit.attacks import ACTIVE_ATTACKS, PASSIVE_ATTACKS
from florist.common.audit.audit_folder import AuditFolder
from florist.common.audit.findings import AuditRecord
from florist.common.core.errors import FloristError, PeerFailed, StoppedByPolicy
from florist.common.core.ports import free_port
from florist.common.core.progress import NoProgress
from florist.common.session.stage_state import StageOptions
from florist.common.settings.loader import load_config
from florist.common.stages import train as train_stage
from florist.common.stages.run_stages import run_stage
from florist.common.training.checkpoint import CheckpointStore
from florist.common.transport.channel import CONTROL
from florist.common.transport.codec import encode
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import Abort, Control, GradientBlock
from florist.common.transport.recording import Direction, RecordingLink
from florist.passive_party.role import PASSIVE
from tests.support.in_process import RoleOverLink, StopAfter
from tests.support.parties import ROLES, QuickClicks, Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from florist.common.core.roles import RoleName
    from florist.common.transport.channel import Link

BOTH = {"active": ACTIVE, "passive": PASSIVE}

#: The 909 people of the union, in two epochs of this many batches.
STEPS_PER_EPOCH = 29
LIMIT = 0.6

LEAKY = {
    "agreement.training.labels.strategy": "label-minority",
    "agreement.training.stand_ins": "plain",
}
#: Labels and features that are drawn like the real ones, whatever the model has learned.
CLEAN = {
    "agreement.training.labels.strategy": "label-random-pos",
    "agreement.training.embedding_noise": 3.0,
}
STOP = {"audit.stop_above": LIMIT, "audit.every": 20}


# --- both parties in this process, over a link in memory ---


@dataclass
class Both:
    """A run of both parties, with the messages that the passive party recorded."""

    workspace: Workspace
    options: StageOptions = field(default_factory=StageOptions)
    #: Steps after which the active party's operator stops it.
    stop_after: int | None = None
    link: RecordingLink = field(init=False)

    def run(self) -> dict[RoleName, FloristError | None]:
        active, passive = linked_pair()
        self.link = RecordingLink(passive)
        links: Mapping[RoleName, Link] = {"active": active, "passive": self.link}
        with ThreadPoolExecutor(2) as both:
            ends = {role: both.submit(self._end, role, links[role]) for role in ROLES}
            return {role: end.result(timeout=90) for role, end in ends.items()}

    def _end(self, role: RoleName, link: Link) -> FloristError | None:
        side = RoleOverLink(BOTH[role], link)
        stops = self.stop_after is not None and role == "active"
        progress = StopAfter(self.stop_after or 0) if stops else NoProgress()
        try:
            run_stage(
                "train", side, load_config(self.workspace.config(role)), self.options, progress
            )
        except FloristError as error:
            return error
        return None


@pytest.fixture(scope="module")
def aligned(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace = Workspace.create(tmp_path_factory.mktemp("audit") / "aligned", QuickClicks())
    with ThreadPoolExecutor(2) as parties:
        ends = [
            parties.submit(
                run_stage,
                "align",
                BOTH[role],
                load_config(workspace.config(role)),
                StageOptions(),
                NoProgress(),
            )
            for role in ROLES
        ]
        for end in ends:
            end.result(timeout=60)
    return workspace


def copy(aligned: Workspace, directory: Path, *changes: dict[str, Any]) -> Workspace:
    workspace = aligned.copy(directory)
    address = {"network.address": f"127.0.0.1:{free_port()}"}
    for role in ROLES:
        for change in (address, *changes):
            workspace.configure(role, change)
    return workspace


def record(workspace: Workspace, role: RoleName) -> AuditRecord:
    return AuditRecord.load(AuditFolder(workspace.run_directory(role).audit))


def weights(workspace: Workspace, role: RoleName) -> dict[str, torch.Tensor]:
    return load_file(workspace.run_directory(role).training / "model.safetensors")


def assert_same_weights(one: Workspace, other: Workspace) -> None:
    for role in ROLES:
        ours, theirs = weights(one, role), weights(other, role)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.fixture(scope="module")
def clean_run(aligned: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """Return a clean run with a stop limit, whose view is kept."""
    directory = tmp_path_factory.mktemp("clean") / "copy"
    run = Both(copy(aligned, directory, CLEAN, STOP, {"audit.keep_view": True}))
    assert run.run() == {"active": None, "passive": None}
    return run


@pytest.fixture(scope="module")
def clean(clean_run: Both) -> Workspace:
    return clean_run.workspace


@pytest.fixture(autouse=True)
def _plain_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip reports, since plots take longer than training. The clean run has one."""
    monkeypatch.setattr(train_stage, "render", lambda _: "")


# --- effect on a run ---


def test_a_clean_run_is_not_stopped(clean: Workspace) -> None:
    attacks = {"active": PASSIVE_ATTACKS.names, "passive": ACTIVE_ATTACKS.names}
    for role in ROLES:
        found = record(clean, role)
        assert [(figures.step, figures.over) for figures in found.audits] == [
            (1, "batch-0"),
            (5, "batches-0-4"),
            (10, "batches-5-9"),
            (20, "batches-10-19"),
            (20, "batches"),
            (STEPS_PER_EPOCH, "epochs"),
            (STEPS_PER_EPOCH, "later-batches"),
            (40, "batches"),
            (2 * STEPS_PER_EPOCH, "epochs"),
            (2 * STEPS_PER_EPOCH, "later-batches"),
        ]
        assert found.verdict == "fine"
        assert found.followed == clean.alignment(role).summary.union_size
        for figures in found.audits:
            assert {finding.attack for finding in figures.findings} <= set(attacks[role])
            # Windows of a few batches of 32 have too few rows.
            if figures.over in {"batches", "epochs"}:
                assert "spectral" in {finding.attack for finding in figures.findings}


def test_a_run_that_leaks_is_stopped(aligned: Workspace, tmp_path: Path) -> None:
    """The first audit stops it. Checkpoints stay, and the peer learns only that a policy did it."""
    workspace = copy(aligned, tmp_path / "copy", LEAKY)
    workspace.configure("active", STOP)
    run = Both(workspace)
    ends = run.run()
    stopped, left = ends["active"], ends["passive"]
    assert isinstance(stopped, StoppedByPolicy)
    assert "after step 20" in str(stopped)
    assert f"above audit.stop_above {LIMIT}" in str(stopped)
    assert "agreement.training.labels" in str(stopped)
    assert isinstance(left, PeerFailed)
    assert str(left) == "the peer stopped: its operator's privacy policy ended the run"
    for role in ROLES:
        runs = workspace.run_directory(role)
        assert CheckpointStore(runs.checkpoints, keep=1).steps() == [12, 15, 18]
        assert not runs.training.exists()
    assert record(workspace, "active").verdict == "stop"
    assert_nothing_revealed(run.link)


def assert_nothing_revealed(link: RecordingLink) -> None:
    """Assert that the passive party received only protocol messages, without audit figures."""
    received = [r for r in link.records if r.direction is Direction.RECEIVED]
    for one in received:
        if one.channel == CONTROL:
            assert isinstance(one.message, Control)
        else:
            assert not isinstance(one.message, Control)
            assert "audit" not in type(one.message).__name__.lower()
    assert any(isinstance(one.message, GradientBlock) for one in received)
    aborts = [one.message.reason for one in received if isinstance(one.message, Abort)]
    assert all(not re.search(r"\d|gradient|AUC", reason) for reason in aborts)


def test_a_policy_stop_has_its_own_exit_code(aligned: Workspace, tmp_path: Path) -> None:
    workspace = copy(aligned, tmp_path / "copy", LEAKY)
    workspace.configure("active", STOP)
    with workspace.start_warm("active") as active, workspace.start_warm("passive") as passive:
        assert (active.finish(), passive.finish()) == (6, 5)
    assert "audit.stop_above" in active.output
    assert "the run resumes" in active.output
    assert "privacy policy" in passive.output
    assert "audit.stop_above" not in passive.output


def test_a_leak_below_the_stop_limit_causes_a_warning(
    aligned: Workspace,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workspace = copy(aligned, tmp_path / "copy", LEAKY)
    workspace.configure("active", {"audit.stop_tpr_above": 0.01})  # which few rows cannot exceed
    monkeypatch.setattr(logging.getLogger("florist"), "propagate", True)
    with caplog.at_level(logging.INFO, logger="florist.audit"):
        assert Both(workspace).run() == {"active": None, "passive": None}
    warned = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert any("above audit.warn_above 0.6" in r.getMessage() for r in warned)
    for line in (r for r in caplog.records if r.name == "florist.audit"):
        assert re.match(r"self-audit after step \d+, [\w ]+(\W\d+)?: ", line.getMessage())
    metrics = workspace.run_directory("active").training / "metrics.json"
    assert json.loads(metrics.read_text())["audit"]["verdict"] == "warn"
    printed = florist("audit", str(workspace.run_directory("active").path))
    assert "✗ warn_above" in printed
    assert "stop_tpr_above 0.01" in printed


def test_the_audit_changes_neither_weights_nor_messages(
    clean_run: Both, aligned: Workspace, tmp_path: Path
) -> None:
    workspace = copy(aligned, tmp_path / "copy", CLEAN, {"audit.enabled": False})
    off = Both(workspace)
    assert off.run() == {"active": None, "passive": None}
    assert_same_weights(workspace, clean_run.workspace)
    assert sent_and_received(off.link) == sent_and_received(clean_run.link)
    runs = workspace.run_directory("active")
    assert not runs.audit.exists()
    assert json.loads((runs.training / "metrics.json").read_text())["audit"] is None


def sent_and_received(link: RecordingLink) -> list[bytes]:
    """Return all training messages sent, then all received."""
    return [
        encode(r.message)
        for direction in Direction
        for r in link.records
        if r.channel == "training"
        and r.direction is direction
        and not isinstance(r.message, Control)
    ]


def test_a_resumed_run_continues_its_audit(
    clean: Workspace, aligned: Workspace, tmp_path: Path
) -> None:
    """It audits what is sent after resuming; earlier figures are kept, and weights are the same."""
    workspace = copy(aligned, tmp_path / "copy", CLEAN, STOP)
    ends = Both(workspace, stop_after=STEPS_PER_EPOCH + 5).run()
    assert all(end is not None for end in ends.values())
    before = record(workspace, "active").audits
    early = [1, 5, 10, 20, 20, STEPS_PER_EPOCH, STEPS_PER_EPOCH]
    assert [figures.step for figures in before] == early
    assert Both(workspace).run() == {"active": None, "passive": None}
    assert_same_weights(workspace, clean)
    after = record(workspace, "active").audits
    assert after[: len(early)] == before
    assert [figures.step for figures in after] == [*early, 40, 58, 58]
    # The first steps of the second epoch were before the resumption, so no UID was seen twice.
    assert "flips" not in {finding.attack for finding in after[-1].findings}


def test_a_new_run_deletes_the_audit_of_the_previous_run(clean: Workspace, tmp_path: Path) -> None:
    workspace = copy(clean, tmp_path / "copy", {"audit.enabled": False})
    assert workspace.run_directory("active").audit.exists()
    Both(workspace, StageOptions(force=True), stop_after=1).run()
    assert not workspace.run_directory("active").audit.exists()


# --- results ---


def test_the_report_shows_the_audit(clean: Workspace) -> None:
    for role in ROLES:
        folder = clean.run_directory(role).training
        text = (folder / "report.html").read_text()
        assert '<h2 id="self-audit">Self-audit</h2>' in text
        assert "folded AUC" in text
        assert "✓" in text
        summary = json.loads((folder / "metrics.json").read_text())["audit"]
        assert summary["verdict"] == "fine"
        assert 0.5 <= summary["strongest"]["auc"]["value"] < 0.65


#: The keys that a line may have: the first line describes the run, each other line an audit.
HEADER = {"format", "role", "followed", "settings"}
FIGURES = {"step", "over", "findings", "skipped"}
FINDING = {"attack", "auc", "tpr", "worst"}


def test_audit_files_contain_only_aggregates(clean: Workspace) -> None:
    for role in ROLES:
        path = AuditFolder(clean.run_directory(role).audit).record
        header, *audits = map(json.loads, path.read_text().splitlines())
        assert header.keys() == HEADER
        for audit in audits:
            assert audit.keys() == FIGURES
            for finding in audit["findings"]:
                assert finding.keys() == FINDING
                assert finding["tpr"] is None  # too few rows
                assert finding["auc"].keys() == {"value", "low", "high"}
                assert all(value == round(value, 4) for value in finding["auc"].values())
                if finding["worst"] is not None:
                    assert audit["over"] == "epochs"
                    assert finding["worst"].keys() == {"stratum", "auc"}
                    values = finding["worst"]["auc"].values()
                    assert all(value == round(value, 4) for value in values)
            assert {each["attack"] for each in audit["skipped"]} & {"pair", "posterior-gap"}


runner = CliRunner()


def florist(*arguments: str) -> str:
    result = runner.invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("role", ROLES)
def test_audit_shows_a_finished_run(clean: Workspace, role: RoleName, tmp_path: Path) -> None:
    run = str(clean.run_directory(role).path)
    picture = tmp_path / "plot.png"
    printed = florist("audit", run, "--plot", str(picture))
    assert "after step 58" in printed
    assert "spectral" in printed
    assert "✓" in printed
    assert "✗" not in printed
    assert "report.html" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")
    facts = json.loads(florist("audit", run, "--json"))
    assert facts["verdict"] == "fine"
    scopes = [figures["over"] for figures in facts["newest"]]
    assert scopes[0] == "epochs"
    assert scopes[-2:] == ["later-batches", "batches"]
    assert len(facts["audits"]) == 10
    assert facts["worst_window"]["over"] != "epochs"
    assert "all later batches" in printed
    assert "…" not in printed


@pytest.mark.parametrize("role", ROLES)
def test_audit_again_uses_the_kept_view(clean: Workspace, role: RoleName) -> None:
    view = AuditFolder(clean.run_directory(role).audit).view
    assert stat.S_IMODE(view.stat().st_mode) == 0o600
    facts = json.loads(florist("audit", str(clean.run_directory(role).path), "--again", "--json"))
    again, *windows = facts["newest"]
    assert {figures["over"] for figures in windows} >= {"later-batches", "batches"}
    before = next(figures for figures in facts["audits"][::-1] if figures["over"] == "epochs")
    assert (again["step"], again["over"]) == (before["step"], before["over"])
    found = {finding["attack"]: finding["auc"] for finding in again["findings"]}
    for finding in before["findings"]:
        assert found[finding["attack"]]["value"] == pytest.approx(finding["auc"]["value"], abs=1e-4)


def test_audit_without_a_record_explains_what_to_do(
    aligned: Workspace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs = copy(aligned, tmp_path / "copy").run_directory("active")
    for run, says in ((tmp_path / "none", "is not a folder"), (runs.path, "holds no self-audit")):
        code = reported(lambda run=run: app(["audit", str(run)], standalone_mode=False))  # type: ignore[misc]
        assert code == 2
        assert says in caplog.text
    assert "audit.enabled" in caplog.text


def test_audit_again_without_a_view_names_the_setting(clean: Workspace, tmp_path: Path) -> None:
    workspace = copy(clean, tmp_path / "copy")
    runs = workspace.run_directory("active")
    folder = AuditFolder(runs.audit)
    folder.files.delete([folder.view.name])
    with pytest.raises(FloristError, match=r"audit\.keep_view"):
        runner.invoke(app, ["audit", str(runs.path), "--again"], catch_exceptions=False)
