"""A container engine: the one that runs on this machine, or a private one for the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.deploy.debian import COMPOSE
from tests.deploy.shell import CannotRun, CommandFailed, run, try_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.deploy.debian import Unpacked

#: Seconds for the engine to start, and to stop.
START = 60.0
STOP = 30.0


@dataclass(frozen=True)
class Engine:
    """An engine, called through `docker`."""

    env: dict[str, str]
    #: Started by the tests: it pulls no images, and its builds use the host's network.
    private: bool = False

    def docker(self, *arguments: str | Path, timeout: float = 120) -> str:
        """Run `docker` and return its output."""
        return run("docker", *arguments, env=self.env, timeout=timeout)


def compose_command(get_packages: Callable[[], Unpacked], folder: Path) -> dict[str, str]:
    """Return the environment variables with which `docker compose` works.

    Raises:
        CannotRun: it is neither installed nor available.
    """
    if _has_compose({}):
        return {}
    packages = get_packages()
    packages.add(*COMPOSE)
    plugins = folder / "config" / "cli-plugins"
    plugins.mkdir(parents=True)
    binary = packages.root / "usr/libexec/docker/cli-plugins/docker-compose"
    (plugins / "docker-compose").symlink_to(binary)
    env = {"DOCKER_CONFIG": str(folder / "config")}
    if shutil.which("docker") is None:
        packages.add("docker.io")
        env["PATH"] = _path(packages)
    if not _has_compose(env):
        raise CannotRun("`docker compose` does not run on this machine")
    return env


def running_engine() -> Engine | None:
    """Return the engine that this user can reach, if it has Compose too."""
    with suppress(CommandFailed):
        if try_run("docker", "info")[0] == 0 and _has_compose({}):
            return Engine({})
    return None


@contextmanager
def private_engine(packages: Unpacked, compose: dict[str, str], folder: Path) -> Iterator[Engine]:
    """Start the engine in `packages`; its socket, images and containers are all in `folder`.

    Raises:
        CannotRun: it cannot run on this machine.
    """
    libraries = packages.root / "usr/lib" / f"{os.uname().machine}-linux-gnu"
    tools = folder / "bin"
    tools.mkdir()
    for name in ("iptables", "ip6tables"):
        (tools / name).symlink_to(packages.root / "usr/sbin/xtables-nft-multi")
    socket = f"unix://{folder / 'docker.sock'}"
    env = {**compose, "DOCKER_HOST": socket, "PATH": f"{tools}:{_path(packages)}"}
    (folder / "daemon.json").write_text("{}")
    command = [
        str(packages.root / "usr/sbin/dockerd"),
        *(f"--host={socket}", f"--config-file={folder / 'daemon.json'}"),
        *(f"--data-root={folder / 'data'}", f"--exec-root={folder / 'exec'}"),
        *(f"--pidfile={folder / 'pid'}", "--storage-driver=overlay2", "--oom-score-adjust=0"),
        # Leave the network of the machine unchanged.
        *("--bridge=none", "--iptables=false", "--ip6tables=false"),
        *("--ip-forward=false", "--ip-masq=false"),
    ]
    libraries_env = {
        "LD_LIBRARY_PATH": str(libraries),
        "XTABLES_LIBDIR": str(libraries / "xtables"),
    }
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, env={**os.environ, **env, **libraries_env}, stdout=log, stderr=log
        )
    engine = Engine(env, private=True)
    try:
        _await(engine, process, folder / "log")
        yield engine
        _clear(engine)
    finally:
        process.terminate()
        try:
            process.wait(STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(engine: Engine, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START
    while try_run("docker", "info", env=engine.env)[0]:
        if process.poll() is not None or time.monotonic() > deadline:
            raise CannotRun(
                f"no container engine can run on this machine:\n{log.read_text()[-2000:]}"
            )
        time.sleep(0.2)


def _clear(engine: Engine) -> None:
    """Remove all containers, and with them their processes, mounts and networks."""
    if containers := engine.docker("ps", "--all", "--quiet").split():
        engine.docker("rm", "--force", *containers)
    engine.docker("network", "prune", "--force")


def _has_compose(env: dict[str, str]) -> bool:
    with suppress(CommandFailed):
        return try_run("docker", "compose", "version", env=env)[0] == 0
    return False


def _path(packages: Unpacked) -> str:
    own = (packages.root / folder for folder in ("usr/sbin", "usr/bin"))
    return ":".join([*map(str, own), os.environ["PATH"]])
