"""Certificates for tests: good ones, and every kind of bad one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from florist.common.transport.certificates import AuthorityFiles, create_authority, issue
from florist.common.transport.credentials import Credentials

if TYPE_CHECKING:
    from pathlib import Path

ACTIVE = "active-party"
PASSIVE = "passive-party"

LONG_AGO = timedelta(days=100)


@dataclass(frozen=True)
class Trust:
    """An authority, and the parties' files that it issues."""

    directory: Path
    files: AuthorityFiles

    @classmethod
    def create(cls, directory: Path) -> Trust:
        past = datetime.now(UTC) - 2 * LONG_AGO
        return cls(directory, create_authority(directory, "Test authority", 1000, now=past))

    def party(
        self, name: str, *others: str, age: timedelta = timedelta(0), authority: Trust | None = None
    ) -> Credentials:
        """The files of a party, made `age` ago for ten days.

        Args:
            name: its common name.
            others: further names for its certificate.
            age: negative for a certificate of the future.
            authority: whom the party trusts, if not its own issuer.
        """
        folder = self.directory / f"{name}-{'-'.join(others)}-{age.days}"
        now = datetime.now(UTC) - age
        files = issue(self.files, name, others, folder, 10, force=True, now=now)
        trusted = authority.files.certificate if authority else files.authority
        return Credentials(trusted, files.certificate, files.key)
