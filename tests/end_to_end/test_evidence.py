"""A whole run over TLS: what both parties signed, what its files are, what may be deleted."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from florist.cli.tool import app
from florist.common.evidence.evidence_file import load_stage_evidence
from florist.common.privacy.commitment import load_roots
from florist.common.session.retention import artefact_of
from florist.common.session.stage_state import STAGES
from florist.common.settings.loader import load_config
from tests.support.parties import ROLES, QuickClicks, Workspace, other
from tests.support.tables import read_ids

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

    from florist.common.core.roles import RoleName
    from florist.common.session.alignment_result import TableName


@dataclass(frozen=True)
class Clicks(QuickClicks):
    """A short training."""

    people: int = 800

    def settings(self, role: RoleName) -> dict[str, object]:
        return QuickClicks.settings(self, role) | {"agreement.training.epochs": 1}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Both parties, all stages, as processes, with logs in files."""
    workspace = Workspace.create(tmp_path_factory.mktemp("run") / "pair", Clicks())
    options = {role: ("--log-file", str(workspace.directory / f"{role}.log")) for role in ROLES}
    with (
        workspace.start_warm("active", *options["active"], stage="all") as active,
        workspace.start_warm("passive", *options["passive"], stage="all") as passive,
    ):
        assert (active.finish(240), passive.finish(240)) == (0, 0)
        for party in (active, passive):
            assert party.output.count("the evidence of this stage is signed by both") == 3
    return workspace


