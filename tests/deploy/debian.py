"""Debian packages, downloaded and unpacked into a folder: nothing on this machine changes."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

from tests.deploy.shell import CannotRun, CommandFailed, run

if TYPE_CHECKING:
    from pathlib import Path

MIRROR = "http://deb.debian.org/debian"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

#: Docker's engine and what it calls. The libraries are those of `iptables`, with which the engine
#: redirects a container's name lookups.
ENGINE = (
    "docker.io",
    "containerd",
    "runc",
    "tini",
    "iptables",
    "libip4tc2",
    "libip6tc2",
    "libmnl0",
    "libnetfilter-conntrack3",
    "libnfnetlink0",
    "libnftnl11",
    "libxtables12",
)
#: Makes the file system of a stand-in for a registry's image.
BOOTSTRAP = ("mmdebstrap",)
#: Compose 2 is in Debian from this release on; its binary needs nothing of it.
COMPOSE = ("docker-compose/trixie",)


class Unpacked:
    """Packages in a folder of their own, with an `apt` that knows two releases of Debian."""

    def __init__(self, folder: Path) -> None:
        """Ask the mirror what there is.

        Raises:
            CannotRun: not Debian 12, not root, or no way to the mirror.
        """
        if os.geteuid() != 0:
            raise CannotRun("a private container engine needs root")
        found = platform.freedesktop_os_release()
        if found.get("VERSION_CODENAME") != "bookworm":
            raise CannotRun("a private container engine can be set up on Debian 12 only")
        self.root = folder / "root"
        self._folder = folder
        for name in ("lists/partial", "cache/archives/partial", "root"):
            (folder / name).mkdir(parents=True)
        sources = folder / "sources.list"
        sources.write_text(
            "".join(
                f"deb [signed-by={KEYRING}] {MIRROR} {release} main\n"
                for release in ("bookworm", "trixie")
            )
        )
        self._apt = (
            "apt-get",
            *("-o", f"Dir::Etc::sourcelist={sources}", "-o", "Dir::Etc::sourceparts=-"),
            *(
                "-o",
                f"Dir::State::lists={folder / 'lists'}",
                "-o",
                f"Dir::Cache={folder / 'cache'}",
            ),
            *("-o", "Acquire::Retries=2", "-o", "APT::Sandbox::User=root"),
            *("-o", "APT::Default-Release=bookworm"),
        )
        try:
            run(*self._apt, "--error-on=any", "update", timeout=120)
        except CommandFailed as error:
            raise CannotRun(f"Debian's packages cannot be had: {error}") from None

    def add(self, *packages: str) -> None:
        """Download and unpack.

        Raises:
            CannotRun: they cannot be had.
        """
        into = self._folder / "packages"
        into.mkdir(exist_ok=True)
        try:
            run(*self._apt, "--quiet", "download", *packages, folder=into, timeout=300)
        except CommandFailed as error:
            raise CannotRun(f"Debian's packages cannot be had: {error}") from None
        for package in into.iterdir():
            run("dpkg-deb", "--extract", package, self.root)
            package.unlink()
