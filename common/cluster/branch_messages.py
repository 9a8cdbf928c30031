"""The messages between a head and its branches, and between the branches of one party.

Every call is a request class with one reply class. A request for a branch is a `HeadRequest`; one
for a branch's mailbox, from another branch of the same party, is a `MemberRequest`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from florist.common.cluster.branch_progress import StepState
from florist.common.core.roles import RoleName
from florist.common.session.alignment_result import TableName
from florist.common.session.union_sizes import UnionSizes
from florist.common.settings.party_config import PartyConfig
from florist.common.transport.messages import Step

if TYPE_CHECKING:
    from florist.common.settings.network import Tls

R = TypeVar("R", bound="BranchMessage")


class BranchMessage(BaseModel):
    """A message, or a part of one. It is sent as JSON."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        ser_json_bytes="base64",
        val_json_bytes="base64",
    )


class BulkMessage(BranchMessage):
    """A message with many bytes, which are sent as they are, after the JSON."""

    payload: bytes = Field(default=b"", exclude=True, repr=False)


class Request(BranchMessage, Generic[R]):
    """A message that is answered by a message of type `R`."""

    @staticmethod
    def reply_type() -> type[R]:
        """Return the class of the reply."""
        raise NotImplementedError


# -- parts of messages -----------------------------------------------------------------------------


class UnionRecord(BranchMessage):
    """Where a branch stores its part of one union, and which union that is."""

    folder: Path
    #: Identifies the two parties and tables; a record of any other union is not used.
    identity: bytes


class TlsContents(BranchMessage):
    """The contents of the files for mutual TLS."""

    authority: bytes
    certificate: bytes
    key: bytes = Field(repr=False)
    #: Of the peer, if it is another.
    peer_authority: bytes | None = None
    #: The required digest of the peer's public key; None admits any.
    peer_key_sha256: str | None

    @classmethod
    def of(cls, files: Tls) -> TlsContents:
        """Read the files, which were validated before."""
        return cls(
            authority=files.authority.read_bytes(),
            certificate=files.certificate.read_bytes(),
            key=files.key.read_bytes(),
            peer_authority=(
                None if files.peer_authority is None else files.peer_authority.read_bytes()
            ),
            peer_key_sha256=files.peer_key_sha256,
        )


class BranchOrder(BranchMessage):
    """What a branch does in one attempt at a union."""

    #: The import path of the role, `module:name`.
    import_path: str
    config: PartyConfig
    #: None for an unencrypted connection.
    tls: TlsContents | None
    table: TableName
    record: UnionRecord
    #: The index of this branch, and how many branches there are.
    number: int
    count: int
    #: Identifies the union.
    token: bytes
    #: Identifies this attempt among the branches of the party.
    attempt: bytes
    #: Whether the branch resumes from what it has stored.
    resumes: bool
    #: The exchanges, by their first steps, that both parties have completed.
    done: frozenset[Step]
    #: Whether the branch has stored its hashed IDs; otherwise the head sends them.
    has_ids: bool
    #: The secret exponents.
    keys: tuple[int, int, int, int] = Field(repr=False)
    #: The party that merges; None by Algorithm 1.
    merging: RoleName | None
    #: The sizes of both parties' whole sets, padding included.
    size: int
    peer_size: int


# -- replies ---------------------------------------------------------------------------------------


class Empty(BranchMessage):
    """The reply to a request that returns nothing."""


class ResumeState(BranchMessage):
    """What a branch has stored of a union that was started earlier."""

    #: Identifies the union; empty if nothing is stored.
    token: bytes
    #: The first steps of the exchanges that the branch has finished.
    finished: tuple[int, ...]
    has_ids: bool


class IdsTaken(BranchMessage):
    """How many IDs a branch has just received."""

    count: int


class ListeningAddress(BranchMessage):
    """Where a branch listens, as `host:port`."""

    address: str


class BranchResult(BranchMessage):
    """What a branch computed: its part of the view of a single process."""

    sizes: UnionSizes
    #: SHA-256 of its range of the union.
    digest: bytes


class BranchStatus(BranchMessage):
    """How far a branch is."""

    #: By the title of each step.
    steps: dict[str, StepState]
    #: Bytes to and from the peer's branch, in this attempt.
    sent: int
    received: int


