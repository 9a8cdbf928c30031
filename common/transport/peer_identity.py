"""Decides whether a certificate belongs to the configured peer.

TLS has verified by then that the certificate was issued by the trusted authority and is valid now.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509.oid import NameOID

from florist.common.transport.certificate_files import public_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

#: Characters of a foreign name that a message shows.
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class CertificateIdentity:
    """The parts of a certificate that identify its owner."""

    #: All common names of the subject, as bytes.
    common_names: tuple[bytes, ...]
    #: SHA-256 of the SubjectPublicKeyInfo, in lower-case hex.
    key_sha256: str

    def problem(self, peer_name: str, key_sha256: str | None) -> str | None:
        """Why this is not the peer's certificate; None if it is.

        The name is compared byte by byte, and there must be exactly one.

        Args:
            peer_name: the required common name.
            key_sha256: the required digest of the public key, in lower-case hex; None admits any.
        """
        if self.common_names != (peer_name.encode(),):
            return f"the certificate belongs to {shown_names(self.common_names)}"
        if key_sha256 is not None and self.key_sha256 != key_sha256:
            return (
                f"the certificate belongs to {peer_name!r}, but the SHA-256 of its public key is "
                f"{self.key_sha256}"
            )
        return None


def shown_names(names: Sequence[bytes]) -> str:
    """Common names for a message; characters other than printable ASCII are escaped."""
    texts = [ascii(name.decode(errors="replace")[:_SHOWN]) for name in names[:4]]
    return " and ".join(texts) or "nobody"


def key_digest(key: PublicKeyTypes) -> str:
    """SHA-256 of the SubjectPublicKeyInfo of a public key, in lower-case hex."""
    return hashlib.sha256(public_bytes(key)).hexdigest()


def common_names(certificate: x509.Certificate) -> tuple[bytes, ...]:
    """All common names of a certificate's subject, in UTF-8."""
    values = (
        name.value for name in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    )
    return tuple(value.encode() if isinstance(value, str) else value for value in values)


@lru_cache(maxsize=16)
def read_identity(pem: bytes) -> CertificateIdentity:
    """The identity in a PEM certificate.

    A certificate that cannot be parsed has no common names and therefore never is the peer's.
    """
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        return CertificateIdentity(common_names(certificate), key_digest(certificate.public_key()))
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        return CertificateIdentity((), "")
