"""Authorities and certificates: what they hold, where they lie, and what is found wrong."""

from __future__ import annotations

import ipaddress
import os
import stat
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from florist.common.core.errors import ConfigurationError
from florist.common.transport.certificate_check import CertificateReport, check_certificates
from florist.common.transport.certificates import (
    AuthorityFiles,
    PartyFiles,
    create_authority,
    issue,
)

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime.now(UTC)
BANK = "bank"


@pytest.fixture
def authority(tmp_path: Path) -> AuthorityFiles:
    return create_authority(tmp_path / "authority", "Test authority", 1000)


@pytest.fixture
def bank(authority: AuthorityFiles, tmp_path: Path) -> PartyFiles:
    return issue(authority, BANK, ["bank.example", "192.0.2.1", "::1"], tmp_path / BANK, 90)


def look(files: PartyFiles, name: str = BANK, now: datetime | None = None) -> CertificateReport:
    return check_certificates(files.authority, files.certificate, files.key, name, now=now)


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- making ----------------------------------------------------------------------------------------


def test_an_authority_can_issue_certificates_but_no_authorities(
    authority: AuthorityFiles,
) -> None:
    certificate = load(authority.certificate)
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value == x509.BasicConstraints(ca=True, path_length=0)
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert usage.value.key_cert_sign
    assert not usage.value.digital_signature
    certificate.verify_directly_issued_by(certificate)
    assert abs(certificate.not_valid_after_utc - NOW - timedelta(days=1000)) < timedelta(hours=1)


def test_a_certificate_contains_the_name_and_addresses_of_its_party(
    authority: AuthorityFiles, bank: PartyFiles
) -> None:
    certificate = load(bank.certificate)
    certificate.verify_directly_issued_by(load(authority.certificate))
    [name] = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert name.value == BANK
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert found.get_values_for_type(x509.DNSName) == [BANK, "bank.example"]
    assert found.get_values_for_type(x509.IPAddress) == [
        ipaddress.ip_address("192.0.2.1"),
        ipaddress.ip_address("::1"),
    ]
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usages) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert not constraints.ca
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert certificate.not_valid_before_utc < datetime.now(UTC) - timedelta(minutes=4)


def test_a_certificate_does_not_outlive_its_authority(
    authority: AuthorityFiles, tmp_path: Path
) -> None:
    files = issue(authority, BANK, [], tmp_path / "long", 30_000)
    end = load(authority.certificate).not_valid_after_utc
    assert load(files.certificate).not_valid_after_utc == end


def test_keys_are_readable_only_by_their_owner(authority: AuthorityFiles, bank: PartyFiles) -> None:
    for key in (authority.key, bank.key):
        assert mode(key) == 0o600
        assert mode(key.parent) == 0o700
    assert sorted(path.name for path in bank.key.parent.iterdir()) == [
        "authority.pem",
        "bank.key",
        "bank.pem",
    ]


def test_keys_are_readable_only_by_their_owner_with_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        files = create_authority(tmp_path / "open", "x", 1)
    finally:
        os.umask(before)
    assert mode(files.key) == 0o600
    assert mode(files.key.parent) == 0o700


def test_existing_files_are_replaced_only_with_force(
    authority: AuthorityFiles, bank: PartyFiles, tmp_path: Path
) -> None:
    before = {path: path.read_bytes() for path in (authority.key, bank.key, bank.certificate)}
    with pytest.raises(ConfigurationError, match=r"authority\.key: exists already"):
        create_authority(authority.key.parent, "again", 10)
    with pytest.raises(ConfigurationError, match=r"bank\.pem.*exists already"):
        issue(authority, BANK, [], bank.key.parent, 10)
    other = create_authority(tmp_path / "other", "Other", 10)
    with pytest.raises(ConfigurationError, match=r"belongs to another authority"):
        issue(other, "shop", [], bank.key.parent, 10)
    assert before == {path: path.read_bytes() for path in before}
    issue(authority, BANK, [], bank.key.parent, 10, force=True)
    assert before[bank.key] != bank.key.read_bytes()
    look(bank).require()
    create_authority(authority.key.parent, "again", 10, force=True)
    assert before[authority.key] != authority.key.read_bytes()


def test_all_files_can_be_in_one_folder(authority: AuthorityFiles) -> None:
    folder = authority.key.parent
    for name in (BANK, "shop"):
        look(issue(authority, name, [], folder, 10), name).require()


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(ConfigurationError, match="chmod 700"):
        create_authority(folder, "x", 10)


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be created"):
        create_authority(tmp_path / "file" / "folder", "x", 10)


@pytest.mark.parametrize(
    "name", ["", "Bank", "the bank", "-bank", "bank-", "b" * 64, "bänk", "../bank", "*"]
)
def test_invalid_party_names(authority: AuthorityFiles, tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="party name"):
        issue(authority, name, [], tmp_path / "new", 10)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["", "two words", "*.example", "bänk.example", "x\ny"])
def test_invalid_addresses(authority: AuthorityFiles, tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="neither a host name nor an IP address"):
        issue(authority, BANK, [name], tmp_path / "new", 10)


@pytest.mark.parametrize("days", [0, -1, 10**9])
def test_invalid_days(authority: AuthorityFiles, tmp_path: Path, days: int) -> None:
    with pytest.raises(ConfigurationError, match="days"):
        issue(authority, BANK, [], tmp_path / "new", days)
    with pytest.raises(ConfigurationError, match="days"):
        create_authority(tmp_path / "new", "x", days)


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb"])
def test_invalid_authority_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="authority's name"):
        create_authority(tmp_path / "new", name, 10)


