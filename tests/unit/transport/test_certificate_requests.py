"""Requests for certificates: what they hold, what the authority refuses, what it never grants."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from florist.common.core.errors import ConfigurationError
from florist.common.transport.certificate_check import check_certificates
from florist.common.transport.certificate_requests import (
    create_request,
    load_request,
    sign_request,
)
from florist.common.transport.certificates import AuthorityFiles, create_authority, issue

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes


@pytest.fixture
def authority(tmp_path: Path) -> AuthorityFiles:
    return create_authority(tmp_path / "authority", "Test authority", 1000)


def test_a_signed_request_gives_a_usable_certificate(
    authority: AuthorityFiles, tmp_path: Path
) -> None:
    made = create_request(tmp_path / "bank", "bank", ["bank.example", "192.0.2.1"])
    assert stat.S_IMODE(made.key.stat().st_mode) == 0o600
    assert b"PRIVATE" not in made.request.read_bytes()
    request = load_request(made.request)
    assert request.key_sha256 == made.key_sha256
    assert request.names_and_addresses == ("bank.example", "192.0.2.1")
    certificate = sign_request(authority, request, 90)
    report = check_certificates(authority.certificate, certificate, made.key, "bank")
    assert not report.problems
    assert report.key_sha256 == made.key_sha256
    assert not list(authority.key.parent.glob("bank.key"))
    with pytest.raises(ConfigurationError, match="--force"):
        sign_request(authority, request, 90)


def test_a_renewal_keeps_the_key(authority: AuthorityFiles, tmp_path: Path) -> None:
    first = create_request(tmp_path / "bank", "bank")
    key = first.key.read_bytes()
    with pytest.raises(ConfigurationError, match="exists already"):
        create_request(tmp_path / "bank", "bank")
    again = create_request(tmp_path / "bank", "bank", ["other.example"], keep_key=True)
    assert again.key.read_bytes() == key
    assert again.key_sha256 == first.key_sha256
    assert load_request(again.request).names_and_addresses == ("other.example",)
    assert create_request(tmp_path / "bank", "bank", force=True).key_sha256 != first.key_sha256
    sign_request(authority, load_request(again.request), 10)


def test_keeping_a_key_needs_a_private_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        create_request(tmp_path / "bank", "bank", keep_key=True)
    create_request(tmp_path / "bank", "bank").key.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        create_request(tmp_path / "bank", "bank", keep_key=True)


def forged(
    path: Path,
    *names: str,
    key: CertificateIssuerPrivateKeyTypes | None = None,
    extension: x509.ExtensionType | None = None,
) -> Path:
    """A request that `create_request` would not create."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    if extension is not None:
        builder = builder.add_extension(extension, critical=True)
    key = key or ec.generate_private_key(ec.SECP256R1())
    digest = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    path.write_bytes(builder.sign(key, digest).public_bytes(Encoding.PEM))
    return path


def test_the_authority_alone_decides_what_a_certificate_permits(
    authority: AuthorityFiles, tmp_path: Path
) -> None:
    wants_more = x509.BasicConstraints(ca=True, path_length=None)
    request = load_request(forged(tmp_path / "x.csr", "bank", extension=wants_more))
    signed = sign_request(authority, request, 10)
    found = x509.load_pem_x509_certificate(signed.read_bytes())
    assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not found.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csr"
    with pytest.raises(ConfigurationError, match=r"x\.csr"):
        load_request(path)
    for names in (("Bank",), ("a", "b"), ()):
        with pytest.raises(ConfigurationError, match="name"):
            load_request(forged(path, *names))
    for key in (ed25519.Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP256K1())):
        with pytest.raises(ConfigurationError, match="P-256"):
            load_request(forged(path, "bank", key=key))
    path.write_bytes(b"nothing")
    with pytest.raises(ConfigurationError, match="no certificate signing request"):
        load_request(path)
    with pytest.raises(ConfigurationError, match="never be sent"):
        load_request(create_request(tmp_path / "bank", "bank").key)


def test_a_request_whose_signature_is_wrong_is_refused(tmp_path: Path) -> None:
    path = forged(tmp_path / "x.csr", "bank")
    der = x509.load_pem_x509_csr(path.read_bytes()).public_bytes(Encoding.DER)
    changed = x509.load_der_x509_csr(der.replace(b"bank", b"tank"))
    path.write_bytes(changed.public_bytes(Encoding.PEM))
    with pytest.raises(ConfigurationError, match="signature is wrong"):
        load_request(path)


def test_a_request_must_not_list_another_party(authority: AuthorityFiles, tmp_path: Path) -> None:
    issue(authority, "telco", [], authority.certificate.parent, 10)
    request = load_request(create_request(tmp_path / "bank", "bank", ["telco"]).request)
    with pytest.raises(ConfigurationError, match="name of another party"):
        sign_request(authority, request, 10)


def test_the_authority_of_the_peer_is_checked_too(
    authority: AuthorityFiles, tmp_path: Path
) -> None:
    files = issue(authority, "bank", [], tmp_path / "bank", 10)
    own = (files.authority, files.certificate, files.key, "bank")
    other = create_authority(tmp_path / "other", "Other", 10)
    assert not check_certificates(*own, peer_authority=other.certificate).problems
    [problem] = check_certificates(*own, peer_authority=tmp_path / "none.pem").problems
    assert "none.pem" in problem
