"""What a build gets from the network elsewhere: base images, and Python packages.

A private engine reaches no registry, and pip inside a build knows nothing of how this machine's pip
reaches an index. So base images of the same names are made from Debian's packages, and what pip
downloads here is served to the build.
"""

from __future__ import annotations

import sys
import tomllib
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from tests.deploy.debian import MIRROR
from tests.deploy.shell import CannotRun, CommandFailed, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.deploy.debian import Unpacked
    from tests.deploy.engine import Engine

ROOT = Path(__file__).parents[2]

#: As the Dockerfile names them: one to run in, one with a compiler.
SLIM = "python:3.11-slim-bookworm"
FULL = "python:3.11-bookworm"
COMPILER = "gcc libc6-dev python3-dev"


def make_base_images(packages: Unpacked, folder: Path) -> dict[str, Path]:
    """The file systems of both images, as archives; `packages` has what makes them.

    Raises:
        CannotRun: they cannot be made here.
    """
    slim, full = folder / "slim.tar", folder / "full.tar"
    left_out = "--exclude=./var/lib/apt/* --exclude=./var/cache/apt/*"
    hooks = (
        'rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED',  # the official images have no such mark
        f'tar -C "$1" --one-file-system {left_out} -cf {slim} .',
        f'chroot "$1" apt-get install --yes --no-install-recommends {COMPILER}',
    )
    try:
        run(
            packages.root / "usr/bin/mmdebstrap",
            *("--mode=root", "--variant=apt", "--dpkgopt=force-unsafe-io"),
            "--include=python3,python3-pip,python-is-python3",
            *(f"--customize-hook={hook}" for hook in hooks),
            *("bookworm", full, MIRROR),
            timeout=600,
        )
    except CommandFailed as error:
        raise CannotRun(f"no base image can be made here: {error}") from None
    return {SLIM: slim, FULL: full}


def load_base_images(engine: Engine, archives: dict[str, Path]) -> None:
    for name, archive in archives.items():
        engine.docker("import", archive, name, timeout=300)
        archive.unlink()


def download_wheels(folder: Path) -> None:
    """All that the image installs, by way of this machine's own pip.

    Raises:
        CannotRun: pip cannot get it.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    try:
        run(
            *(sys.executable, "-m", "pip", "download", "--quiet", "--dest", folder),
            *("--only-binary=:all:", "--python-version=3.11"),
            *("--constraint", ROOT / "constraints.txt", *wanted),
            timeout=600,
        )
    except CommandFailed as error:
        raise CannotRun(f"the Python packages cannot be had: {error}") from None


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder's files on this machine; the address."""
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