def test_an_authority_that_cannot_issue(
    authority: AuthorityFiles, bank: PartyFiles, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="is not the key of"):
        issue(AuthorityFiles(authority.certificate, bank.key), "shop", [], tmp_path / "new", 1)
    with pytest.raises(ConfigurationError, match="expired"):
        issue(authority, "shop", [], tmp_path / "new", 1, now=NOW + timedelta(days=2000))
    with pytest.raises(ConfigurationError, match="does not exist"):
        issue(AuthorityFiles.in_directory(tmp_path), "shop", [], tmp_path / "new", 1)


# -- checking --------------------------------------------------------------------------------------


def test_good_files(bank: PartyFiles) -> None:
    report = look(bank)
    report.require()
    assert report.problems == report.warnings == ()
    assert report.common_name == BANK
    assert report.days_left == 89
    assert report.expires == load(bank.certificate).not_valid_after_utc


def problem(files: PartyFiles, name: str = BANK, now: datetime | None = None) -> str:
    """The one problem, which must also be raised."""
    report = look(files, name, now)
    [found] = report.problems
    with pytest.raises(ConfigurationError) as caught:
        report.require()
    assert caught.value.reason == found
    return found


@pytest.mark.parametrize("which", ["authority", "certificate", "key"])
def test_a_missing_or_invalid_file(bank: PartyFiles, which: str) -> None:
    path: Path = getattr(bank, which)
    path.write_bytes(b"nonsense")
    kind = "private key" if which == "key" else "certificate"
    assert problem(bank) == f"{path}: contains no {kind} in PEM format"
    path.unlink()
    assert problem(bank) == f"{path}: does not exist; check the path"
    path.mkdir(mode=0o700)
    assert problem(bank) == f"{path}: cannot be read: Is a directory"


def test_all_problems_are_found_at_once(tmp_path: Path) -> None:
    report = look(PartyFiles.in_directory(tmp_path, BANK))
    assert len(report.problems) == 3
    with pytest.raises(ConfigurationError, match=r"authority\.pem.*bank\.pem.*bank\.key"):
        report.require()


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o666])
def test_a_key_that_others_can_read(bank: PartyFiles, bits: int) -> None:
    bank.key.chmod(bits)
    assert problem(bank) == f"{bank.key}: other users can read this key; run chmod 600 on it"


def test_an_encrypted_key(bank: PartyFiles) -> None:
    key = load_pem_private_key(bank.key.read_bytes(), None)
    encryption = BestAvailableEncryption(b"secret")
    bank.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    assert "is encrypted" in problem(bank)


def test_the_key_of_another_certificate(
    authority: AuthorityFiles, bank: PartyFiles, tmp_path: Path
) -> None:
    other = issue(authority, "shop", [], tmp_path / "shop", 10)
    mixed = PartyFiles(bank.authority, bank.certificate, other.key)
    assert f"{other.key}: is not the key of {bank.certificate}" in problem(mixed)


def test_a_certificate_of_another_authority(bank: PartyFiles, tmp_path: Path) -> None:
    # Even one of the same name.
    other = create_authority(tmp_path / "other", "Test authority", 1000)
    mixed = PartyFiles(other.certificate, bank.certificate, bank.key)
    assert f"{bank.certificate}: was not issued by the authority in" in problem(mixed)


def test_an_expired_or_future_certificate(bank: PartyFiles) -> None:
    assert "bank.pem: expired on" in problem(bank, now=NOW + timedelta(days=91))
    early = look(bank, now=NOW - timedelta(days=1))
    assert len(early.problems) == 2
    assert all("is not valid before" in found for found in early.problems)


def test_an_expired_authority(bank: PartyFiles) -> None:
    found = look(bank, now=NOW + timedelta(days=1001)).problems
    assert [f"{bank.certificate}: expired", f"{bank.authority}: expired"] == [
        text.split(" on ")[0] for text in found
    ]


def test_a_certificate_that_expires_soon_is_only_a_warning(bank: PartyFiles) -> None:
    report = look(bank, now=NOW + timedelta(days=80, hours=1))
    report.require()
    [warning] = report.warnings
    assert f"{bank.certificate}: expires on" in warning
    assert "in 9 days" in warning


def test_a_certificate_of_someone_else(bank: PartyFiles) -> None:
    assert "belongs to 'bank', but this party is 'shop'" in problem(bank, "shop")


def test_a_certificate_of_an_intermediate_authority(tmp_path: Path, bank: PartyFiles) -> None:
    """A company's own authority often signs through another; its file holds both."""
    root_key, root = signed("root", None)
    middle_key, middle = signed("middle", (root_key, root))
    leaf_key, leaf = signed(BANK, (middle_key, middle), ca=False)
    bank.authority.write_bytes(root.public_bytes(Encoding.PEM))
    chain = leaf.public_bytes(Encoding.PEM) + middle.public_bytes(Encoding.PEM)
    bank.certificate.write_bytes(chain)
    bank.key.write_bytes(leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    look(bank).require()
    bank.certificate.write_bytes(leaf.public_bytes(Encoding.PEM))
    assert "was not issued by" in problem(bank)


Signer = tuple[ec.EllipticCurvePrivateKey, x509.Certificate]


def signed(name: str, by: Signer | None, *, ca: bool = True) -> Signer:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by[1].subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=100))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .sign(by[0] if by else key, hashes.SHA256())
    )
    return key, certificate
