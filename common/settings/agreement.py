"""The part of the configuration on which both parties must agree, and how they compare it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field

from florist.common.core.errors import ProtocolViolation

if TYPE_CHECKING:
    from collections.abc import Iterator

GroupName = Literal["x25519", "modp2048", "modp3072"]
Normalisation = Literal["none", "strip", "strip-lower"]
LabelStrategyName = Literal[
    "label-majority", "label-minority", "label-random-pos", "label-random-pred", "label-neighbors"
]
FeatureStrategyName = Literal["fea-sampling", "fea-gaussian", "fea-random"]
WireType = Literal["float32", "bfloat16", "float16"]
StandIns = Literal["once", "repeated"]
PassiveLearns = Literal["figures", "nothing"]
CalibrationTime = Literal["none", "train", "test"]

#: Bounds on a peer's agreement, far above any that a release writes.
MAX_TEXT = 64 * 1024
MAX_FIELDS = 256
MAX_DEPTH = 8

_SHOWN = 60
_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
#: A JSON string that reads as one without its quotes.
_PLAIN = re.compile(r'"(?!(?:true|false|null)")[A-Za-z][A-Za-z0-9_.-]*"')


class Section(BaseModel):
    """A group of keys in a configuration: unknown keys and near-miss types are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True
    )

    #: Keys that an earlier release named differently: old dotted path -> new dotted path. Read from
    #: the class that is loaded from a file (`PartyConfig`, for example), not from its sections.
    renamed_keys: ClassVar[Mapping[str, str]] = {}


class SyntheticLabels(Section):
    """How the active party fills in labels for UIDs that it lacks."""

    strategy: LabelStrategyName = Field(
        default="label-random-pred",
        description="label-majority: the frequent class; label-minority: the rare one; "
        "label-random-pos: drawn by the frequency of the classes; label-random-pred: drawn by the "
        "model's own prediction; label-neighbors: by the three nearest embeddings of the batch.",
    )
    samples: int = Field(
        default=1,
        ge=1,
        le=100,
        description="Labels drawn per row and averaged, for the two random strategies. More give "
        "a better model and worse privacy.",
    )


class SyntheticFeatures(Section):
    """How a party fills in features for UIDs that it lacks."""

    strategy: FeatureStrategyName = Field(
        default="fea-sampling",
        description="fea-sampling: those of a random own row; fea-gaussian and fea-random: random "
        "embeddings, which the peer can tell apart: for experiments only.",
    )


class TrainingAgreement(Section):
    """What both must know to train together."""

    classes: int = Field(
        default=2, ge=2, le=10_000, description="Number of classes of the label; 2 is yes or no."
    )
    epochs: int = Field(
        default=1,
        ge=1,
        description="Passes over the union. Each shows every UID again, so fewer are more private.",
    )
    batch_size: int = Field(
        default=1024,
        ge=1,
        description="UIDs per step of the optimisers. Larger ones need fewer messages, which "
        "counts on a slow line, and more people: little is learned in less than some hundred.",
    )
    micro_batch: int = Field(
        default=512,
        ge=1,
        description="Rows per message: while one party works on a part of a batch, the other works "
        "on the next. The result is that of the whole batch.",
    )
    cut_width: int = Field(
        default=128, ge=1, le=65_536, description="Width of the embeddings at the cut layer."
    )
    wire_type: WireType = Field(
        default="float32",
        description="Numbers on the line: float32; bfloat16 and float16 halve the traffic and "
        "round.",
    )
    checkpoint_every: int = Field(
        default=200,
        ge=0,
        description="Steps between two checkpoints, besides one at the end of each epoch; 0 makes "
        "only those.",
    )
    sticky: bool = Field(
        default=True,
        description="Whether synthetic data of a UID stay the same in all epochs. If not, the peer "
        "can tell them by their changing.",
    )
    masking: bool = Field(
        default=True,
        description="Whether each party leaves its own synthetic rows out of its own update.",
    )
    embedding_noise: float = Field(
        default=0.3,
        ge=0,
        le=10,
        description="Noise on every embedding, in standard deviations along each direction in "
        "which embeddings differ: without it, copied rows are recognised by their twins.",
    )
    averaging: bool = Field(
        default=True,
        description="Whether each party ends with the mean of its weights over the last tenth of "
        "the steps, which holds less of the synthetic data's noise than the last ones.",
    )
    calibration: CalibrationTime = Field(
        default="train",
        description="When the shift caused by synthetic data is taken out: in the loss (train, the "
        "paper's -tr), from predictions (test, -te), or never (none).",
    )
    test_table: bool = Field(
        default=False,
        description="Whether both parties have a test table, with the same people, to evaluate on "
        "after each epoch.",
    )
    labels: SyntheticLabels = Field(
        default=SyntheticLabels(), description="Labels for UIDs that the active party lacks."
    )
    features: SyntheticFeatures = Field(
        default=SyntheticFeatures(), description="Features for UIDs that a party lacks."
    )