def florist(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"})


def evidence_of(workspace: Workspace, role: RoleName) -> Path:
    return workspace.run_directory(role).evidence


def test_both_hold_the_same_record_signed_by_both(finished: Workspace) -> None:
    for stage in STAGES:
        active, passive = (
            load_stage_evidence(evidence_of(finished, role) / f"{stage}.json") for role in ROLES
        )
        assert active.record_bytes == passive.record_bytes
        assert active.signatures == passive.signatures
        assert not any(stored.problem for stored in active.signatures.values())
        statement = active.record["statement"]
        assert statement["stage"] == stage
        assert (statement["model"] is None) == (stage == "align")
        sent = {role: active.record["accounts"][role]["sent"] for role in ROLES}
        assert ("OfferBlock" in sent["passive"]) == (stage == "train")
        assert "OfferBlock" not in sent["active"]


def test_sizes_and_digests_are_those_of_the_results(finished: Workspace) -> None:
    record = load_stage_evidence(evidence_of(finished, "active") / "align.json").record
    union = record["statement"]["unions"]["train"]
    for role in ROLES:
        summary = finished.run_directory(role).load_summary()
        assert union["sha256"] == summary.union_sha256
        assert union["union_size"] == summary.union_size
        assert union[f"{role}_size"] == summary.sizes.own
        assert union["shared_estimate"] == summary.sizes.shared_estimate
        own, peer = load_roots(finished.run_directory(role).alignment_folder("train"))
        assert union[f"{role}_commitment"] == own.hex()
        assert union[f"{other(role)}_commitment"] == peer.hex()
    trained = load_stage_evidence(evidence_of(finished, "active") / "train.json").record
    for role in ROLES:
        manifest = json.loads((finished.run_directory(role).training / "model.json").read_text())
        assert trained["statement"]["model"][f"{role}_sha256"] == manifest["digest"]


def test_each_party_adds_its_audit_and_its_log(finished: Workspace) -> None:
    for role in ROLES:
        trained = load_stage_evidence(evidence_of(finished, role) / "train.json").local
        assert trained["audit"]["verdict"] in {"fine", "warn"}
        log = (finished.directory / f"{role}.log").read_bytes()
        assert sha256(log[: trained["log"]["bytes"]]).hexdigest() == trained["log"]["sha256"]
        assert all(json.loads(line)["message"] for line in log.splitlines())


def test_the_commands_write_and_verify(finished: Workspace, tmp_path: Path) -> None:
    authority = finished.directory / "certificates" / "authority.pem"
    for role in ROLES:
        runs = finished.run_directory(role)
        result = florist("evidence", runs.path, "--output", tmp_path)
        assert result.exit_code == 0, result.output
        assert "!" not in result.output
        page = (tmp_path / "evidence.html").read_text()
        for words in ("Promised", "Exchanged", "Measured", "encrypted IDs", "AUC", "signed 2"):
            assert words in page
        assert "<script" not in page
        result = florist("evidence", "verify", tmp_path / "evidence.json", "--authority", authority)
        assert result.exit_code == 0, result.output
        assert result.output.count("✓") == 13
    content = (tmp_path / "evidence.json").read_text()
    (tmp_path / "evidence.json").write_text(content.replace('"union_size": ', '"union_size": 1', 1))
    result = florist("evidence", "verify", tmp_path / "evidence.json", "--authority", authority)
    assert result.exit_code == 1
    assert "the signature is wrong" in result.output


@pytest.mark.parametrize("table", ["train", "test", "evaluation"])
def test_an_auditor_can_ask_who_was_in_a_set(
    finished: Workspace, tmp_path: Path, table: TableName
) -> None:
    proof = tmp_path / "proof.json"
    for role in ROLES:
        ours, theirs = (finished.run_directory(each).path for each in (role, other(role)))
        made = ("--run", ours, "--config", finished.config(role), "--table", table)
        drawn = ("--challenge", "4 6 1", "--sample", 20)
        result = florist("commitment", "open", *made, *drawn, "--output", proof)
        assert result.exit_code == 0, result.output
        # The peer's run has the root that it received before the union; our own is another.
        check = ("commitment", "check", proof, "--table", table, *drawn)
        assert florist(*check, "--run", theirs).exit_code == 0
        assert florist(*check, "--run", ours).exit_code == 1
        people = {bytes.fromhex(leaf["id"]) for leaf in json.loads(proof.read_text())["opened"]}
        data = load_config(finished.config(role)).data
        found = {"train": data.train, "test": data.test_table, "evaluation": data.evaluation_table}
        settings = found[table]
        assert settings is not None
        assert people < set(read_ids(settings.path, "person", "strip"))


def test_reports_say_who_has_signed(finished: Workspace) -> None:
    for stage in STAGES[1:]:
        report = (finished.run_directory("active").result(stage) / "report.html").read_text()
        assert "This party and telco have signed the same record of this stage." in report


def test_another_authority_is_noticed(finished: Workspace, tmp_path: Path) -> None:
    assert florist("certs", tmp_path, "--party", "bank").exit_code == 0
    path = evidence_of(finished, "active") / "align.json"
    result = florist("evidence", "verify", path, "--authority", tmp_path / "authority.pem")
    assert result.exit_code == 1
    assert "not issued by the authority" in result.output


def test_every_file_is_in_the_retention_table(finished: Workspace) -> None:
    for role in ROLES:
        path = finished.run_directory(role).path
        files = [str(file.relative_to(path)) for file in path.rglob("*") if not file.is_dir()]
        assert len(files) > 10
        assert [name for name in files if artefact_of(name) is None] == []


def test_a_purged_run_still_shows_its_results_and_evidence(
    finished: Workspace, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished.run_directory("active").path, run)
    assert florist("purge", run, "--yes").exit_code == 0
    assert not list(run.rglob("*.key"))
    assert not list(run.rglob("ranks.parquet"))
    assert florist("show", run).exit_code == 0
    assert florist("audit", run).exit_code == 0
    authority = load_config(finished.config("active")).network.tls
    assert authority is not None
    assert florist("evidence", run).exit_code == 0
    written = run / "evidence" / "evidence.json"
    result = florist("evidence", "verify", written, "--authority", authority.authority)
    assert result.exit_code == 0
    assert florist("purge", run, "--all", "--yes").exit_code == 0
    assert not run.exists()
