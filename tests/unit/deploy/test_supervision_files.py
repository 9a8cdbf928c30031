"""The systemd unit and the compose files restart a party only if that can help."""

from __future__ import annotations

import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path

import pytest
import yaml

from florist.common.core.errors import restart_helps
from tools.errors_page import error_types

DEPLOY = Path(__file__).parents[3] / "deploy"
UNIT = DEPLOY / "systemd" / "florist-party@.service"


def final_codes() -> set[int]:
    """All exit codes of failures after which a person has to act."""
    return {kind.exit_code for kind, _ in error_types() if not restart_helps(kind.exit_code)}


def unit() -> RawConfigParser:
    parser = RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return parser


def test_systemd_restarts_only_if_that_helps() -> None:
    service = unit()["Service"]
    assert service["Restart"] == "on-failure"
    assert {int(code) for code in service["RestartPreventExitStatus"].split()} == final_codes()
    assert all(restart_helps(int(code)) for code in service["SuccessExitStatus"].split())
    assert unit()["Unit"]["StartLimitBurst"] == "20"


def test_systemd_confines_the_party() -> None:
    service = unit()["Service"]
    for key, value in {
        "User": "florist",
        "UMask": "0077",
        "NoNewPrivileges": "yes",
        "CapabilityBoundingSet": "",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "PrivateTmp": "yes",
        "StateDirectoryMode": "0700",
    }.items():
        assert service[key] == value, key


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    text = UNIT.read_text().replace("/opt/florist/bin/florist-party", "/bin/true")
    assert text != UNIT.read_text()
    installed = tmp_path / "florist-party@active.service"
    installed.write_text(text)
    found = subprocess.run(
        [analyze, "verify", installed], capture_output=True, text=True, check=False, timeout=60
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_containers_are_supervised_inside() -> None:
    party = yaml.safe_load((DEPLOY / "compose.party.yml").read_text())["services"]["party"]
    assert party["restart"] == "no"
    for name in ("compose.active.yml", "compose.passive.yml", "docker-compose.yml"):
        services = yaml.safe_load((DEPLOY / name).read_text())["services"]
        commands = [
            service["command"]
            for role, service in services.items()
            if role != "init" and "command" in service
        ]
        assert commands
        for command in commands:
            assert command[:2] == ["florist", "supervise"]
            assert command[command.index("--") + 1] == "florist-party"