class RankBlock(BulkMessage):
    """Ranks of consecutive rows of a branch, as they are stored."""


class RowBlock(BulkMessage):
    """Rows for one range of values, as `Scatter.part` returns them."""

    #: The piece to continue from, or 0 after the last.
    next_piece: int


# -- requests of the head --------------------------------------------------------------------------


class Recall(Request[ResumeState]):
    """Ask what a branch has stored of a union."""

    kind: Literal["recall"] = "recall"
    record: UnionRecord

    @staticmethod
    def reply_type() -> type[ResumeState]:
        return ResumeState


class Begin(Request[Empty]):
    """Begin an attempt at a union."""

    kind: Literal["begin"] = "begin"
    order: BranchOrder
    #: Seals what the branches of this party send to each other.
    group_key: bytes = Field(repr=False)

    @staticmethod
    def reply_type() -> type[Empty]:
        return Empty


class TakeIds(BulkMessage, Request[IdsTaken]):
    """Give a branch more of its IDs, in row order, packed as `packed_ids` does."""

    kind: Literal["take_ids"] = "take_ids"
    count: int

    @staticmethod
    def reply_type() -> type[IdsTaken]:
        return IdsTaken


class EndIds(Request[Empty]):
    """Tell a branch that it has all of its IDs."""

    kind: Literal["end_ids"] = "end_ids"

    @staticmethod
    def reply_type() -> type[Empty]:
        return Empty


class GetListeningAddress(Request[ListeningAddress]):
    """Ask where a branch listens on its machine; with `first_port` 0 it takes any free port."""

    kind: Literal["get_listening_address"] = "get_listening_address"
    host: str
    first_port: int

    @staticmethod
    def reply_type() -> type[ListeningAddress]:
        return ListeningAddress


class RunUnion(Request[BranchResult]):
    """Run the union with the peer's branch at `address`; answered when it is complete."""

    kind: Literal["run_union"] = "run_union"
    address: str
    #: The name that both heads have agreed on for this attempt.
    rendezvous: bytes

    @staticmethod
    def reply_type() -> type[BranchResult]:
        return BranchResult


class GetStatus(Request[BranchStatus]):
    """Ask how far a branch is."""

    kind: Literal["get_status"] = "get_status"

    @staticmethod
    def reply_type() -> type[BranchStatus]:
        return BranchStatus


class GetRanks(Request[RankBlock]):
    """Ask for ranks of a branch's rows from row `start` on."""

    kind: Literal["get_ranks"] = "get_ranks"
    start: int

    @staticmethod
    def reply_type() -> type[RankBlock]:
        return RankBlock


class Stop(Request[Empty]):
    """End the attempt."""

    kind: Literal["stop"] = "stop"
    reason: str

    @staticmethod
    def reply_type() -> type[Empty]:
        return Empty


class Forget(Request[Empty]):
    """Delete what a branch has stored of a union."""

    kind: Literal["forget"] = "forget"
    folder: Path

    @staticmethod
    def reply_type() -> type[Empty]:
        return Empty


HeadRequest = Annotated[
    Recall
    | Begin
    | TakeIds
    | EndIds
    | GetListeningAddress
    | RunUnion
    | GetStatus
    | GetRanks
    | Stop
    | Forget,
    Field(discriminator="kind"),
]


# -- requests of other branches of the party -------------------------------------------------------


class PostNumber(Request[Empty]):
    """Put a number into a branch's mailbox, under a label."""

    kind: Literal["post_number"] = "post_number"
    attempt: bytes
    label: str
    sender: int
    number: int

    @staticmethod
    def reply_type() -> type[Empty]:
        return Empty


class FetchRows(Request[RowBlock]):
    """Ask for rows that a branch offers under a label, for the range of `owner`."""

    kind: Literal["fetch_rows"] = "fetch_rows"
    attempt: bytes
    label: str
    owner: int
    start: int

    @staticmethod
    def reply_type() -> type[RowBlock]:
        return RowBlock


MemberRequest = Annotated[PostNumber | FetchRows, Field(discriminator="kind")]
