"""`florist preflight` tells what is amiss with this machine: its disk, its ports."""

from __future__ import annotations

import shutil
import socket
from typing import TYPE_CHECKING

import pytest

from florist.cli.init import Names, write_first_files
from florist.cli.preflight import check_all
from florist.common.psu.limits import disk_needed
from florist.experiments.sample_data import IdSample

if TYPE_CHECKING:
    from pathlib import Path

    from florist.cli.preflight import Finding


def finding(folder: Path, what: str = "run directory") -> Finding:
    return next(f for f in check_all(folder / "active.yml") if f.what == what)


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
    needed = disk_needed(32, 2000, 2000, 2 * 10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, needed - 1))
    found = finding(folder)
    assert not found.good
    assert "make room" in found.seen
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, needed))
    assert finding(folder).good


def test_a_status_page_whose_port_is_taken_is_refused(folder: Path) -> None:
    config = folder / "active.yml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        before, section, after = config.read_text().partition("\nobservability:")
        after = after.replace("address: null", f"address: {address}", 1)
        config.write_text(before + section + after)
        found = finding(folder, "status page")
        assert not found.good
        assert "observability.address" in found.seen
    assert finding(folder, "status page").good
