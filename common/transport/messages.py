"""What the parties say to each other, as plain values. The codec turns them into bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

#: Raised with every change of the messages or of their order.
PROTOCOL_VERSION = 2

#: Bytes; in a message that came, a view of what was received.
Data = bytes | memoryview

#: No message is larger; a set travels in chunks below it.
MAX_MESSAGE_BYTES = 4 * 1024 * 1024


class Step(IntEnum):
    """Steps of Algorithm 1 that put a set on the line (numbers as in `florist.proto`)."""

    ACTIVE_FIRST_ROUND = 3
    ACTIVE_FIRST_ROUND_BACK = 4
    PASSIVE_FIRST_ROUND = 5
    PASSIVE_FIRST_ROUND_BACK = 6
    SECOND_ROUND = 8
    SECOND_ROUND_BACK = 9
    ACTIVE_HASHING = 11
    ACTIVE_HASHING_BACK = 111
    PASSIVE_HASHING = 12
    PASSIVE_HASHING_BACK = 112

    @property
    def label(self) -> str:
        """For people: `11 (active hashing)`."""
        number = self.value % 100 if self.value > 100 else self.value
        return f"{number} ({self.name.lower().replace('_', ' ')})"


class Control:
    """What may come on the control channel."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Hello(Control):
    """First on `control`, from both sides."""

    protocol: int
    role: str
    release: str
    agreement: str
    stage: str
    #: Whether the sender has its own result of that stage.
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Heartbeat(Control):
    """`work` grows while the sender makes progress."""

    work: int


@dataclass(frozen=True, slots=True)
class Abort(Control):
    """The sender stops, and why."""

    reason: str
    #: Whether it is likely to come back by itself: it was stopped, it did not fail.
    returns: bool = False


@dataclass(frozen=True, slots=True)
class Goodbye(Control):
    """The sender has all it needs."""


@dataclass(frozen=True, slots=True)
class UnionOpening:
    """What the sender has of a union that was begun before, and the size of its own set."""

    #: Names that union; empty without one.
    token: bytes
    #: The first steps of the exchanges that it has finished.
    finished: tuple[int, ...]
    size: int
    #: What the receiver's sealed secrets open with; empty if the sender does not have it.
    kept_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class UnionTerms:
    """Whether the sender goes on with that union; both do, or neither."""

    goes_on: bool
    #: The sender's part of the name of a new union.
    nonce: bytes
    #: What the sender's sealed secrets open with, for the receiver to keep in memory.
    sealing_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class UnionBranches:
    """The sender's branches are ready."""

    #: host:port where each listens; none if they dial.
    addresses: tuple[str, ...]
    #: The sender's part of the name by which branches of the two know each other.
    nonce: bytes


@dataclass(frozen=True, slots=True)
class SetHeader:
    """`count` elements of `step` follow in chunks."""

    step: Step
    count: int


@dataclass(frozen=True, slots=True)
class SetChunk:
    """Elements from position `start` on, back to back."""

    step: Step
    start: int
    elements: bytes


@dataclass(frozen=True, slots=True)
class UnionDigest:
    """Size and SHA-256 of `U` as the sender has it."""

    size: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class TrainingOpening:
    """What the sender can resume, and its commitment to a nonce."""

    union_sha256: bytes
    run: bytes
    steps: tuple[int, ...]
    commitment: bytes


@dataclass(frozen=True, slots=True)
class NonceReveal:
    """The nonce that was committed to."""

    nonce: bytes


@dataclass(frozen=True, slots=True)
class EmbeddingBlock:
    """Cut-layer embeddings of a batch's rows from `start` on; `step` counts over all epochs."""

    step: int
    start: int
    values: Data


@dataclass(frozen=True, slots=True)
class GradientBlock:
    """Gradients with respect to the embeddings of a batch's rows from `start` on."""

    step: int
    start: int
    values: Data


@dataclass(frozen=True, slots=True)
class EpochSummary:
    """Means over an epoch and, where there is a test table, its figures."""

    epoch: int
    loss: float
    auc: float | None = None
    ace: float | None = None
    log_loss: float | None = None


@dataclass(frozen=True, slots=True)
class BundleOffer:
    """Which half of which model the sender holds, and which one it takes the peer's to be."""

    run: bytes
    digest: bytes
    #: Empty at the end of training, when it is not known yet.
    peer_digest: bytes = b""


@dataclass(frozen=True, slots=True)
class ServingOffer:
    """Which half the sender serves with; both sides compare."""

    protocol: int
    release: str
    agreement: str
    bundle: BundleOffer
    #: Of the union whose UIDs are asked for in groups; empty without such groups.
    union_sha256: bytes


@dataclass(frozen=True, slots=True)
class ServingTerms:
    """The active party's own offer, the name of the model for every call, and its limits."""

    offer: ServingOffer
    model: str
    max_rows: int
    rows_per_minute: int


@dataclass(frozen=True, slots=True)
class PredictionRequest:
    """Embeddings, row by row; with active features, those of all UIDs of a group."""

    embeddings: Data
    group: int | None = None


@dataclass(frozen=True, slots=True)
class PredictionReply:
    """Probabilities as 32-bit floats, row by row."""

    probabilities: bytes


#: What the service `Prediction` exchanges.
ServingMessage = ServingOffer | ServingTerms | PredictionRequest | PredictionReply


@dataclass(frozen=True, slots=True)
class EvaluationOpening:
    """The union of evaluation tables that the sender has, if any, and for how many people.

    The active party tells how many UIDs it would have scored, the passive party how many it can
    stand in for.
    """

    union_sha256: bytes
    people: int
    #: Whether the sender has told anything of people in that union: then there is to be no other.
    begun: bool = False


@dataclass(frozen=True, slots=True)
class EvaluationSummary:
    """Estimates with standard errors; all absent where the agreement keeps them."""

    auc: float | None = None
    auc_error: float | None = None
    ace: float | None = None
    ace_error: float | None = None
    log_loss: float | None = None
    log_loss_error: float | None = None


Message = (
    Hello
    | Heartbeat
    | Abort
    | Goodbye
    | UnionOpening
    | UnionTerms
    | UnionBranches
    | SetHeader
    | SetChunk
    | UnionDigest
    | TrainingOpening
    | NonceReveal
    | EmbeddingBlock
    | GradientBlock
    | EpochSummary
    | BundleOffer
    | EvaluationOpening
    | EvaluationSummary
)
