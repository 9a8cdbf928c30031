"""The messages that the parties exchange, as plain values; the codec converts them to bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

#: Increased with every change of the messages or of their order.
PROTOCOL_VERSION = 6

#: Bytes to send, or a view into the bytes received.
Data = bytes | memoryview

#: The maximum size of an encoded message. Larger sets are split into chunks.
MAX_MESSAGE_BYTES = 4 * 1024 * 1024


class Step(IntEnum):
    """The steps of a union in which a set is sent (numbers as in `psu.proto`).

    Those from 21 on belong to the merged protocol; 20 belongs to both.
    """

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
    ANCHORS = 20
    MERGING_SET = 21
    MERGING_SET_BACK = 121
    COMPLETING_SET = 22
    COMPLETING_SET_BACK = 122
    MERGE = 23
    REMAINDER = 123
    UNION = 24

    @property
    def label(self) -> str:
        """The name to show to users, for example `11 (active hashing)`."""
        name = self.name.lower().replace("_", " ")
        number = self.value % 100
        return f"{number} ({name})" if number < Step.ANCHORS else f"'{name}'"


# --- session (session.proto) ---


class Control:
    """Base class of the messages on the control channel."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Hello(Control):
    """The first message on `control`, sent by both parties."""

    protocol: int
    role: str
    release: str
    #: The agreement as canonical JSON.
    agreement: str
    #: The first stage that the sender has not completed.
    stage: str
    #: The sender has its own result of that stage but does not know whether the receiver has one.
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Heartbeat(Control):
    """Sent every few seconds; `work` increases while the sender makes progress."""

    work: int


@dataclass(frozen=True, slots=True)
class Abort(Control):
    """The sender ends the session because of an error or because it was stopped."""

    reason: str
    #: The sender is likely to reconnect without help: it was stopped and did not fail.
    will_reconnect: bool = False


@dataclass(frozen=True, slots=True)
class Goodbye(Control):
    """The sender has everything it needs and closes the session normally."""


# --- private set union (psu.proto) ---


@dataclass(frozen=True, slots=True)
class UnionOpening:
    """The state of the sender's interrupted union, if any."""

    #: Identifies the interrupted union; empty if there is none.
    token: bytes
    #: The first step of each exchange that the sender has completed.
    finished: tuple[int, ...]
    #: The key of the receiver's sealed secrets; empty if the sender does not have it.
    kept_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class UnionTerms:
    """Whether the sender can resume that union; the parties resume only if both can."""

    resume: bool
    #: The sender's commitment to its contribution to the token of a new union.
    commitment: bytes
    #: The key of the sender's sealed secrets, which the receiver keeps in memory.
    sealing_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class UnionAnnouncement:
    """What the sender says about its set at the start of a new union."""

    #: The size of its set, padding included.
    size: int
    #: Its commitment to the set, which an auditor can check later.
    set_root: bytes


@dataclass(frozen=True, slots=True)
class UnionBranches:
    """The sender's branches are ready."""

    #: host:port on which each branch listens; empty if they dial.
    addresses: tuple[str, ...]
    #: The sender's contribution to the name by which the branches of both parties find each other.
    nonce: bytes


@dataclass(frozen=True, slots=True)
class SetHeader:
    """Starts a set: `count` elements of `step` follow in chunks."""

    step: Step
    count: int


@dataclass(frozen=True, slots=True)
class SetChunk:
    """The elements of a set from index `start` on, concatenated."""

    step: Step
    start: int
    elements: bytes


@dataclass(frozen=True, slots=True)
class UnionDigest:
    """Size and SHA-256 of the sender's copy of the union `U`."""

    size: int
    sha256: bytes


# --- training (training.proto) ---


@dataclass(frozen=True, slots=True)
class TrainingOpening:
    """The run that the sender can resume, if any, and its commitment to a nonce."""

    union_sha256: bytes
    #: Identifies the interrupted run; empty if there is none.
    run: bytes
    #: The steps from which the sender can resume it.
    steps: tuple[int, ...]
    commitment: bytes


@dataclass(frozen=True, slots=True)
class NonceReveal:
    """Opens the commitment of `TrainingOpening` or `UnionTerms`."""

    nonce: bytes


@dataclass(frozen=True, slots=True)
class EmbeddingBlock:
    """Cut-layer embeddings of the rows of a training batch from `start` on."""

    #: The training step, counted from 0 over all epochs.
    step: int
    start: int
    values: Data


@dataclass(frozen=True, slots=True)
class TransferRequest:
    """The passive party's message of the base transfers."""

    values: bytes


@dataclass(frozen=True, slots=True)
class TransferReply:
    """The active party's answer to it."""

    values: bytes


@dataclass(frozen=True, slots=True)
class TransferBlock:
    """The active party's message of one block of random transfers."""

    #: Counted from 0 over the whole run.
    number: int
    values: Data


@dataclass(frozen=True, slots=True)
class ChoiceBlock:
    """By which bits the active party's choices for a batch differ from the random ones."""

    #: The training step, counted from 0 over all epochs.
    step: int
    values: Data


@dataclass(frozen=True, slots=True)
class OfferBlock:
    """Encrypted embeddings of a training batch's rows from `start` on: for each class, all rows."""

    #: The training step, counted from 0 over all epochs.
    step: int
    start: int
    values: Data


