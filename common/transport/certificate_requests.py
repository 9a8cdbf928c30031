"""Certificate signing requests: a party creates its own key, and an authority signs it unseen.

A request contains the party's name, its host names and its public key. Nothing else in it counts:
the authority alone decides what the certificate permits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from florist.common.core.errors import ConfigurationError
from florist.common.transport.certificate_files import (
    key_exposure,
    load_private_key,
    prepare_directory,
    write_file,
)
from florist.common.transport.certificates import (
    AuthorityFiles,
    PartyFiles,
    certify,
    check_names,
    key_pem,
    named,
    new_key,
    party_names,
)
from florist.common.transport.peer_identity import key_digest
from florist.common.transport.peer_unavailable import unreadable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """A checked request: whoever made it has the private key."""

    party_name: str
    #: The host names and IP addresses besides the party's name.
    names_and_addresses: tuple[str, ...]
    public_key: ec.EllipticCurvePublicKey

    @property
    def key_sha256(self) -> str:
        """The SHA-256 of the public key, for comparison and for `network.tls.peer_key_sha256`."""
        return key_digest(self.public_key)


@dataclass(frozen=True, slots=True)
class RequestFiles:
    """A party's new request and its key; only the request is sent to the authority."""

    request: Path
    key: Path
    key_sha256: str


def create_request(
    directory: Path,
    party_name: str,
    names_and_addresses: Sequence[str] = (),
    *,
    keep_key: bool = False,
    force: bool = False,
) -> RequestFiles:
    """Create a key that stays here and a request that the authority signs.

    Args:
        directory: created, accessible only to its owner, if it does not exist.
        party_name: the party's name in both configurations.
        names_and_addresses: host names and IP addresses of the party, if any.
        keep_key: use the existing key, to renew a certificate.
        force: replace an existing key and request.

    Raises:
        ConfigurationError: a name is invalid, a file exists already, or the existing key cannot be
            used.
    """
    names = party_names(party_name, names_and_addresses)
    key_file = PartyFiles.in_directory(directory, party_name).key
    request_file = directory / f"{party_name}.csr"
    prepare_directory(directory, () if keep_key else (key_file, request_file), force=force)
    key = _existing_key(key_file) if keep_key else new_key()
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(named(party_name))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    if not keep_key:
        write_file(key_file, key_pem(key), mode=0o600)
    write_file(request_file, request.public_bytes(Encoding.PEM), mode=0o644)
    return RequestFiles(request_file, key_file, key_digest(key.public_key()))


def _existing_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = load_private_key(path)
    if found := key_exposure(path):
        raise ConfigurationError("; ".join(found))
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigurationError(f"{path}: is not a key that `florist certs` has created")
    return key


def load_request(path: Path) -> CertificateRequest:
    """Read and check a request.

    Raises:
        ConfigurationError: it cannot be read, its signature is wrong, or its name or key is not
            acceptable.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    if b"PRIVATE KEY" in content:
        raise ConfigurationError(
            f"{path}: contains a private key, which must never be sent; its owner must create a "
            "new key and send only the .csr file"
        )
    try:
        request = x509.load_pem_x509_csr(content)
        common_names = request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        is_signed, key = request.is_signature_valid, request.public_key()
        listed = _listed(request)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        raise ConfigurationError(
            f"{path}: contains no certificate signing request in PEM format"
        ) from None
    if not is_signed:
        raise ConfigurationError(f"{path}: its signature is wrong; ask for the file again")
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(
        key.curve, ec.SECP256R1 | ec.SECP384R1
    ):
        raise ConfigurationError(
            f"{path}: its key must be on the curve P-256 or P-384, as `florist certs request` "
            "creates it"
        )
    if len(common_names) != 1 or not isinstance(name := common_names[0].value, str):
        raise ConfigurationError(f"{path}: must have exactly one common name, the party's name")
    party_names(name, listed)  # raises for a bad name
    return CertificateRequest(name, tuple(each for each in listed if each != name), key)


def _listed(request: x509.CertificateSigningRequest) -> list[str]:
    try:
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    hosts = names.get_values_for_type(x509.DNSName)
    return [*hosts, *map(str, names.get_values_for_type(x509.IPAddress))]


def sign_request(
    authority: AuthorityFiles,
    request: CertificateRequest,
    days: int,
    *,
    force: bool = False,
    now: datetime | None = None,
) -> Path:
    """Issue the certificate of a request, next to the authority's files.

    Compare the request's `key_sha256` with its owner first, by telephone or the like.

    Args:
        authority: the issuing authority.
        request: the checked request.
        days: days until the certificate expires, at most those of the authority.
        force: replace an earlier certificate of this party.
        now: the time of creation; None means the current time.

    Raises:
        ConfigurationError: there is a certificate of this party already, the request lists the name
            of another party, or the authority cannot be used.
    """
    directory = authority.certificate.parent
    check_names(directory, [request.party_name], request.names_and_addresses)
    target = PartyFiles.in_directory(directory, request.party_name).certificate
    prepare_directory(directory, (target,), force=force)
    names = party_names(request.party_name, request.names_and_addresses)
    certificate = certify(authority, request.party_name, names, request.public_key, days, now)
    write_file(target, certificate, mode=0o644)
    return target
