"""Creates certificates for mutual TLS: an authority, and one certificate for each party.

The common name of a certificate identifies its party. It is also one of the certificate's
alternative names, which TLS compares with the name of the listening side.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from florist.common.core.errors import ConfigurationError
from florist.common.transport.certificate_check import validity_problems
from florist.common.transport.certificate_files import (
    key_exposure,
    load_certificates,
    load_private_key,
    prepare_directory,
    public_bytes,
    write_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

# Certificates are valid from a little before their creation: the peer's clock may be behind.
_CLOCK_SKEW = timedelta(minutes=5)
_PARTY_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")


@dataclass(frozen=True, slots=True)
class AuthorityFiles:
    """The files of an authority. The key stays with whoever issues certificates."""

    certificate: Path
    key: Path

    @classmethod
    def in_directory(cls, directory: Path) -> AuthorityFiles:
        return cls(directory / "authority.pem", directory / "authority.key")


@dataclass(frozen=True, slots=True)
class PartyFiles:
    """The files that one party needs."""

    authority: Path
    certificate: Path
    key: Path

    @classmethod
    def in_directory(cls, directory: Path, party_name: str) -> PartyFiles:
        return cls(
            directory / "authority.pem",
            directory / f"{party_name}.pem",
            directory / f"{party_name}.key",
        )


def create_authority(
    directory: Path, name: str, days: int, *, force: bool = False, now: datetime | None = None
) -> AuthorityFiles:
    """Create an authority that can issue certificates but no further authorities.

    Args:
        directory: created, accessible only to its owner, if it does not exist.
        name: the name shown to users.
        days: days until the authority expires.
        force: replace existing files.
        now: the time of creation; None means the current time.

    Raises:
        ConfigurationError: the name or the number of days is invalid, or a file exists already.
    """
    files = AuthorityFiles.in_directory(directory)
    if not 1 <= len(name) <= 64 or not name.isprintable():
        raise ConfigurationError("the authority's name must have 1 to 64 printable characters")
    prepare_directory(directory, (files.certificate, files.key), force=force)
    key = new_key()
    start = now or datetime.now(UTC)
    certificate = (
        _builder(named(name), named(name), key.public_key(), start, _end(start, days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(_key_identifier(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_file(files.key, key_pem(key), mode=0o600)
    write_file(files.certificate, certificate.public_bytes(Encoding.PEM), mode=0o644)
    return files


def issue(
    authority: AuthorityFiles,
    party_name: str,
    names_and_addresses: Iterable[str],
    directory: Path,
    days: int,
    *,
    force: bool = False,
    now: datetime | None = None,
) -> PartyFiles:
    """Create a key and a certificate for one party, next to a copy of the authority's certificate.

    Args:
        authority: the issuing authority.
        party_name: the party's name in both configurations; the certificate's common name.
        names_and_addresses: host names and IP addresses of the party, if any.
        directory: created, accessible only to its owner, if it does not exist.
        days: days until the certificate expires, at most those of the authority.
        force: replace existing files.
        now: the time of creation; None means the current time.

    Raises:
        ConfigurationError: a name, an address or the number of days is invalid, a file exists
            already, or the authority cannot be used.
    """
    files = PartyFiles.in_directory(directory, party_name)
    alternative_names = party_names(party_name, names_and_addresses)
    key = new_key()
    certificate = certify(authority, party_name, alternative_names, key.public_key(), days, now)
    prepare_directory(directory, (files.certificate, files.key), force=force)
    _check_copy(authority.certificate, files.authority, force=force)
    write_file(files.key, key_pem(key), mode=0o600)
    write_file(files.certificate, certificate, mode=0o644)
    write_file(files.authority, authority.certificate.read_bytes(), mode=0o644)
    return files


def certify(
    authority: AuthorityFiles,
    party_name: str,
    alternative_names: Sequence[x509.GeneralName],
    public_key: ec.EllipticCurvePublicKey,
    days: int,
    now: datetime | None = None,
) -> bytes:
    """Return the certificate of a party's public key, in PEM format.

    Args:
        authority: the issuing authority.
        party_name: the common name.
        alternative_names: as from `party_names`.
        public_key: the party's public key.
        days: days until the certificate expires, at most those of the authority.
        now: the time of creation; None means the current time.

    Raises:
        ConfigurationError: the number of days is invalid, or the authority cannot be used.
    """
    start = now or datetime.now(UTC)
    issuer, issuer_key = _load_authority(authority, start)
    end = min(_end(start, days), issuer.not_valid_after_utc)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        _builder(named(party_name), issuer.subject, public_key, start, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternative_names), critical=False)
        .add_extension(_key_identifier(public_key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .sign(issuer_key, hashes.SHA256())
    )
    return certificate.public_bytes(Encoding.PEM)


def check_names(directory: Path, parties: Sequence[str], names: Sequence[str]) -> None:
    """Check that no certificate lists the name of another party among its alternative names.

    TLS would accept such a certificate for either party.

    Args:
        directory: holds the certificates that have been issued already.
        parties: the parties for which certificates are about to be issued.
        names: the additional host names and addresses of all of them.

    Raises:
        ConfigurationError: names the party and the certificate.
    """
    issued = {
        path.stem: _listed_names(path)
        for path in sorted(directory.glob("*.pem"))
        if path != AuthorityFiles.in_directory(directory).certificate
    }
    hosts = {name.lower().rstrip(".") for name in names}
    for party in parties:
        if taken := hosts & ({*issued, *parties} - {party}):
            raise ConfigurationError(
                f"the certificate of {party} must not list {min(taken)!r}, which is the name of "
                "another party; choose another host name or another party name"
            )
        for other, listed in issued.items():
            if other not in parties and party in listed:
                raise ConfigurationError(
                    f"{directory / other}.pem lists {party!r} as a host name of {other}, so it "
                    f"could pass for {party}; issue it again without that name, or choose another "
                    "party name"
                )


def _listed_names(path: Path) -> set[str]:
    try:
        extension = load_certificates(path)[0].extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except x509.ExtensionNotFound:
        return set()
    return {name.lower() for name in extension.value.get_values_for_type(x509.DNSName)}


def new_key() -> ec.EllipticCurvePrivateKey:
    """Create a private key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key in PEM format, not encrypted; write it with mode 0600."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def named(name: str) -> x509.Name:
    """Return a subject with this common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    start: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - _CLOCK_SKEW)
        .not_valid_after(end)
    )


def _end(start: datetime, days: int) -> datetime:
    if not 1 <= days <= 36500:
        raise ConfigurationError(f"a certificate can be valid for 1 to 36500 days, not {days}")
    return start + timedelta(days=days)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_identifier(public_key: ec.EllipticCurvePublicKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(public_key)


def party_names(party_name: str, names_and_addresses: Iterable[str]) -> list[x509.GeneralName]:
    """Return the alternative names of a party's certificate: its own name, then the others.

    Raises:
        ConfigurationError: a name is invalid.
    """
    if not _PARTY_NAME.fullmatch(party_name):
        raise ConfigurationError(
            f"the party name {party_name!r} must consist of 1 to 63 lower-case letters, digits and "
            "hyphens, and start and end with a letter or digit"
        )
    names = dict.fromkeys([party_name, *names_and_addresses])
    return [_alternative_name(name) for name in names]


def _alternative_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        pass
    if not _HOST_NAME.fullmatch(name):
        raise ConfigurationError(f"{name!r} is neither a host name nor an IP address")
    return x509.DNSName(name)


def _load_authority(
    files: AuthorityFiles, time: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    certificate = load_certificates(files.certificate)[0]
    key = load_private_key(files.key)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or public_bytes(
        key.public_key()
    ) != public_bytes(certificate.public_key()):
        raise ConfigurationError(f"{files.key}: is not the key of {files.certificate}")
    if found := key_exposure(files.key) + validity_problems(certificate, files.certificate, time):
        raise ConfigurationError("; ".join(found))
    return certificate, key


def _check_copy(source: Path, copy: Path, *, force: bool) -> None:
    """Refuse to replace the certificate of another authority."""
    if not force and copy.exists() and copy.read_bytes() != source.read_bytes():
        raise ConfigurationError(
            f"{copy}: belongs to another authority than {source}; replace it with --force"
        )
