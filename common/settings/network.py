"""Sections `party` and `network`: who the parties are and how they connect."""

from __future__ import annotations

from pydantic import Field, ValidationInfo
from pydantic import field_validator as check_field

from florist.common.settings.addresses import Address
from florist.common.settings.field_types import FilePath, Name
from florist.common.settings.section import Section


class Party(Section):
    """Who the two are."""

    name: Name = Field(
        description="Our name, and the common name in our certificate: lower-case letters, digits "
        "and hyphens, 63 at most."
    )
    peer: Name = Field(
        description="The peer's name: no other certificate is accepted. Different from ours."
    )

    @check_field("peer")
    @classmethod
    def _differs(cls, peer: str, info: ValidationInfo) -> str:
        if peer == info.data.get("name"):
            raise ValueError("must differ from party.name")
        return peer


class Tls(Section):
    """Files of mutual TLS, PEM."""

    authority: FilePath = Field(
        description="File (PEM) with the certificate of the authority that signed the peer's."
    )
    certificate: FilePath = Field(description="File (PEM) with our certificate.")
    key: FilePath = Field(
        description="File (PEM) with the private key of our certificate; readable by us alone."
    )


class Network(Section):
    """Where the parties meet."""

    address: Address = Field(
        description="host:port where the active party listens and which the passive party dials. "
        "An IPv6 address stands in brackets, and all of it in quotes."
    )
    tls: Tls | None = Field(
        default=None,
        description="Files for mutual TLS: authority, certificate and key. Without them a party "
        "starts only when its command line allows plain text.",
    )
