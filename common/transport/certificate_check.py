"""Checks a party's certificate files before they are used."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from cryptography.exceptions import InvalidSignature

from florist.common.core.errors import ConfigurationError
from florist.common.transport.certificate_files import (
    key_exposure,
    load_certificates,
    load_private_key,
    public_bytes,
)
from florist.common.transport.peer_identity import common_names, key_digest, shown_names

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cryptography import x509

T = TypeVar("T")

#: Days before expiry from which a certificate is reported as expiring soon.
EXPIRES_SOON = 30


@dataclass(frozen=True, slots=True)
class CertificateReport:
    """The result of `check_certificates`. Each problem names its file and the fix."""

    problems: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    common_name: str = ""
    expires: datetime | None = None
    days_left: int | None = None
    #: SHA-256 of this party's public key, for the peer's `network.tls.peer_key_sha256`.
    key_sha256: str = ""

    def require(self) -> None:
        """Raise if there is a problem.

        Raises:
            ConfigurationError: lists all problems.
        """
        if self.problems:
            raise ConfigurationError("; ".join(self.problems))


def check_certificates(
    authority: Path,
    certificate: Path,
    key: Path,
    own_name: str,
    *,
    now: datetime | None = None,
) -> CertificateReport:
    """Find all problems of a party's three files at once.

    Args:
        authority: the authority's certificate.
        certificate: this party's certificate, and intermediate certificates if any.
        key: the key of this party's certificate.
        own_name: the name of this party in its configuration.
        now: the time to check against; None means the current time.
    """
    problems: list[str] = []
    issuers = _collect(problems, load_certificates, authority)
    chain = _collect(problems, load_certificates, certificate)
    own_key = _collect(problems, load_private_key, key)
    problems += key_exposure(key)
    if chain is None:
        return CertificateReport(tuple(problems))
    leaf = chain[0]
    if own_key is not None and public_bytes(own_key.public_key()) != public_bytes(
        leaf.public_key()
    ):
        problems.append(
            f"{key}: is not the key of {certificate}; use the two files that were created together"
        )
    if issuers is not None and not _leads_to(chain, issuers):
        problems.append(
            f"{certificate}: was not issued by the authority in {authority}; both parties need "
            "certificates of the same authority"
        )
    time = now or datetime.now(UTC)
    problems += validity_problems(leaf, certificate, time)
    for issuer in issuers or []:
        problems += validity_problems(issuer, authority, time)
    names = common_names(leaf)
    if names != (own_name.encode(),):
        problems.append(
            f"{certificate}: belongs to {shown_names(names)}, but this party is "
            f"{own_name!r}; use this party's own certificate, or correct party.name in the "
            "configuration"
        )
    expires = leaf.not_valid_after_utc
    return CertificateReport(
        problems=tuple(problems),
        warnings=tuple(_expiry_warnings(leaf, certificate, time)),
        common_name=names[0].decode() if names else "",
        expires=expires,
        days_left=(expires - time).days,
        key_sha256=key_digest(leaf.public_key()),
    )


def validity_problems(certificate: x509.Certificate, path: Path, time: datetime) -> list[str]:
    """A problem if a certificate is expired or not valid yet."""
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if time > end:
        return [f"{path}: expired on {end:%Y-%m-%d %H:%M} UTC; get a new certificate"]
    if time < start:
        return [f"{path}: is not valid before {start:%Y-%m-%d %H:%M} UTC; check the system clock"]
    return []


def _collect(problems: list[str], load: Callable[[Path], T], path: Path) -> T | None:
    try:
        return load(path)
    except ConfigurationError as error:
        problems.append(error.reason)
        return None


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


def _expiry_warnings(certificate: x509.Certificate, path: Path, time: datetime) -> list[str]:
    end = certificate.not_valid_after_utc
    if not time <= end < time + timedelta(days=EXPIRES_SOON):
        return []
    days = (end - time).days
    return [f"{path}: expires on {end:%Y-%m-%d}, in {days} days; get a new certificate soon"]
