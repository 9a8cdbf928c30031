"""Secrets are readable only by their owner, and never printed."""

from __future__ import annotations

import importlib
import pkgutil
import re
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING

import pytest

from florist.common.core.errors import ConfigurationError
from florist.common.training.run_handshake import ResumableRun
from florist.common.transport.certificates import issue
from florist.common.transport.messages import Step, UnionOpening, UnionTerms
from tests.support.certificates import PASSIVE, Trust
from tests.support.parties import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Names of fields that must not be shown.
SECRET = re.compile(
    r"secret|seed|password|passphrase|sealed|exponent|nonce|(^|_)(key|token|draw)s?$"
)
#: Fields with such names that are not secret: paths, public values, or types with their own repr.
SHOWN = {
    ("AuthorityFiles", "key"),  # a path
    ("PartyFiles", "key"),
    ("Credentials", "key"),
    ("RequestFiles", "key"),
    ("CertificateRequest", "public_key"),
    ("Excess", "key"),  # of a configuration
    ("AggregateTerms", "public_keys"),
    ("NonceReveal", "nonce"),  # public by then
    ("UnionBranches", "nonce"),
    ("UnionOpening", "token"),  # identifies a union
}
#: Types whose repr hides their value.
HIDING = {"Keys", "OwnSecrets", "SecretDraws", "SecretsInMemory"}


def data_classes() -> Iterator[type]:
    for package in ("florist.common", "florist.active_party", "florist.passive_party"):
        where = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(where, f"{package}."):
            if module.name.endswith("._native"):
                continue
            found = vars(importlib.import_module(module.name)).values()
            yield from (
                each
                for each in found
                if isinstance(each, type) and each.__module__ == module.name and is_dataclass(each)
            )


def test_no_repr_shows_a_secret() -> None:
    classes = list(data_classes())
    assert len(classes) > 80
    exposed = {
        (each.__name__, field.name)
        for each in classes
        if each.__dataclass_params__.repr  # type: ignore[attr-defined]
        for field in fields(each)
        if field.repr and SECRET.search(field.name) and field.type not in HIDING
    }
    assert exposed - SHOWN == set()


def test_messages_hide_their_keys() -> None:
    key = b"\x8f" * 32
    opening = UnionOpening(b"", (Step.SECOND_ROUND,), key)
    shown = (
        repr(opening)
        + repr(UnionTerms(resume=False, commitment=b"n", sealing_key=key))
        + repr(ResumableRun(key, [1]))
    )
    assert r"\x8f" not in shown


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620])
def test_an_authority_key_that_others_can_read_is_refused(mode: int, tmp_path: Path) -> None:
    trust = Trust.create(tmp_path / "authority")
    trust.files.key.chmod(mode)
    with pytest.raises(ConfigurationError, match=r"authority\.key: other users can .*chmod 600"):
        issue(trust.files, PASSIVE, [], tmp_path / "party", 10)


def test_a_party_does_not_start_with_a_key_that_others_can_read(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "pair")
    key = next((tmp_path / "pair").rglob("bank.key"))
    key.chmod(0o640)
    with workspace.start("active") as party:
        assert party.finish() == 2
    assert "bank.key: other users can read this key; run chmod 600 on it" in " ".join(party.lines)
    assert not any(line in party.output for line in key.read_text().splitlines())
