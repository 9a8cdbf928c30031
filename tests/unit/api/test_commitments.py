"""`florist commitment`: proofs from a run directory and a table, and their check."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from typer.testing import CliRunner

from florist.cli.tool import app
from florist.common.core.errors import ConfigurationError
from florist.common.data.table_ids import IdReader
from florist.common.privacy.commitment import StoredCommitment, commit
from florist.common.session.alignment_result import Alignment, write_alignment
from florist.common.session.union_sizes import UnionSizes
from florist.common.settings.loader import load_config
from florist.common.storage.id_column import IdColumn
from tests.support.parties import ROLES, Workspace
from tests.unit.session.test_run_directory import SUMMARY

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

KEPT_OUT = 3


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The active party has committed to its people but those in the first rows."""
    workspace = Workspace.create(tmp_path_factory.mktemp("parties"))
    config = load_config(workspace.config("active"))
    ids = IdColumn.joined(list(IdReader(config.data.train, "strip").read()))
    people = ids.slice(KEPT_OUT, len(ids))
    own = commit([people], [], [IdColumn.from_bytes([b"pool"])], bytes(32))
    other = commit([], [], [], bytes(32))
    ranks = np.concatenate([np.full(KEPT_OUT, -1), np.arange(len(people))])
    for role, commitments in zip(
        ROLES, [StoredCommitment(own, other.root), StoredCommitment(other, own.root)], strict=True
    ):
        folder = workspace.run_directory(role).alignment
        (folder / "train").mkdir(parents=True)
        summary = replace(SUMMARY, sizes=UnionSizes(len(ids), 1, len(ids)))
        write_alignment(folder / "train", Alignment(summary, ranks, commitments))
    return workspace


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["commitment", *map(str, arguments)], env={"COLUMNS": "200"})


def own_ids(parties: Workspace) -> list[str]:
    config = load_config(parties.config("active"))
    columns = IdReader(config.data.train, "strip").read()
    return [value.decode() for column in columns for value in column]


def opened(parties: Workspace, *options: object) -> Result:
    runs, config = parties.run_directory("active").path, parties.config("active")
    return run("open", "--run", runs, "--config", config, *options)


def checked(parties: Workspace, proof: Path, *options: object) -> Result:
    return run("check", proof, "--run", parties.run_directory("passive").path, *options)


def test_people_are_proven_to_whoever_has_the_root(parties: Workspace, tmp_path: Path) -> None:
    proof, names = tmp_path / "proof.json", tmp_path / "ids.txt"
    people = own_ids(parties)[KEPT_OUT:]
    names.write_text(f"{people[7]}\n\n  {people[9]} \n")
    result = opened(parties, "--id", people[1], "--ids", names, "--output", proof)
    assert result.exit_code == 0, result.output
    assert stat.S_IMODE(proof.stat().st_mode) == 0o600
    result = checked(parties, proof)
    assert result.exit_code == 0, result.output
    assert all(people[i] in result.output for i in (1, 7, 9))
    assert people[2] not in result.output
    root = json.loads(
        (parties.run_directory("active").alignment / "train/commitment.json").read_text()
    )["root"]
    assert run("check", proof, "--root", root).exit_code == 0
    assert run("check", proof, "--root", "00" * 32).exit_code == 1


def test_wrong_proofs_have_another_exit_code(parties: Workspace, tmp_path: Path) -> None:
    proof = tmp_path / "proof.json"
    opened(parties, "--id", own_ids(parties)[5], "--output", proof)
    content = json.loads(proof.read_text())
    content["opened"][0]["id"] = b"invented".hex()
    proof.write_text(json.dumps(content))
    result = checked(parties, proof)
    assert result.exit_code == 1
    assert "wrong" in result.output


def test_an_auditor_draws_leaves(parties: Workspace, tmp_path: Path) -> None:
    proof = tmp_path / "proof.json"
    result = opened(parties, "--challenge", "dice 4 6 1", "--sample", 20, "--output", proof)
    assert result.exit_code == 0, result.output
    assert checked(parties, proof, "--challenge", "dice 4 6 1", "--sample", 20).exit_code == 0
    assert checked(parties, proof, "--challenge", "dice 4 6 1", "--sample", 21).exit_code == 1
    assert checked(parties, proof, "--challenge", "other", "--sample", 20).exit_code == 1


def test_what_cannot_be_opened(parties: Workspace, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    for options, fault in (
        (("--id", "stranger"), "not among the people"),
        (("--id", own_ids(parties)[0]), "not among the people"),  # was kept out
        (("--id", " "), "empty"),
        ((), "either IDs"),
        (("--id", "a", "--challenge", "b"), "either IDs"),
        (("--ids", missing), "cannot be read"),
        (("--id", "a", "--table", "test"), "no finished alignment of the test table"),
    ):
        error = opened(parties, *options, "--output", tmp_path / "none.json").exception
        assert isinstance(error, ConfigurationError)
        assert fault in error.reason
    assert not (tmp_path / "none.json").exists()


def test_what_cannot_be_checked(parties: Workspace, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    for arguments, fault in (
        ((missing,), "either --root or --run"),
        ((missing, "--root", "xyz"), "hexadecimal"),
        ((missing, "--root", "00"), "cannot be read"),
    ):
        error = run("check", *arguments).exception
        assert isinstance(error, ConfigurationError)
        assert fault in error.reason
