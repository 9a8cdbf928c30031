"""The commands of `florist`."""

from __future__ import annotations

import re
import stat
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from typer.testing import CliRunner

from florist.cli.party import app as party_app
from florist.cli.tool import app, reported
from florist.common.core.errors import ConfigurationError
from tests.support.parties import QuickClicks, Workspace

if TYPE_CHECKING:
    from pathlib import Path

runner = CliRunner()


def florist(*arguments: str) -> str:
    """Run a command that must succeed; return its output."""
    result = runner.invoke(app, list(arguments), catch_exceptions=False, env={"COLUMNS": "250"})
    assert result.exit_code == 0, result.output
    return result.output


def test_init_then_two_parties_then_show(tmp_path: Path) -> None:
    directory = tmp_path / "trial"
    printed = florist("init", str(directory), "--address", "localhost:17443")
    assert f"florist-party --config {tmp_path / 'trial' / 'active.yml'}" in printed.replace(
        "\n", ""
    )
    workspace = Workspace(directory)
    with workspace.start("active") as active, workspace.start("passive") as passive:
        assert (active.finish(90), passive.finish(90)) == (0, 0)
    shown = florist("show", str(workspace.run_directory("active").path))
    assert "estimated number of people" in shown
    assert "does not know" in shown


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    florist("init", str(tmp_path), "--no-sample-data")
    assert not (tmp_path / "data").exists()
    with pytest.raises(ConfigurationError, match="exists already"):
        runner.invoke(app, ["init", str(tmp_path)], catch_exceptions=False)


@pytest.mark.parametrize(
    "arguments",
    [["--address", "nonsense"], ["--active", "Not A Name"], ["--active", "x", "--passive", "x"]],
)
def test_init_with_bad_names_writes_nothing(tmp_path: Path, arguments: list[str]) -> None:
    with pytest.raises(ConfigurationError):
        runner.invoke(app, ["init", str(tmp_path / "new"), *arguments], catch_exceptions=False)
    assert not (tmp_path / "new").exists()


def test_certs_creates_one_authority_and_private_keys(tmp_path: Path) -> None:
    directory = tmp_path / "authority"
    florist("certs", str(directory), "--party", "bank", "--at", "bank.example.org")
    before = (directory / "authority.pem").read_bytes()
    florist("certs", str(directory), "--party", "telco", "--at", "10.0.0.7")
    assert (directory / "authority.pem").read_bytes() == before
    for key in directory.glob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert len(list(directory.glob("*.key"))) == 3


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["--party", "bank"], ["--party", "telco", "--at", "bank"]),
        (["--party", "bank"], ["--party", "telco", "--at", "BANK."]),
        (["--party", "bank", "--at", "telco"], ["--party", "telco"]),
        ([], ["--party", "bank", "--party", "telco", "--at", "telco"]),
    ],
)
def test_certs_rejects_the_name_of_another_party_as_a_host_name(
    tmp_path: Path, first: list[str], second: list[str]
) -> None:
    directory = tmp_path / "authority"
    florist("certs", str(directory), *first)
    with pytest.raises(ConfigurationError, match=r"bank|telco"):
        runner.invoke(app, ["certs", str(directory), *second], catch_exceptions=False)
    assert not (directory / "telco.pem").exists()
    florist("certs", str(directory), "--force", "--party", "bank", "--at", "bank")


def test_init_lists_no_other_party_in_a_certificate(tmp_path: Path) -> None:
    florist("init", str(tmp_path / "new"), "--address", "bank:7443", "--no-sample-data")
    certificate = tmp_path / "new" / "certificates" / "telco.pem"
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["telco"]


def test_preflight_of_a_valid_party(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "pair", QuickClicks(people=600))
    printed = florist("preflight", "--config", str(workspace.config("passive")))
    assert re.search(r"network\.tls\.peer_key_sha256, is [0-9a-f]{64}", printed)
    assert printed.count("✓") == 15
    assert "not up" in printed


def test_preflight_with_the_peer_up_leaves_it_waiting(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "pair", QuickClicks(people=600))
    with workspace.start("active") as active:
        active.wait_for("listening")
        printed = florist("preflight", "--config", str(workspace.config("passive")))
        assert re.search("we agree; the SHA-256 of its public key is [0-9a-f]{64}", printed)
        active.wait_for("has checked the connection")
        with workspace.start("passive") as passive:
            assert (active.finish(), passive.finish()) == (0, 0)
    printed = florist("preflight", "--config", str(workspace.config("passive")))
    assert "align is complete, and a run continues with train" in printed
    assert "the rest of the run announces 2 sizes" in printed  # those of the evaluation
    assert "--force" not in printed


def test_preflight_names_differing_keys(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "pair")
    workspace.change("passive", "group: x25519", "group: modp2048")
    with workspace.start("active") as active:
        active.wait_for("listening")
        result = runner.invoke(app, ["preflight", "--config", str(workspace.config("passive"))])
        assert result.exit_code == 2
        assert "group: modp2048 here, x25519 at the peer" in result.output.replace("\n", " ")


def test_preflight_shows_every_problem_with_its_fix(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "pair")
    workspace.change("active", "id_column: person", "id_column: persom")
    (workspace.directory / "certificates" / "bank.key").chmod(0o644)
    result = runner.invoke(
        app, ["preflight", "--config", str(workspace.config("active"))], env={"COLUMNS": "250"}
    )
    assert result.exit_code == 2
    assert result.output.count("✗") >= 2
    assert "person" in result.output
    assert "chmod 600" in result.output


def test_preflight_of_a_missing_file(tmp_path: Path) -> None:
    result = runner.invoke(app, ["preflight", "--config", str(tmp_path / "none.yml")])
    assert result.exit_code == 2
    assert "florist init" in result.output


def test_show_of_an_empty_directory_fails(tmp_path: Path) -> None:
    code = reported(lambda: app(["show", str(tmp_path)], standalone_mode=False))
    assert code == 2


def test_help_explains_the_first_run_and_exit_codes() -> None:
    result = runner.invoke(party_app, ["--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    for word in ("--role", "--config", "--stage", "Exit codes", "florist init"):
        assert word in result.output


def test_a_role_is_required(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "pair")
    workspace.configure("active", {"role": None})
    result = runner.invoke(party_app, ["--config", str(workspace.config("active"))])
    assert result.exit_code == 2
    assert "role: missing; set role: active" in result.output
