"""Each party with its own compose file and only its own files, as in two organisations."""

from __future__ import annotations

import secrets
import shutil
from typing import TYPE_CHECKING

import pytest
import yaml

from florist.cli.init import write_first_files
from florist.common.core.ports import free_port
from florist.common.session.run_directory import RunDirectory
from tests.deploy.build_inputs import ROOT
from tests.deploy.shell import run, try_run
from tests.deploy.trial import ADDRESS, NAMES, OWNER, STATUS, own
from tests.support.parties import SMALL

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.core.roles import RoleName
    from tests.deploy.engine import Engine

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(2400)]


def test_two_parties_with_separate_files(engine: Engine, image: str, tmp_path: Path) -> None:
    """Both parties use the active party's network, because they run on one host."""
    write_first_files(tmp_path / "both", NAMES, ADDRESS, SMALL, STATUS)
    project = f"florist-test-{secrets.token_hex(4)}"
    network = {"networks": {"default": {"name": f"{project}-active_default", "external": True}}}
    (tmp_path / "network.yml").write_text(yaml.safe_dump(network))
    files = {
        "active": [ROOT / "deploy/compose.active.yml"],
        "passive": [ROOT / "deploy/compose.passive.yml", tmp_path / "network.yml"],
    }
    folders = {role: _folder_of(role, tmp_path) for role in _ROLES}

    def compose(role: RoleName, *arguments: str) -> tuple[list[str | Path], dict[str, str]]:
        named = [part for file in files[role] for part in ("--file", file)]
        env = {
            "FLORIST_IMAGE": image,
            "FLORIST_FOLDER": str(folders[role]),
            "FLORIST_STAGE": "align",
            "FLORIST_UID": str(OWNER),
            "FLORIST_GID": str(OWNER),
            "FLORIST_LISTEN": f"127.0.0.1:{free_port()}",
            "FLORIST_STATUS_PORT": str(free_port()),
            "FLORIST_HTTP_PORT": str(free_port()),
        }
        command = ["docker", "compose", *named, "--project-name", f"{project}-{role}", *arguments]
        return command, {**engine.env, **env}

    try:
        for role in _ROLES:
            command, env = compose(role, "up", "--detach", "--no-build")
            run(*command, env=env)
        for role in _ROLES:
            command, env = compose(role, "ps", "--all", "--quiet", role)
            container = run(*command, env=env).strip()
            assert engine.docker("wait", container, timeout=300).strip() == "0"
    finally:
        for role in reversed(_ROLES):
            command, env = compose(role, "logs", "--no-color")
            print(try_run(*command, env=env)[1])  # noqa: T201 - pytest shows it on failure
            command, env = compose(role, "down", "--timeout", "5")
            try_run(*command, env=env)

    unions = {
        RunDirectory(folders[role] / "runs" / NAMES[role]).load_alignment().summary.union_sha256
        for role in _ROLES
    }
    assert len(unions) == 1


_ROLES: tuple[RoleName, RoleName] = ("active", "passive")


def _folder_of(role: RoleName, folder: Path) -> Path:
    """Copy the files of one organisation from those that `florist init` wrote for both."""
    both, party, name = folder / "both", folder / role, NAMES[role]
    for kept in ("certificates", "data", "runs"):
        (party / kept).mkdir(parents=True)
    for kept in (
        f"{role}.yml",
        *("certificates/authority.pem", f"certificates/{name}.pem", f"certificates/{name}.key"),
        f"data/{name}.csv",
    ):
        shutil.copy2(both / kept, party / kept)
    own(party)
    return party
