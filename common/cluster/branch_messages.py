"""What a head and its branches say to each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from florist.common.cluster.branch_progress import StepState
from florist.common.psu.alignment import Sizes
from florist.common.session.run_directory import TableName
from florist.common.settings.party_config import PartyConfig
from florist.common.transport.messages import Step

if TYPE_CHECKING:
    from florist.common.settings.network import Tls


class _BranchMessage(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        ser_json_bytes="base64",
        val_json_bytes="base64",
    )


class UnionRecord(_BranchMessage):
    """Where a branch keeps one union, and of what."""

    folder: Path
    identity: bytes


class ResumeState(_BranchMessage):
    """What a branch has of a union that was begun before."""

    #: Names it; empty if there is none.
    token: bytes
    #: The first steps of the exchanges that it has finished.
    finished: tuple[int, ...]
    has_ids: bool


class TlsContents(_BranchMessage):
    """What is in the files of mutual TLS."""

    authority: bytes
    certificate: bytes
    key: bytes = Field(repr=False)

    @classmethod
    def of(cls, files: Tls) -> TlsContents:
        """Read; the files were checked before."""
        return cls(
            authority=files.authority.read_bytes(),
            certificate=files.certificate.read_bytes(),
            key=files.key.read_bytes(),
        )


class BranchOrder(_BranchMessage):
    """What a branch is to do in one attempt at a union."""

    #: Of the role.
    import_path: str
    config: PartyConfig
    #: None for plain text.
    tls: TlsContents | None
    table: TableName
    record: UnionRecord
    number: int
    count: int
    #: Names the union; and this attempt at it, among siblings.
    token: bytes
    attempt: bytes
    #: Whether it goes on with what it has, and the exchanges that are done.
    goes_on: bool
    done: frozenset[Step]
    #: Whether it has its hashed IDs; else they will come.
    has_ids: bool
    #: The secret exponents.
    keys: tuple[int, int, int] = Field(repr=False)
    #: Of both parties' whole sets.
    size: int
    peer_size: int


class BranchResult(_BranchMessage):
    """What a branch found: its part of what a party alone would have."""

    sizes: Sizes
    #: Of its range of the union.
    digest: bytes


class BranchStatus(_BranchMessage):
    """How far a branch is."""

    #: By the title of each step.
    steps: dict[str, StepState]
    #: Bytes to and from the peer's branch, in this attempt.
    sent: int
    received: int
