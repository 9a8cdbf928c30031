"""`florist init`: options that the end-to-end tests do not use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.cli.init import Names, write_first_files
from florist.common.privacy.ledger import ledger_folder
from florist.common.settings.loader import load_config

if TYPE_CHECKING:
    from pathlib import Path


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
