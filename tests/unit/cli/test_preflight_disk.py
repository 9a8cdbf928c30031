"""`florist preflight` tells how much disk aligning takes, and refuses when there is less."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from florist.cli.init import Names, write_first_files
from florist.cli.preflight import check_all
from florist.cli.sample_data import IdSample
from florist.common.psu.limits import disk_needed

if TYPE_CHECKING:
    from pathlib import Path

    from florist.cli.preflight import Finding


def finding(folder: Path) -> Finding:
    return next(f for f in check_all(folder / "active.yml") if f.what == "run directory")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    sample = IdSample(active=2000, passive=3000, shared=100)
    write_first_files(tmp_path, Names("bank", "telco"), "127.0.0.1:1", sample)
    return tmp_path


def test_disk_is_told(folder: Path) -> None:
    found = finding(folder)
    assert found.good
    assert "needed to align" in found.seen


def test_too_little_disk_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type(shutil.disk_usage(folder))
    needed = disk_needed(32, 2000, 2000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, needed - 1))
    found = finding(folder)
    assert not found.good
    assert "make room" in found.seen
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, needed))
    assert finding(folder).good
