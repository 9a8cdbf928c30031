"""Signatures with the key of a TLS certificate, and the check of the certificate.

Every signed text starts with a prefix of its own, so that a signature of evidence is never valid
for anything else, and nothing else for evidence. TLS 1.3 signs texts that start with 64 spaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey, Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from florist.common.core.errors import ConfigurationError
from florist.common.transport.certificate_files import (
    load_certificates,
    load_private_key,
    public_bytes,
)
from florist.common.transport.peer_identity import CertificateIdentity, common_names, key_digest

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

#: What is signed: the record of both parties, and what a party adds to it for itself.
RECORD_PREFIX = b"florist/evidence/1\0record\0"
LOCAL_PREFIX = b"florist/evidence/1\0local\0"

#: No certificate and its intermediates take more.
MAXIMUM_PEM_BYTES = 64 * 1024
_LONGEST_CHAIN = 8

_RSA_PADDING = padding.PSS(padding.MGF1(SHA256()), padding.PSS.DIGEST_LENGTH)


class UntrustedCertificate(Exception):  # noqa: N818 - the verdict of a check
    """Why a certificate or signature is not that of a party."""


@dataclass(frozen=True, slots=True, repr=False)
class Signer:
    """A party's certificate, with its intermediates, and its key."""

    chain: CertificateChain
    key: PrivateKeyTypes

    @classmethod
    def load(cls, certificate: Path, key: Path) -> Self:
        """Read the files.

        Raises:
            ConfigurationError: they cannot be used for signatures.
        """
        chain = CertificateChain(tuple(load_certificates(certificate)))
        private = load_private_key(key)
        if public_bytes(private.public_key()) != public_bytes(chain.leaf.public_key()):
            raise ConfigurationError(f"{key}: is not the key of {certificate}")
        return cls(chain, private)

    def sign(self, prefix: bytes, content: bytes) -> bytes:
        """Sign a text under a prefix.

        Raises:
            ConfigurationError: keys of this type cannot sign.
        """
        data = prefix + content
        match self.key:
            case ec.EllipticCurvePrivateKey():
                return self.key.sign(data, ec.ECDSA(SHA256()))
            case rsa.RSAPrivateKey():
                return self.key.sign(data, _RSA_PADDING, SHA256())
            case Ed25519PrivateKey() | Ed448PrivateKey():
                return self.key.sign(data)
            case _:
                raise ConfigurationError(
                    "network.tls.key: evidence can be signed with EC, RSA and Ed25519 keys only"
                )


@dataclass(frozen=True, slots=True)
class CertificateChain:
    """A party's certificate, followed by its intermediates, if any."""

    certificates: tuple[x509.Certificate, ...]

    @classmethod
    def from_pem(cls, pem: bytes) -> Self:
        """Read untrusted PEM.

        Raises:
            UntrustedCertificate: it is not a chain of certificates.
        """
        if len(pem) > MAXIMUM_PEM_BYTES:
            raise UntrustedCertificate("the certificates are too long")
        try:
            found = tuple(x509.load_pem_x509_certificates(pem))
            for each in found:  # parsed lazily: find errors here
                _ = each.public_key(), each.subject, each.issuer, each.extensions
                _ = each.not_valid_before_utc, each.not_valid_after_utc
        except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
            raise UntrustedCertificate("there is no certificate in PEM format") from None
        if not 1 <= len(found) <= _LONGEST_CHAIN:
            raise UntrustedCertificate(f"there are {len(found)} certificates")
        return cls(found)

    @property
    def leaf(self) -> x509.Certificate:
        """The certificate of the party itself."""
        return self.certificates[0]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the party's certificate, in hexadecimal."""
        return sha256(self.leaf.public_bytes(Encoding.DER)).hexdigest()

    def to_pem(self) -> bytes:
        return b"".join(each.public_bytes(Encoding.PEM) for each in self.certificates)

    def require(
        self,
        name: str,
        authorities: list[x509.Certificate],
        time: datetime,
        key_sha256: str | None = None,
    ) -> None:
        """Check that one of the authorities certifies the party of this name at this time.

        Raises:
            UntrustedCertificate: says why not.
        """
        identity = CertificateIdentity(common_names(self.leaf), key_digest(self.leaf.public_key()))
        if (problem := identity.problem(name, key_sha256)) is not None:
            raise UntrustedCertificate(problem)
        for each in self._to_authority(authorities):
            if not each.not_valid_before_utc <= time <= each.not_valid_after_utc:
                raise UntrustedCertificate(
                    f"a certificate is valid from {each.not_valid_before_utc:%Y-%m-%d %H:%M} to "
                    f"{each.not_valid_after_utc:%Y-%m-%d %H:%M} UTC, but not at the time of "
                    f"signing, {time:%Y-%m-%d %H:%M} UTC"
                )

    def _to_authority(self, authorities: list[x509.Certificate]) -> tuple[x509.Certificate, ...]:
        """Return the chain with the authority that issued its last certificate."""
        if self.leaf in authorities:
            return (self.leaf,)  # trusted by itself
        for authority in authorities:
            whole = (*self.certificates, authority)
            if all(
                _issued(above, below, depth) for depth, (below, above) in enumerate(pairwise(whole))
            ):
                return whole
        raise UntrustedCertificate("the certificate was not issued by the authority")

    def verify(self, signature: bytes, prefix: bytes, content: bytes) -> None:
        """Check a signature with the key of the party's certificate.

        Raises:
            UntrustedCertificate: it is wrong, or the key is of a type that cannot sign.
        """
        data, key = prefix + content, self.leaf.public_key()
        try:
            match key:
                case ec.EllipticCurvePublicKey():
                    key.verify(signature, data, ec.ECDSA(SHA256()))
                case rsa.RSAPublicKey():
                    key.verify(signature, data, _RSA_PADDING, SHA256())
                case Ed25519PublicKey() | Ed448PublicKey():
                    key.verify(signature, data)
                case _:
                    raise UntrustedCertificate("keys of this type cannot sign evidence")
        except (InvalidSignature, ValueError):
            raise UntrustedCertificate("the signature is wrong") from None


def _issued(issuer: x509.Certificate, certificate: x509.Certificate, depth: int) -> bool:
    """Whether `issuer` has issued this certificate, and may, `depth` certificates above a party."""
    try:
        certificate.verify_directly_issued_by(issuer)
        constraints = issuer.extensions.get_extension_for_class(x509.BasicConstraints).value
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.ExtensionNotFound):
        return False
    longest = constraints.path_length
    if not constraints.ca or (longest is not None and longest < depth):
        return False
    try:
        return issuer.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound:
        return True