@dataclass(frozen=True, slots=True)
class AggregateShape:
    """What the passive party will sum labels by."""

    columns: int
    coordinates: int


@dataclass(frozen=True, slots=True)
class AggregateTerms:
    """How the active party encodes and encrypts labels."""

    #: One for each sum per coordinate, concatenated.
    public_keys: bytes
    scale: int
    centres: tuple[int, ...]
    #: With noise; not negative.
    class_counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EncryptedLabels:
    """Encrypted codes of the labels of the UIDs from `start` on."""

    start: int
    values: Data


@dataclass(frozen=True, slots=True)
class AggregateRequest:
    """Encrypted and blinded sums of the coordinates from `start` on."""

    start: int
    values: Data


@dataclass(frozen=True, slots=True)
class AggregateAnswer:
    """The same sums with noise, decrypted but still blinded."""

    start: int
    values: Data


@dataclass(frozen=True, slots=True)
class GradientBlock:
    """Gradients with respect to the embeddings of a training batch's rows from `start` on."""

    #: The training step, counted from 0 over all epochs.
    step: int
    start: int
    values: Data


@dataclass(frozen=True, slots=True)
class TestEmbeddingBlock:
    """Cut-layer embeddings of the rows of the test table from `start` on, sent after an epoch."""

    epoch: int
    start: int
    values: Data


@dataclass(frozen=True, slots=True)
class EpochSummary:
    """The mean loss of an epoch and, if there is a test table, its metrics."""

    epoch: int
    loss: float
    auc: float | None = None
    ace: float | None = None
    log_loss: float | None = None


@dataclass(frozen=True, slots=True)
class BundleOffer:
    """The sender's half of a model, and the half that it expects the receiver to hold."""

    run: bytes
    digest: bytes
    #: Empty at the end of training, when it is not known yet.
    peer_digest: bytes = b""


# --- evaluation (evaluation.proto) ---


@dataclass(frozen=True, slots=True)
class EvaluationOpening:
    """The union of evaluation tables that the sender already has, if any, and its people.

    For the active party, `people` is the number of UIDs to score; for the passive party, the
    largest number of UIDs for which it can provide embeddings, stand-ins included.
    """

    union_sha256: bytes
    people: int
    #: The sender has revealed something about people in that union; it must not be replaced.
    started: bool = False


@dataclass(frozen=True, slots=True)
class EvaluationEmbeddingBlock:
    """Cut-layer embeddings of the UIDs of an evaluation union from rank `start` on."""

    start: int
    values: Data


@dataclass(frozen=True, slots=True)
class EvaluationSummary:
    """Estimates with standard errors; all absent if the agreement withholds them."""

    auc: float | None = None
    auc_error: float | None = None
    ace: float | None = None
    ace_error: float | None = None
    log_loss: float | None = None
    log_loss_error: float | None = None


# --- evidence (evidence.proto) ---


@dataclass(frozen=True, slots=True)
class EvidenceContribution:
    """What the sender states about a finished stage, before both sign it."""

    #: What both parties must state alike, as canonical JSON.
    statement: str
    #: What the sender states about itself, as canonical JSON.
    account: str
    #: The sender's certificate and its intermediates in PEM; empty without TLS.
    certificates: bytes


@dataclass(frozen=True, slots=True)
class EvidenceSignature:
    """The sender's signature of the evidence, or why it does not sign."""

    #: SHA-256 of the evidence as the sender has it.
    record_sha256: bytes
    #: Empty if the sender does not sign.
    signature: bytes
    refusal: str = ""


# --- serving (serving.proto) ---


@dataclass(frozen=True, slots=True)
class ServingOffer:
    """The half of a model that the sender serves with; both parties compare them."""

    protocol: int
    release: str
    #: The agreement as canonical JSON.
    agreement: str
    bundle: BundleOffer
    #: SHA-256 of the union whose UIDs are requested in groups; empty if there are no groups.
    union_sha256: bytes


@dataclass(frozen=True, slots=True)
class ServingTerms:
    """The active party's own offer, the model name to send with every call, and the limits."""

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


#: The messages of the service `Prediction`, which are sent without an envelope.
ServingMessage = ServingOffer | ServingTerms | PredictionRequest | PredictionReply

#: The messages that are sent in an envelope.
Message = (
    Hello
    | Heartbeat
    | Abort
    | Goodbye
    | UnionOpening
    | UnionTerms
    | UnionAnnouncement
    | UnionBranches
    | SetHeader
    | SetChunk
    | UnionDigest
    | TrainingOpening
    | NonceReveal
    | EmbeddingBlock
    | GradientBlock
    | TestEmbeddingBlock
    | TransferRequest
    | TransferReply
    | TransferBlock
    | ChoiceBlock
    | OfferBlock
    | AggregateShape
    | AggregateTerms
    | EncryptedLabels
    | AggregateRequest
    | AggregateAnswer
    | EpochSummary
    | BundleOffer
    | EvaluationOpening
    | EvaluationEmbeddingBlock
    | EvaluationSummary
    | EvidenceContribution
    | EvidenceSignature
)
