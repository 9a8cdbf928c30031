"""Debian packages that are unpacked into a folder, without installing them on this machine."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

from tests.deploy.shell import CannotRun, CommandFailed, run

if TYPE_CHECKING:
    from pathlib import Path

MIRROR = "http://deb.debian.org/debian"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

#: Docker's engine and the programs that it calls. The libraries belong to `iptables`, which the
#: engine uses to redirect the DNS lookups of containers.
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
#: Makes the file system of a base image.
BOOTSTRAP = ("mmdebstrap",)
#: Debian has Compose 2 since this release; the binary is static.
COMPOSE = ("docker-compose/trixie",)


class Unpacked:
    """Packages in a separate folder, from two releases of Debian."""

    def __init__(self, folder: Path) -> None:
        """Download the package lists.

        Raises:
            CannotRun: this is not Debian 12, the user is not root, or the mirror is unreachable.
        """
        if os.geteuid() != 0:
            raise CannotRun("a private container engine needs root")
        found = platform.freedesktop_os_release()
        if found.get("VERSION_CODENAME") != "bookworm":
            raise CannotRun("a private container engine can only be set up on Debian 12")
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
            raise CannotRun(f"Debian packages cannot be downloaded: {error}") from None

    def add(self, *packages: str) -> None:
        """Download and unpack packages.

        Raises:
            CannotRun: they cannot be downloaded.
        """
        into = self._folder / "packages"
        into.mkdir(exist_ok=True)
        try:
            run(*self._apt, "--quiet", "download", *packages, folder=into, timeout=300)
        except CommandFailed as error:
            raise CannotRun(f"Debian packages cannot be downloaded: {error}") from None
        for package in into.iterdir():
            run("dpkg-deb", "--extract", package, self.root)
            package.unlink()
