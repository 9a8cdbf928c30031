"""The entries of a privacy ledger."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from florist.common.privacy.count_noise import exact_fraction
from florist.common.settings.section import StrictModel

#: Increased when the meaning of entries changes.
FORMAT = 1

#: Kinds of tables that are aligned; each is compared with the previous one of its kind.
TableKind: TypeAlias = Literal["train", "test", "evaluation"]
Announced: TypeAlias = Literal["union", "people", "labels"]
Outcome: TypeAlias = Literal["finished", "failed"]
_Size: TypeAlias = Annotated[int, Field(ge=0)]


def now() -> str:
    """Return the current time as entries have it: ISO 8601, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Opened(StrictModel):
    """The first entry: whose ledger this is."""

    kind: Literal["opened"] = "opened"
    format: int
    date: str
    party: str
    peer: str


class Charge(StrictModel):
    """Numbers that were about to be released: they count, whatever happened afterwards."""

    kind: Literal["charge"] = "charge"
    #: The number of this charge, from 1.
    number: int
    date: str
    table: TableKind
    #: What was announced: the size of a set in a union; or, before an evaluation union, the number
    #: of people that this party would like to have scored, or can provide stand-ins for; or the
    #: noised class counts and sums of labels of a label aggregate, by the active party only.
    announced: Announced = "union"
    #: A digest of this party's set under a key that never leaves the folder of the ledger. Labels
    #: have that of the last union of their table; None if the ledger has none.
    set_digest: str | None
    #: The number that this party announced. For labels, the number of this party's people whose
    #: labels were summed, which is not announced.
    own_size: _Size
    #: The cost; None if the sizes were exact, which no number bounds.
    epsilon: float | None
    delta: float | None
    agreement_digest: str
    #: Why the difference guard was overridden, if it was.
    accepted_difference: str | None = None

    @property
    def cost(self) -> Cost | None:
        """The cost as exact fractions; None if it is unlimited."""
        if self.epsilon is None or self.delta is None:
            return None
        return exact_fraction(self.epsilon), exact_fraction(self.delta)


class Settlement(StrictModel):
    """What became of a charge; the last one of a charge counts."""

    kind: Literal["outcome"] = "outcome"
    date: str
    #: The number of the charge.
    charge: int
    outcome: Outcome
    peer_size: _Size | None = None
    union_size: _Size | None = None


class Repair(StrictModel):
    """An unfinished line at the end, left by a crash, was removed. Nothing was announced for it."""

    kind: Literal["repair"] = "repair"
    date: str
    removed_bytes: int


#: Exact epsilon and delta.
Cost: TypeAlias = tuple[Fraction, Fraction]
Entry: TypeAlias = Opened | Charge | Settlement | Repair

ENTRY: TypeAdapter[Entry] = TypeAdapter(Annotated[Entry, Field(discriminator="kind")])
