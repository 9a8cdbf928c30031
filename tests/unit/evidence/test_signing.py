"""Signatures by every type of key, and certificates that are not those of a party."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa
from cryptography.x509.oid import NameOID

from florist.common.core.errors import ConfigurationError
from florist.common.evidence.signing import (
    LOCAL_PREFIX,
    RECORD_PREFIX,
    CertificateChain,
    Signer,
    UntrustedCertificate,
)
from tests.support.certificates import ACTIVE, PASSIVE

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.transport.credentials import Credentials
    from tests.support.certificates import Trust

NOW = datetime.now(UTC)
KEYS: dict[str, Callable[[], Any]] = {
    "P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "P-384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "RSA": lambda: rsa.generate_private_key(65537, 2048),
    "Ed25519": ed25519.Ed25519PrivateKey.generate,
    "Ed448": ed448.Ed448PrivateKey.generate,
}


def made(
    name: str,
    key: Any,  # noqa: ANN401 - keys of all types
    issuer: tuple[x509.Certificate, Any] | None = None,
    *,
    ca: bool | None = None,
    length: int | None = None,
    signs: bool | None = None,
) -> x509.Certificate:
    """A certificate of `key`, issued by another one or by itself."""

    def subject(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    builder = (
        x509.CertificateBuilder()
        .subject_name(subject(name))
        .issuer_name(issuer[0].subject if issuer else subject(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=1))
    )
    if ca is not None:
        constraints = x509.BasicConstraints(ca=ca, path_length=length)
        builder = builder.add_extension(constraints, critical=True)
    if signs is not None:
        others = dict.fromkeys(
            (
                *("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
                *("crl_sign", "encipher_only", "decipher_only"),
            ),
            False,
        )
        usage = x509.KeyUsage(digital_signature=True, key_cert_sign=signs, **others)
        builder = builder.add_extension(usage, critical=True)
    signing = issuer[1] if issuer else key
    edwards = isinstance(signing, ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey)
    return builder.sign(signing, None if edwards else hashes.SHA256())


@pytest.mark.parametrize("name", KEYS)
def test_every_type_of_key_signs(name: str) -> None:
    key = KEYS[name]()
    chain = CertificateChain((made("bank", key),))
    signature = Signer(chain, key).sign(RECORD_PREFIX, b"record")
    chain.verify(signature, RECORD_PREFIX, b"record")
    other = CertificateChain((made("bank", KEYS[name]()),))
    for wrong, prefix, content, by in (
        (signature, LOCAL_PREFIX, b"record", chain),
        (signature, RECORD_PREFIX, b"Record", chain),
        (signature[:-1] + bytes([signature[-1] ^ 1]), RECORD_PREFIX, b"record", chain),
        (b"", RECORD_PREFIX, b"record", chain),
        (signature, RECORD_PREFIX, b"record", other),
    ):
        with pytest.raises(UntrustedCertificate, match="signature is wrong"):
            by.verify(wrong, prefix, content)


def test_other_keys_do_not_sign() -> None:
    key = dsa.generate_private_key(1024)
    chain = CertificateChain((made("bank", key),))
    with pytest.raises(ConfigurationError, match="EC, RSA and Ed25519"):
        Signer(chain, key).sign(RECORD_PREFIX, b"record")
    with pytest.raises(UntrustedCertificate, match="cannot sign"):
        chain.verify(b"x", RECORD_PREFIX, b"record")


def test_the_signed_bytes_are_never_those_of_tls() -> None:
    """TLS 1.3 signs 64 spaces and then a context; older versions sign hashes of fixed sizes."""
    assert RECORD_PREFIX.startswith(b"florist/evidence/1\0")
    assert LOCAL_PREFIX.startswith(b"florist/evidence/1\0")


def test_files_of_a_party(trust: Trust, active: Credentials, passive: Credentials) -> None:
    signer = Signer.load(active.certificate, active.key)
    authorities = [x509.load_pem_x509_certificate(active.authority.read_bytes())]
    now = datetime.now(UTC)  # the files may have been made long after this module was imported
    signer.chain.require(ACTIVE, authorities, now)
    assert CertificateChain.from_pem(signer.chain.to_pem()) == signer.chain
    with pytest.raises(ConfigurationError, match="is not the key"):
        Signer.load(active.certificate, passive.key)
    with pytest.raises(UntrustedCertificate, match="belongs to"):
        signer.chain.require(PASSIVE, authorities, now)
    with pytest.raises(UntrustedCertificate, match="SHA-256 of its public key"):
        signer.chain.require(ACTIVE, authorities, now, "00" * 32)
    for time in (now - timedelta(days=50), now + timedelta(days=50)):
        with pytest.raises(UntrustedCertificate, match="not at the time of signing"):
            signer.chain.require(ACTIVE, authorities, time)
    with pytest.raises(UntrustedCertificate, match="not issued by the authority"):
        signer.chain.require(ACTIVE, [], now)


def test_a_secret_key_in_the_same_file_is_not_sent(active: Credentials) -> None:
    signer = Signer.load(active.certificate, active.key)
    both = active.certificate.read_bytes() + active.key.read_bytes()
    assert b"PRIVATE" not in CertificateChain.from_pem(both).to_pem()
    assert "PRIVATE" not in repr(signer)


def test_intermediate_certificates() -> None:
    top, middle, leaf = (KEYS["P-256"]() for _ in range(3))
    authority = made("authority", top, ca=True, signs=True)
    between = made("between", middle, (authority, top), ca=True, length=0, signs=True)
    party = made("bank", leaf, (between, middle))
    CertificateChain((party, between)).require("bank", [authority], NOW)
    CertificateChain((party,)).require("bank", [between], NOW)
    for chain in ((party,), (party, authority), (between, party)):
        with pytest.raises(UntrustedCertificate):
            CertificateChain(chain).require("bank", [authority], NOW)


@pytest.mark.parametrize(
    ("ca", "length", "signs"),
    [(False, None, None), (None, None, True), (True, None, False)],
)
def test_a_party_cannot_issue_certificates(
    *, ca: bool | None, length: int | None, signs: bool | None
) -> None:
    """A party that makes a certificate for its peer with its own key is not believed."""
    top, own, forged = (KEYS["P-256"]() for _ in range(3))
    authority = made("authority", top, ca=True)
    party = made("telco", own, (authority, top), ca=ca, length=length, signs=signs)
    with pytest.raises(UntrustedCertificate, match="not issued"):
        CertificateChain((made("bank", forged, (party, own)), party)).require(
            "bank", [authority], NOW
        )


def test_an_authority_with_a_path_length() -> None:
    top, middle, leaf = (KEYS["P-256"]() for _ in range(3))
    authority = made("authority", top, ca=True, length=0)
    between = made("between", middle, (authority, top), ca=True)
    chain = CertificateChain((made("bank", leaf, (between, middle)), between))
    with pytest.raises(UntrustedCertificate, match="not issued"):
        chain.require("bank", [authority], NOW)


def test_malformed_certificates() -> None:
    pem = CertificateChain((made("bank", KEYS["P-256"]()),)).to_pem()
    for bad in (b"", b"PEM", pem[:200], pem * 9, b"x" * 70_000):
        with pytest.raises(UntrustedCertificate):
            CertificateChain.from_pem(bad)
