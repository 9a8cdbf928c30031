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


class NotValidNow(ConfigurationError):  # noqa: N818 - it reads as what is wrong
    """This party's certificates have expired or are not valid yet, or its clock is wrong."""

    told_to_peer = "its certificate is not valid at the time that its clock shows"


@dataclass(frozen=True, slots=True)
class CertificateReport:
    """The result of `check_certificates`. Each problem names its file and the fix."""

    problems: tuple[str, ...]
    #: Those of the problems that another time of this machine's clock would solve.
    problems_of_time: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    common_name: str = ""
    expires: datetime | None = None
    days_left: int | None = None
    #: SHA-256 of this party's public key, for the peer's `network.tls.peer_key_sha256`.
    key_sha256: str = ""

    def require(self, *, at_any_time: bool = False) -> None:
        """Raise if there is a problem; with `at_any_time`, if there is one besides the time.

        Raises:
            ConfigurationError: lists all problems.
            NotValidNow: the only problem is the time.
        """
        has_others = len(self.problems) > len(self.problems_of_time)
        if has_others:
            raise ConfigurationError("; ".join(self.problems))
        if self.problems and not at_any_time:
            raise NotValidNow("; ".join(self.problems))


def check_certificates(
    authority: Path,
    certificate: Path,
    key: Path,
    own_name: str,
    *,
    peer_authority: Path | None = None,
    now: datetime | None = None,
) -> CertificateReport:
    """Find all problems of a party's files at once.

    Args:
        authority: the certificate of the authority that issued this party's certificate.
        certificate: this party's certificate, and intermediate certificates if any.
        key: the key of this party's certificate.
        own_name: the name of this party in its configuration.
        peer_authority: the certificate of the peer's authority, if it is another.
        now: the time to check against; None means the current time.
    """
    problems: list[str] = []
    of_time: list[str] = []
    issuers = _collect(problems, load_certificates, authority)
    chain = _collect(problems, load_certificates, certificate)
    own_key = _collect(problems, load_private_key, key)
    problems += key_exposure(key)
    time = now or datetime.now(UTC)
    if peer_authority is not None:
        for trusted in _collect(problems, load_certificates, peer_authority) or []:
            of_time += validity_problems(trusted, peer_authority, time)
    if chain is None:
        return CertificateReport((*problems, *of_time), tuple(of_time))
    leaf = chain[0]
    if own_key is not None and public_bytes(own_key.public_key()) != public_bytes(
        leaf.public_key()
    ):
        problems.append(
            f"{key}: is not the key of {certificate}; use the two files that were created together"
        )
    if issuers is not None and not _leads_to(chain, issuers):
        problems.append(
            f"{certificate}: was not issued by the authority in {authority}; network.tls.authority "
            "must be the issuer of this party's certificate. If the peer has another authority, "
            "set network.tls.peer_authority to it"
        )
    of_time += validity_problems(leaf, certificate, time)
    for issuer in issuers or []:
        of_time += validity_problems(issuer, authority, time)
    names = common_names(leaf)
    if names != (own_name.encode(),):
        problems.append(
            f"{certificate}: belongs to {shown_names(names)}, but this party is "
            f"{own_name!r}; use this party's own certificate, or correct party.name in the "
            "configuration"
        )
    expires = leaf.not_valid_after_utc
    return CertificateReport(
        problems=(*problems, *of_time),
        problems_of_time=tuple(of_time),
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
        problem = f"expired on {end:%Y-%m-%d %H:%M} UTC; get a new certificate, or correct"
    elif time < start:
        problem = f"is not valid before {start:%Y-%m-%d %H:%M} UTC; correct"
    else:
        return []
    return [f"{path}: {problem} this machine's clock, which shows {time:%Y-%m-%d %H:%M} UTC"]


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
