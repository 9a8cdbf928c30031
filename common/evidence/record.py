"""The record of a stage that both parties sign.

It has four parts. The *agreement* was compared by the handshake. The *statement* is what both
parties must state alike: who they are, the unions, the model, the policies, the outcome. In its
*account* each party states what only it knows for certain: its release, its certificate, the time,
and the messages that it has sent.

Both build the record from the same parts and encode it as canonical JSON, so both sign the same
bytes. A record contains no ID, no rank and nothing else about single people.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, TypeAdapter, ValidationError

from florist.common.core.roles import RoleName  # noqa: TC001 - read by pydantic
from florist.common.settings.field_types import Name  # noqa: TC001 - read by pydantic
from florist.common.transport.messages import PROTOCOL_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from florist.common.session.stage_state import StageName
    from florist.common.settings.agreement import Agreement
    from florist.common.transport.channel import MessageCounts

#: Names the format of records; increased when it changes.
FORMAT = "florist/evidence/1"

#: The two times in a record may differ by this much at most.
MAXIMUM_CLOCK_DIFFERENCE = timedelta(hours=1)

#: Messages whose number depends on time, or that follow the record.
_NOT_COMPARED = frozenset({"Heartbeat", "EvidenceContribution", "EvidenceSignature"})

_Count = Annotated[int, Field(ge=0, lt=1 << 63)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_TypeName = Annotated[str, Field(pattern=r"^[A-Za-z]{1,64}$")]
_Text = Annotated[str, Field(max_length=100, pattern=r"^[\x20-\x7e]*$")]
_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True)
class UnionFacts:
    """What both parties know of a union; the sizes are those that were announced."""

    sha256: str
    active_size: int
    passive_size: int
    union_size: int
    #: The public estimate of the number of shared people, and its standard deviation.
    shared_estimate: int
    shared_deviation: float
    #: The number of IDs in each pool of private counts; 0 if the sizes are exact.
    pool: int
    #: Elements of the union that a party has planted.
    planted: int
    #: The party that merged both sets; None by Algorithm 1.
    merging: RoleName | None
    #: The roots to which the parties committed before the union; None if they did not.
    active_commitment: str | None = None
    passive_commitment: str | None = None


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The digests of both halves of a model."""

    run: str
    active_sha256: str
    passive_sha256: str