class EvaluationAgreement(Section):
    """How the finished model is measured on people of whom nobody knows who is shared."""

    table: bool = Field(
        default=False,
        description="Whether both parties have an evaluation table, each of its own people: then "
        "`--stage all` ends with an evaluation.",
    )
    stand_ins: StandIns = Field(
        default="once",
        description="Whose features the passive party sends for people whom it lacks. once: rows "
        "that it keeps out of the union, up to a third of its table, each for one person, so that "
        "nothing sets them apart; the active party has no more people scored than there are such "
        "rows. repeated: any of its rows, and all people are scored; but the active party can tell "
        "a copy by its twin: for experiments.",
    )
    passive_learns: PassiveLearns = Field(
        default="figures",
        description="What the passive party is told in the end. figures: the estimates of AUC, ACE "
        "and log loss with their errors. nothing: that it is over.",
    )


class ServingAgreement(Section):
    """How predictions are asked for where the active party has features of its own."""

    table: Literal["train", "test"] = Field(
        default="train",
        description="Where the active party has features: the aligned table, train or test, whose "
        "people can be asked for.",
    )
    hiding_size: int = Field(
        default=256,
        ge=2,
        le=65_536,
        description="Where the active party has features: the number of UIDs among which each "
        "person asked for is hidden. The union is divided into groups of this size once and for "
        "all, and asked for group by group.",
    )


class Agreement(Section):
    """What both parties must have alike; compared before any data crosses the wire."""

    group: GroupName = Field(
        default="x25519",
        description="Group in which IDs are encrypted. x25519 is the fast one; modp2048 and "
        "modp3072 (bits) are the paper's own, more than a hundred times slower.",
    )
    id_normalisation: Normalisation = Field(
        default="strip",
        description="What is done to each ID before it is compared. none: nothing; strip: white "
        "space is removed at both ends; strip-lower: that, and A-Z become a-z.",
    )
    branches: int = Field(
        default=1,
        ge=1,
        le=256,
        description="Number of processes of each party that align together, each with one of the "
        "peer's: for parties that both have a cluster. More than 1 needs compute.executor ray.",
    )
    training: TrainingAgreement = Field(
        default=TrainingAgreement(), description="How the model is trained on the union."
    )
    evaluation: EvaluationAgreement = Field(
        default=EvaluationAgreement(), description="How the finished model is measured."
    )
    serving: ServingAgreement = Field(
        default=ServingAgreement(), description="How predictions are asked for."
    )

    def canonical(self) -> str:
        """The one JSON text of this agreement: sorted keys, no white space, ASCII."""
        values = self.model_dump(mode="json")
        return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)


def differences(ours: str, theirs: str) -> list[str]:
    """Compare two canonical agreements: a line per field that differs, sorted; empty if none does.

    Lists are compared whole. `theirs` is not trusted: what is shown of it is short, printable
    ASCII.

    Raises:
        ProtocolViolation: the peer's text is no agreement of any release.
    """
    here, there = _fields(ours), _fields(theirs)
    return [
        f"agreement.{key}: {_shown(here.get(key))} here, {_shown(there.get(key))} at the peer"
        for key in sorted(here.keys() | there.keys())
        if here.get(key) != there.get(key)
    ]


def _fields(text: str) -> dict[str, str]:
    """Dotted key to the value's JSON text, which keeps apart what Python does not: 1, 1.0, true."""
    if len(text) > MAX_TEXT:
        raise ProtocolViolation(f"the peer's agreement is longer than {MAX_TEXT} characters")
    try:
        values = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
        if not isinstance(values, dict):
            raise ProtocolViolation("the peer's agreement is not a JSON object")
        fields = dict(_leaves(values, ()))
    except (ValueError, RecursionError):
        # The parser's own message quotes the peer's text; ours does not.
        raise ProtocolViolation("the peer's agreement is not valid JSON") from None
    if len(fields) > MAX_FIELDS:
        raise ProtocolViolation(f"the peer's agreement has more than {MAX_FIELDS} fields")
    return fields


def _leaves(values: dict[str, Any], above: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if len(above) >= MAX_DEPTH:
        raise ProtocolViolation(f"the peer's agreement is nested deeper than {MAX_DEPTH} levels")
    for key, value in values.items():
        path = (*above, key)
        if isinstance(value, dict) and value:
            yield from _leaves(value, path)
        else:
            yield ".".join(path), json.dumps(value, sort_keys=True, separators=(",", ":"))


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ProtocolViolation("the peer's agreement has a key twice")
    if not all(_KEY.fullmatch(key) for key in values):
        raise ProtocolViolation("the peer's agreement has a key that is no field name")
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _shown(value: str | None) -> str:
    """A JSON text (ASCII, control characters escaped), cut short; simple strings unquoted."""
    if value is None:
        return "not known"
    text = value[1:-1] if _PLAIN.fullmatch(value) else value
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
