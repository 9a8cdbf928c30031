"""Certificates for tests: good ones, and every kind of bad one."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

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

    def with_common_names(self, *common_names: str, listed: str) -> Credentials:
        """The files of a certificate that `issue` would not create.

        Args:
            common_names: all common names of the subject, in order.
            listed: the host name in the certificate.
        """
        folder = self.directory / secrets.token_hex(8)
        folder.mkdir(mode=0o700)
        now, key = datetime.now(UTC), ec.generate_private_key(ec.SECP256R1())
        issuer = x509.load_pem_x509_certificate(self.files.certificate.read_bytes())
        issuer_key = load_pem_private_key(self.files.key.read_bytes(), None)
        assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
        names = [x509.NameAttribute(NameOID.COMMON_NAME, name) for name in common_names]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.RelativeDistinguishedName([each]) for each in names]))
            .issuer_name(issuer.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(listed)]), critical=False)
            .sign(issuer_key, hashes.SHA256())
        )
        paths = folder / "party.pem", folder / "party.key"
        paths[0].write_bytes(certificate.public_bytes(Encoding.PEM))
        paths[1].touch(mode=0o600)
        paths[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return Credentials(self.files.certificate, *paths)
