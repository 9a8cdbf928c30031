"""Certificates for mutual TLS: an authority for the two parties, one certificate each, checks.

A party is known by the common name of its certificate. The same name is among the certificate's
alternative names, where TLS looks for the name of the side that listens.
"""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar, cast

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from florist.common.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.types import (
        PrivateKeyTypes,
        PublicKeyTypes,
    )

T = TypeVar("T")

#: Days before its end from which a certificate is reported as running out.
RUNNING_OUT = 30

# A certificate is valid from a little before its making: the peer's clock may be behind.
_CLOCK_SKEW = timedelta(minutes=5)
_PARTY_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")


@dataclass(frozen=True, slots=True)
class AuthorityFiles:
    """An authority on disk. The key stays with whoever issues certificates."""

    certificate: Path
    key: Path

    @classmethod
    def in_directory(cls, directory: Path) -> AuthorityFiles:
        return cls(directory / "authority.pem", directory / "authority.key")


@dataclass(frozen=True, slots=True)
class PartyFiles:
    """What one party needs, and nothing more."""

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


@dataclass(frozen=True, slots=True)
class CertificateReport:
    """What `inspect` found. Each problem names its file and the fix."""

    problems: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    common_name: str = ""
    expires: datetime | None = None
    days_left: int | None = None

    def require(self) -> None:
        """Go on only if there is no problem.

        Raises:
            ConfigurationError: all of them.
        """
        if self.problems:
            raise ConfigurationError("; ".join(self.problems))


