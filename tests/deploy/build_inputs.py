"""Local replacements for what a build downloads: base images and Python packages.

A private engine cannot reach a registry, and pip inside a build does not have this machine's pip
configuration. Base images of the same names are therefore made from Debian packages, and packages
that pip downloads on this machine are served to the build.
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

#: The base images of the Dockerfile: one to run in, one with a compiler.
SLIM = "python:3.11-slim-bookworm"
FULL = "python:3.11-bookworm"
COMPILER = "gcc libc6-dev python3-dev"


def make_base_images(packages: Unpacked, folder: Path) -> dict[str, Path]:
    """Make archives of the file systems of both images, with a tool from `packages`.

    Raises:
        CannotRun: they cannot be made on this machine.
    """
    slim, full = folder / "slim.tar", folder / "full.tar"
    left_out = "--exclude=./var/lib/apt/* --exclude=./var/cache/apt/*"
    hooks = (
        'rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED',  # not in the official images
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
        raise CannotRun(f"base images cannot be made on this machine: {error}") from None
    return {SLIM: slim, FULL: full}


def load_base_images(engine: Engine, archives: dict[str, Path]) -> None:
    """Import the archives as images, and delete them."""
    for name, archive in archives.items():
        engine.docker("import", archive, name, timeout=300)
        archive.unlink()


def download_wheels(folder: Path) -> None:
    """Download everything that the image installs, with this machine's pip.

    Raises:
        CannotRun: pip cannot download it.
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
        raise CannotRun(f"Python packages cannot be downloaded: {error}") from None


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Do not log requests."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the files of a folder on this machine; yields the address."""
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
