"""The trial of `deploy/docker-compose.yml`: its files, containers and results."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from florist.cli.init import Names, write_first_files
from florist.common.core.ports import free_port
from florist.common.session.run_directory import RunDirectory
from florist.common.settings.loader import load_config
from florist.common.transport.certificates import AuthorityFiles, create_authority, issue
from tests.deploy.build_inputs import ROOT
from tests.deploy.shell import CommandFailed, run, try_run

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.core.roles import RoleName
    from florist.experiments.sample_data import Sample
    from tests.deploy.engine import Engine

COMPOSE_FILE = ROOT / "deploy/docker-compose.yml"
#: As in the compose file.
NAMES = Names(active="bank", passive="telco")
ADDRESS = "active:7443"
STATUS = "0.0.0.0:9464"
#: The user who runs the containers and owns the files; not root.
OWNER = 4321


def build_image(engine: Engine, image: str, *overrides: Path) -> None:
    """Build the image with the compose file."""
    files = [part for path in (COMPOSE_FILE, *overrides) for part in ("--file", str(path))]
    env = {**engine.env, "FLORIST_IMAGE": image}
    run("docker", "compose", *files, "build", "active", env=env, timeout=1500)


@dataclass(frozen=True)
class Trial:
    """A compose project, and the folder with its files."""

    engine: Engine
    image: str
    folder: Path
    project: str
    status_ports: dict[RoleName, int]

    @classmethod
    def create(cls, engine: Engine, image: str, folder: Path, sample: Sample) -> Self:
        """Write the files of a trial, owned by a user who is not root."""
        write_first_files(folder, NAMES, ADDRESS, sample, STATUS)
        own(folder)
        project = f"florist-test-{secrets.token_hex(4)}"
        return cls(engine, image, folder, project, {"active": free_port(), "passive": free_port()})

    def compose(
        self, *arguments: str, folder: Path | None = None, timeout: float = 120
    ) -> tuple[int, str]:
        """Run `docker compose` for this project, with the files of `folder` or our own."""
        command = ("docker", "compose", "--file", COMPOSE_FILE, "--project-name", self.project)
        env = {
            **self.engine.env,
            "FLORIST_IMAGE": self.image,
            "FLORIST_TRIAL": str(folder or self.folder),
            "FLORIST_UID": str(OWNER),
            "FLORIST_GID": str(OWNER),
            "FLORIST_ACTIVE_STATUS": str(self.status_ports["active"]),
            "FLORIST_PASSIVE_STATUS": str(self.status_ports["passive"]),
        }
        return try_run(*command, *arguments, env=env, timeout=timeout)

    def up(self, *services: str) -> None:
        """Start services, by default all, in the background."""
        code, printed = self.compose("up", "--detach", "--no-build", *services)
        assert code == 0, printed

    def container(self, role: RoleName) -> str:
        """Return the ID of the newest container of a role."""
        code, printed = self.compose("ps", "--all", "--quiet", role)
        assert code == 0, printed
        return printed.strip()

    def inspect(self, role: RoleName) -> dict[str, Any]:
        """Return the engine's description of a container."""
        facts: dict[str, Any] = json.loads(self.engine.docker("inspect", self.container(role)))[0]
        return facts

    def execute(self, role: RoleName, *command: str) -> tuple[int, str]:
        """Run a command in a container."""
        arguments = ("docker", "exec", self.container(role), *command)
        return try_run(*arguments, env=self.engine.env)

    def finish(self, role: RoleName, timeout: float = 300) -> int:
        """Wait until a container has ended, including restarts; return its last exit code."""
        deadline = time.monotonic() + timeout
        while (state := self.inspect(role)["State"])["Status"] != "exited":
            if time.monotonic() > deadline:
                raise CommandFailed(f"{role} did not end in {timeout:.0f} s:\n{self.logs()}")
            time.sleep(0.5)
        return int(state["ExitCode"])

    def logs(self) -> str:
        """Return the logs of both parties."""
        return self.compose("logs", "--no-color")[1]

    def remove(self) -> None:
        """Remove containers and networks; the files stay."""
        self.compose("down", "--volumes", "--timeout", "5")

    def runs(self, role: RoleName) -> RunDirectory:
        return RunDirectory(load_config(self.folder / f"{role}.yml").run_directory)

    def checkpoints(self, role: RoleName) -> list[str]:
        """Return the names of the checkpoints."""
        return sorted(path.name for path in self.runs(role).checkpoints.glob("step-*.json"))

    def with_foreign_certificate(self, folder: Path) -> Path:
        """Copy the files, with a certificate of another authority for the passive party.

        That party would accept the active party, and its certificate has the right name.
        """
        shutil.copytree(self.folder, folder)
        certificates = folder / "certificates"
        create_authority(folder / "foreign", "Somebody else", 1)
        foreign = AuthorityFiles.in_directory(folder / "foreign")
        made = issue(foreign, NAMES.passive, [], folder / "foreign", 1)
        for path in (made.certificate, made.key):
            shutil.copy(path, certificates / path.name)
        both = (certificates / "authority.pem").read_text() + foreign.certificate.read_text()
        (certificates / "authority.pem").write_text(both)
        own(folder)
        return folder


def own(folder: Path) -> None:
    """Give a folder to the user of the containers, and make it reachable for the engine."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, OWNER, OWNER)
    for parent in (folder.parent, folder.parent.parent):
        parent.chmod(0o755)