def create_authority(
    directory: Path, name: str, days: int, *, force: bool = False, now: datetime | None = None
) -> AuthorityFiles:
    """A new authority that can issue certificates, but no further authorities.

    Args:
        directory: made, for its owner alone, if it is not there.
        name: for people.
        days: until it expires.
        force: replace files that are there.
        now: the time of making; the clock's if None.

    Raises:
        ConfigurationError: the name or the days will not do, or a file is there already.
    """
    files = AuthorityFiles.in_directory(directory)
    if not 1 <= len(name) <= 64 or not name.isprintable():
        raise ConfigurationError("the authority's name must have 1 to 64 printable characters")
    _prepare(directory, (files.certificate, files.key), force=force)
    key = ec.generate_private_key(ec.SECP256R1())
    start = now or datetime.now(UTC)
    certificate = (
        _builder(_named(name), _named(name), key.public_key(), start, _end(start, days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(_key_identifier(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(files.key, _key_pem(key), mode=0o600)
    _write(files.certificate, certificate.public_bytes(Encoding.PEM), mode=0o644)
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
    """A key and a certificate for one party, with the authority's certificate beside them.

    Args:
        authority: who issues it.
        party_name: as in both configurations; the certificate's common name.
        names_and_addresses: host names and IP addresses at which the party can be reached, if any.
        directory: made, for its owner alone, if it is not there.
        days: until it expires; not later than the authority does.
        force: replace files that are there.
        now: the time of making; the clock's if None.

    Raises:
        ConfigurationError: a name, an address or the days will not do, a file is there already, or
            the authority cannot be used.
    """
    files = PartyFiles.in_directory(directory, party_name)
    alternative_names = _alternative_names(party_name, names_and_addresses)
    start = now or datetime.now(UTC)
    issuer, issuer_key = _load_authority(authority, start)
    _prepare(directory, (files.certificate, files.key), force=force)
    _prepare_copy(authority.certificate, files.authority, force=force)
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(_end(start, days), issuer.not_valid_after_utc)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        _builder(_named(party_name), issuer.subject, key.public_key(), start, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternative_names), critical=False)
        .add_extension(_key_identifier(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .sign(issuer_key, hashes.SHA256())
    )
    _write(files.key, _key_pem(key), mode=0o600)
    _write(files.certificate, certificate.public_bytes(Encoding.PEM), mode=0o644)
    _write(files.authority, authority.certificate.read_bytes(), mode=0o644)
    return files


def inspect(
    authority: Path,
    certificate: Path,
    key: Path,
    own_name: str,
    *,
    now: datetime | None = None,
) -> CertificateReport:
    """Everything that can be wrong with a party's three files, found at once."""
    problems: list[str] = []
    issuers = _collect(problems, _load_certificates, authority)
    chain = _collect(problems, _load_certificates, certificate)
    own_key = _collect(problems, _load_private_key, key)
    problems += _exposure(key)
    if chain is None:
        return CertificateReport(tuple(problems))
    leaf = chain[0]
    if own_key is not None and _public(own_key.public_key()) != _public(leaf.public_key()):
        problems.append(
            f"{key}: is not the key of {certificate}. Use the two files that were made together"
        )
    if issuers is not None and not _leads_to(chain, issuers):
        problems.append(
            f"{certificate}: was not issued by the authority in {authority}. Both parties need "
            "certificates of the same authority"
        )
    time = now or datetime.now(UTC)
    problems += _validity(leaf, certificate, time)
    for issuer in issuers or []:
        problems += _validity(issuer, authority, time)
    if (name := _common_name(leaf)) != own_name:
        problems.append(
            f"{certificate}: is that of {name!r}, and this party is {own_name!r}. Use this party's "
            "own certificate, or correct its name in the configuration"
        )
    expires = leaf.not_valid_after_utc
    return CertificateReport(
        problems=tuple(problems),
        warnings=tuple(_running_out(leaf, certificate, time)),
        common_name=name,
        expires=expires,
        days_left=(expires - time).days,
    )


# -- making ----------------------------------------------------------------------------------------


def _named(name: str) -> x509.Name:
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
        raise ConfigurationError(f"a certificate is valid for 1 to 36500 days, not {days}")
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


def _alternative_names(
    party_name: str, names_and_addresses: Iterable[str]
) -> list[x509.GeneralName]:
    if not _PARTY_NAME.fullmatch(party_name):
        raise ConfigurationError(
            f"the party name {party_name!r} must be 1 to 63 lower-case letters, digits and hyphens"
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
    certificate = _load_certificates(files.certificate)[0]
    key = _load_private_key(files.key)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or _public(key.public_key()) != _public(
        certificate.public_key()
    ):
        raise ConfigurationError(f"{files.key}: is not the key of {files.certificate}")
    if found := _exposure(files.key) + _validity(certificate, files.certificate, time):
        raise ConfigurationError("; ".join(found))
    return certificate, key


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


# -- files -----------------------------------------------------------------------------------------


def _prepare(directory: Path, files: Iterable[Path], *, force: bool) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = directory.stat().st_mode
    except OSError as error:
        raise ConfigurationError(f"{directory}: cannot be made: {error.strerror}") from None
    if mode & 0o022:
        raise ConfigurationError(
            f"{directory}: others can write to it, and could replace a key. Run chmod 700 on it"
        )
    if force:
        return
    if there := [str(file) for file in files if file.exists()]:
        raise ConfigurationError(f"{', '.join(there)}: there already; replaced only on request")


def _prepare_copy(source: Path, copy: Path, *, force: bool) -> None:
    if not force and copy.exists() and copy.read_bytes() != source.read_bytes():
        raise ConfigurationError(
            f"{copy}: is of another authority than {source}; replaced only on request"
        )


def _write(path: Path, content: bytes, *, mode: int) -> None:
    """Whole or not at all, and never readable to others even for a moment."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be written: {error.strerror}") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: is not there. Check the path") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None


def _load_certificates(path: Path) -> list[x509.Certificate]:
    content = _read(path)
    try:
        found = x509.load_pem_x509_certificates(content)
        for each in found:  # what follows needs these, which are not looked at before
            _ = each.public_key(), each.subject, each.issuer, each.extensions
            _ = each.not_valid_before_utc, each.not_valid_after_utc
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        raise ConfigurationError(f"{path}: holds no certificate in PEM format") from None
    return found


def _load_private_key(path: Path) -> PrivateKeyTypes:
    try:
        return load_pem_private_key(_read(path), password=None)
    except TypeError:
        raise ConfigurationError(
            f"{path}: is encrypted, and nobody is there to type its passphrase. Store it without "
            "one, readable to its owner alone"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigurationError(f"{path}: holds no private key in PEM format") from None


# -- checking --------------------------------------------------------------------------------------


def _collect(problems: list[str], load: Callable[[Path], T], path: Path) -> T | None:
    try:
        return load(path)
    except ConfigurationError as error:
        problems.append(error.reason)
        return None


def _exposure(key: Path) -> list[str]:
    """Who owns it does not matter, for whoever is not the owner could not read it then."""
    try:
        exposed = key.stat().st_mode & 0o077
    except OSError:
        return []  # said already: it cannot be read
    return [f"{key}: others can read this key. Run chmod 600 on it"] if exposed else []


def _leads_to(chain: list[x509.Certificate], issuers: list[x509.Certificate]) -> bool:
    """Whether each certificate of the chain issued the one before it, and an issuer the last."""
    return all(_issued(above, below) for below, above in pairwise(chain)) and any(
        _issued(issuer, chain[-1]) or issuer == chain[-1] for issuer in issuers
    )


def _issued(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _validity(certificate: x509.Certificate, path: Path, time: datetime) -> list[str]:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if time > end:
        return [f"{path}: expired on {end:%Y-%m-%d %H:%M} UTC. Get a new one"]
    if time < start:
        return [
            f"{path}: is valid only from {start:%Y-%m-%d %H:%M} UTC on. Check this machine's clock"
        ]
    return []


def _running_out(certificate: x509.Certificate, path: Path, time: datetime) -> list[str]:
    end = certificate.not_valid_after_utc
    if not time <= end < time + timedelta(days=RUNNING_OUT):
        return []
    return [f"{path}: expires on {end:%Y-%m-%d}, in {(end - time).days} days. Get a new one soon"]


def _common_name(certificate: x509.Certificate) -> str:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return cast("str", names[0].value) if names else ""


def _public(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