@dataclass(frozen=True, slots=True)
class AggregateFacts:
    """What both parties know of a label aggregate, besides the noised numbers."""

    #: The guarantee for each person of the active party, of class counts and sums together.
    epsilon: _Positive
    delta: _Positive
    #: The number of sums, and of columns of the passive party that they are by.
    coordinates: _Count
    columns: _Count
    #: The parameter sigma of the noise on each sum, in units of the codes.
    deviation: _Positive

    @classmethod
    def from_statement(cls, stated: object) -> Self | None:
        """Read the facts of a statement; None if they are malformed."""
        try:
            return TypeAdapter(cls).validate_json(canonical(stated), strict=True)
        except (ValidationError, ValueError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class StageFacts:
    """What a stage contributes to the statement."""

    unions: Mapping[str, UnionFacts] = field(default_factory=dict)
    model: ModelFacts | None = None
    #: Of the training stage; None if it had no label aggregate.
    aggregate: AggregateFacts | None = None


@dataclass(frozen=True, slots=True)
class SentMessages:
    """What one party has sent in a stage, according to itself."""

    #: In the session in which the stage ended; the peer compares it with what it received.
    by_type: MessageCounts
    #: In earlier sessions of the same process, which were interrupted; not compared.
    earlier: MessageCounts = field(default_factory=dict)
    #: Bytes over the links of its branches.
    branch_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Counted:
    messages: _Count
    bytes: _Count


_Counts = Annotated[dict[_TypeName, _Counted], Field(max_length=64)]


@dataclass(frozen=True, slots=True)
class Account:
    """What one party states about itself; as it may come from the peer, every field is bounded."""

    role: RoleName
    name: Name
    release: _Text
    #: UTC, ISO 8601, with seconds.
    time: _Text
    #: SHA-256 of its certificate (DER); None without TLS.
    certificate_sha256: _Sha256 | None
    sent: _Counts
    sent_in_earlier_sessions: _Counts
    bytes_sent_by_branches: _Count

    def to_json(self) -> str:
        return canonical(asdict(self))

    @property
    def signed_at(self) -> datetime | None:
        """The time, or None if it is malformed."""
        try:
            time = datetime.fromisoformat(self.time)
        except ValueError:
            return None
        return time if time.tzinfo is not None else None


_ACCOUNT = TypeAdapter(Account)


def make_account(
    role: RoleName,
    name: str,
    release: str,
    certificate_sha256: str | None,
    sent: SentMessages,
    now: datetime | None = None,
) -> Account:
    """State what this party knows about itself."""
    return Account(
        role=role,
        name=name,
        release=release,
        time=(now or datetime.now(UTC)).isoformat(timespec="seconds"),
        certificate_sha256=certificate_sha256,
        sent=_counted(sent.by_type),
        sent_in_earlier_sessions=_counted(sent.earlier),
        bytes_sent_by_branches=sent.branch_bytes,
    )


def read_account(text: str) -> Account | None:
    """Read the peer's account; None if it is malformed."""
    try:
        return _ACCOUNT.validate_json(text, strict=True)
    except ValidationError:
        return None


def make_statement(
    stage: StageName, agreement: Agreement, names: Mapping[RoleName, str], facts: StageFacts
) -> str:
    """Return what both parties must state alike, as canonical JSON."""
    union = agreement.union
    return canonical(
        {
            "stage": stage,
            "outcome": "completed",
            "protocol": PROTOCOL_VERSION,
            "parties": dict(names),
            "agreement_sha256": agreement_digest(json.loads(agreement.canonical())),
            "privacy": None if union.privacy is None else union.privacy.model_dump(mode="json"),
            "policies": {
                "overlap": union.overlap.model_dump(mode="json"),
                "planted_pairs": union.planted_pairs,
            },
            "unions": {table: asdict(facts.unions[table]) for table in facts.unions},
            "model": None if facts.model is None else asdict(facts.model),
            "aggregate": None if facts.aggregate is None else asdict(facts.aggregate),
        }
    )


def make_record(agreement: Agreement, statement: str, accounts: Sequence[Account]) -> bytes:
    """Return the record of the parties as canonical JSON: the bytes to sign."""
    return canonical(
        {
            "format": FORMAT,
            "agreement": json.loads(agreement.canonical()),
            "statement": json.loads(statement),
            "accounts": {account.role: asdict(account) for account in accounts},
        }
    ).encode()


def canonical(value: object) -> str:
    """Return JSON with sorted keys, without whitespace, in ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def agreement_digest(agreement: object) -> str:
    """Return SHA-256 of an agreement in its canonical form."""
    return sha256(canonical(agreement).encode()).hexdigest()


def differing_facts(ours: str, theirs: str) -> list[str]:
    """Name the facts of our statement that the peer states otherwise; empty if there are none.

    Nothing of the peer's text is quoted.
    """
    if ours == theirs:
        return []
    try:
        here, there = json.loads(ours), json.loads(theirs)
    except (ValueError, RecursionError):
        return ["the peer's statement is malformed"]
    if not isinstance(there, dict):
        return ["the peer's statement is malformed"]
    named = sorted(key for key in here if canonical(here[key]) != _text(there.get(key)))
    return [f"the peer states another {key}" for key in named] or ["the peer states more facts"]


def account_problems(
    theirs: Account, role: RoleName, name: str, received: MessageCounts, now: datetime
) -> list[str]:
    """Return what in the peer's account contradicts what we know."""
    problems = []
    if theirs.role == role or theirs.name != name:
        problems.append("the peer states another role or name")
    time = theirs.signed_at
    if time is None or abs(time - now) > MAXIMUM_CLOCK_DIFFERENCE:
        problems.append("the peer's clock differs by more than an hour")
    counted = _counted(received)
    for kind in sorted((counted.keys() | theirs.sent.keys()) - _NOT_COMPARED):
        here, there = counted.get(kind, _NONE), theirs.sent.get(kind, _NONE)
        if here != there:
            problems.append(
                f"the peer states {there.messages} messages {kind} with {there.bytes} bytes, but "
                f"{here.messages} with {here.bytes} bytes were received"
            )
    return problems


_NONE = _Counted(0, 0)


def _counted(counts: MessageCounts) -> dict[str, _Counted]:
    return {
        kind: _Counted(count.messages, count.bytes)
        for kind, count in sorted(counts.items())
        if kind not in {"EvidenceContribution", "EvidenceSignature"}
    }


def _text(value: object) -> str | None:
    try:
        return canonical(value)
    except (ValueError, RecursionError):
        return None
