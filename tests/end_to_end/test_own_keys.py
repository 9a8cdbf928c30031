"""Two organisations in two folders: each creates its own key, and no key ever leaves its folder."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from typer.testing import CliRunner

from florist.cli.init import write_first_files
from florist.cli.tool import app
from florist.common.core.errors import ConfigurationError
from florist.common.core.ports import free_port
from tests.support.parties import NAMES, ROLES, SMALL, Workspace, other

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.core.roles import RoleName

runner = CliRunner()


def florist(*arguments: object, answer: str | None = None) -> str:
    result = runner.invoke(app, [*map(str, arguments)], input=answer, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@dataclass
class Organisations(Workspace):
    """One folder for each organisation, with its own files only."""

    def home(self, role: RoleName) -> Path:
        return self.directory / NAMES[role]

    def certificates(self, role: RoleName) -> Path:
        return self.home(role) / "certificates"

    def config(self, role: RoleName) -> Path:
        return self.home(role) / f"{role}.yml"

    def send(self, file: str, sender: RoleName, *, to: str | None = None) -> None:
        """Send one file by mail."""
        target = self.certificates(other(sender)) / (to or file)
        shutil.copyfile(self.certificates(sender) / file, target)

    def set_tls(self, role: RoleName, **changes: str) -> None:
        values = yaml.safe_load(self.config(role).read_text())
        values["network"]["tls"] |= changes
        self.config(role).write_text(yaml.safe_dump(values))

    def assert_no_key_left_its_owner(self) -> None:
        for role in ROLES:
            keys = [path.read_bytes() for path in self.certificates(role).glob("*.key")]
            assert keys
            secrets = [secret for key in keys for secret in _encodings(key)]
            for path in self.home(other(role)).rglob("*"):
                if path.is_file():
                    content = path.read_bytes()
                    assert not any(secret in content for secret in secrets), path

    def align(self) -> None:
        with self.start("active") as active, self.start("passive") as passive:
            assert (active.finish(120), passive.finish(120)) == (0, 0)
        self.assert_aligned()


def _encodings(pem: bytes) -> list[bytes]:
    """The secret number of a key in every form in which it could be written."""
    key = load_pem_private_key(pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    number = key.private_numbers().private_value.to_bytes(32, "big")
    forms = (PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL)
    whole = [key.private_bytes(Encoding.PEM, form, NoEncryption()).strip() for form in forms]
    return [number, number.hex().encode(), *whole]


@pytest.fixture
def organisations(tmp_path: Path) -> Organisations:
    address = f"127.0.0.1:{free_port()}"
    found = Organisations(tmp_path)
    for role in ROLES:
        home = found.home(role)
        write_first_files(home, NAMES, address, SMALL)
        shutil.rmtree(home / "certificates")
        peer = NAMES[other(role)]
        for theirs in (f"{other(role)}.yml", f"data/{peer}.csv"):
            (home / theirs).unlink()
        shutil.rmtree(home / "runs" / peer)
    return found


def test_one_authority_signs_requests(organisations: Organisations) -> None:
    here: RoleName = "active"  # the bank runs the authority
    bank, telco = organisations.certificates("active"), organisations.certificates("passive")
    florist("certs", "create", bank)
    printed = florist("certs", "request", bank / "own", "--party", "bank")
    digest = printed.split("public key is\n")[1].split()[0]
    with pytest.raises(ConfigurationError, match="replaced the file"):
        florist(
            *("certs", "sign", bank / "own/bank.csr", "--authority", bank),
            *("--key-sha256", "0" * 64),
        )
    signing = ("certs", "sign", bank / "own/bank.csr", "--authority", bank)
    florist(*signing, "--key-sha256", digest)
    (bank / "own/bank.key").rename(bank / "bank.key")

    printed = florist("certs", "request", telco, "--party", "telco")
    digest = printed.split("public key is\n")[1].split()[0]
    organisations.send("telco.csr", "passive")
    refused = ["certs", "sign", str(bank / "telco.csr"), "--authority", str(bank)]
    assert runner.invoke(app, refused, input="n\n").exit_code == 1
    assert not (bank / "telco.pem").exists()
    shown = florist("certs", "sign", bank / "telco.csr", "--authority", bank, answer="y\n")
    assert digest in shown
    for file in ("telco.pem", "authority.pem"):
        organisations.send(file, here)

    organisations.assert_no_key_left_its_owner()
    organisations.set_tls("active", peer_key_sha256=digest)
    organisations.align()
    organisations.assert_no_key_left_its_owner()


def test_each_organisation_has_its_own_authority(organisations: Organisations) -> None:
    for role in ROLES:
        florist("certs", organisations.certificates(role), "--party", NAMES[role])
    for role in ROLES:
        organisations.send("authority.pem", role, to=f"{NAMES[role]}-authority.pem")
        trusted = f"certificates/{NAMES[role]}-authority.pem"
        organisations.set_tls(other(role), peer_authority=trusted)
    organisations.assert_no_key_left_its_owner()
    organisations.align()
    organisations.assert_no_key_left_its_owner()
    evidence = organisations.home("active") / "evidence"
    evidence.mkdir()
    florist("evidence", organisations.run_directory("active").path, "--output", evidence)
    verify = ["evidence", "verify", str(evidence / "evidence.json")]
    both = [str(organisations.certificates(role) / "authority.pem") for role in ROLES]
    florist(*verify, "--authority", both[0], "--authority", both[1])
    assert runner.invoke(app, [*verify, "--authority", both[0]]).exit_code == 1


def test_a_certificate_of_our_own_authority_does_not_pass_for_the_peer(
    organisations: Organisations,
) -> None:
    for role in ROLES:
        florist("certs", organisations.certificates(role), "--party", NAMES[role])
    # The telco's authority issues a certificate for "bank", which the telco must not accept: it
    # trusts only the bank's authority for that name.
    for role in ROLES:
        organisations.send("authority.pem", role, to=f"{NAMES[role]}-authority.pem")
        trusted = f"certificates/{NAMES[role]}-authority.pem"
        organisations.set_tls(other(role), peer_authority=trusted)
    florist("certs", organisations.certificates("passive"), "--party", "bank")
    for file in ("authority.pem", "bank.pem", "bank.key"):
        source = organisations.certificates("passive") / file
        shutil.copy(source, organisations.certificates("active") / file)
    organisations.configure("passive", {"timeouts.connect": 20.0})
    organisations.configure("active", {"timeouts.connect": 20.0})
    with organisations.start("active") as active, organisations.start("passive") as passive:
        assert passive.finish(60) == 3
        assert "was not issued by" in passive.output
        active.process.kill()
