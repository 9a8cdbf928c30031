"""Sections `party` and `network`: who the parties are and how they connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, ValidationInfo
from pydantic import field_validator as check_field

from florist.common.settings.addresses import Address
from florist.common.settings.field_types import FilePath, KeyDigest, Name
from florist.common.settings.section import Section

if TYPE_CHECKING:
    from pathlib import Path


class Party(Section):
    """The names of the two parties."""

    name: Name = Field(
        description="Name of this party, and common name of its certificate: up to 63 lower-case "
        "letters, digits and hyphens."
    )
    peer: Name = Field(
        description="Name of the peer; only a certificate with this common name is accepted. Must "
        "differ from party.name."
    )

    @check_field("peer")
    @classmethod
    def _differs(cls, peer: str, info: ValidationInfo) -> str:
        if peer == info.data.get("name"):
            raise ValueError("must differ from party.name")
        return peer


class Tls(Section):
    """The PEM files for mutual TLS, and the peer's key."""

    authority: FilePath = Field(
        description="PEM file with the certificate of the authority that signed this party's "
        "certificate, and the peer's unless peer_authority is set."
    )
    certificate: FilePath = Field(description="PEM file with this party's certificate.")
    key: FilePath = Field(
        description="PEM file with the private key of the certificate; only the owner may read it."
    )
    peer_authority: FilePath | None = Field(
        default=None,
        description="PEM file with the certificate of the authority that signed the peer's "
        "certificate, if each organisation has an authority of its own. If set, only this "
        "authority is trusted to identify the peer.",
    )
    peer_key_sha256: KeyDigest | None = Field(
        default=None,
        description="SHA-256 of the peer's public key (SubjectPublicKeyInfo), 64 hexadecimal "
        "digits. If set, only a certificate with this key is accepted, whatever else the authority "
        "has signed. `florist preflight` prints each party's value; exchange it by other means.",
    )

    @property
    def trusted(self) -> Path:
        """The file with the authority that must have signed the peer's certificate."""
        return self.peer_authority or self.authority


class Network(Section):
    """How the parties connect."""

    address: Address = Field(
        description="host:port where the active party listens and to which the passive party "
        "connects. Write an IPv6 address in brackets and the whole value in quotes."
    )
    tls: Tls | None = Field(
        default=None,
        description="Files for mutual TLS: authority, certificate and key. Without them, a party "
        "starts only with --insecure-plaintext.",
    )
