"""`florist init`: options that the end-to-end tests do not use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from florist.cli.init import Names, write_first_files
from florist.cli.tool import app
from florist.common.core.errors import ConfigurationError
from florist.common.privacy.ledger import ledger_folder
from florist.common.settings.loader import load_config

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.core.roles import RoleName


def test_status_page_and_run_directories(tmp_path: Path) -> None:
    write_first_files(tmp_path, Names("bank", "telco"), "active:7443", None, "0.0.0.0:9464")
    for role in ("active", "passive"):
        config = load_config(tmp_path / f"{role}.yml")
        assert config.observability.address == "0.0.0.0:9464"
        assert config.run_directory.is_dir()
        assert ledger_folder(config).is_dir()


def test_no_status_page_by_default(tmp_path: Path) -> None:
    write_first_files(tmp_path, Names("bank", "telco"), "localhost:7443", None)
    assert load_config(tmp_path / "active.yml").observability.address is None


@pytest.mark.parametrize("role", ["active", "passive"])
def test_one_organisation_gets_its_own_configuration_and_no_key(
    tmp_path: Path, role: RoleName
) -> None:
    table = tmp_path / "people.csv"
    table.write_text("number;outcome\n" + "".join(f"p{n};{n % 2}\n" for n in range(50)))
    home = tmp_path / "party"
    options = ["--role", role, f"--{role}-table", str(table), "--address", "bank.example:7443"]
    result = CliRunner().invoke(app, ["init", *options, str(home)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert [path.name for path in home.iterdir() if path.is_file()] == [f"{role}.yml"]
    assert not [*tmp_path.rglob("*.key"), *tmp_path.rglob("*.pem")]
    config = load_config(home / f"{role}.yml")
    assert config.role == role
    assert config.network.address == "bank.example:7443"
    assert (config.data.train.id_column, config.data.train.delimiter) == ("number", ";")
    assert config.data.train.label == ("outcome" if role == "active" else None)
    assert config.network.tls is not None
    assert config.network.tls.key.parent == home / "certificates"
    assert f"florist preflight --config {home / role}.yml" in result.output
    assert ledger_folder(config).is_dir()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--role", "active", "--passive-table", "t.csv"], "give --active-table"),
        (["--role", "active", "--label", "y"], "give --active-table"),
        (["--active-table", "t.csv"], "give both --active-table and --passive-table"),
    ],
)
def test_missing_tables_are_named(tmp_path: Path, options: list[str], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        CliRunner().invoke(app, ["init", *options, str(tmp_path)], catch_exceptions=False)
