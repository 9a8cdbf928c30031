"""Section `agreement`: the settings that must be the same at both parties."""

from __future__ import annotations

import json
import math
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field
from pydantic import model_validator as check_model

from florist.common.settings.section import Section
from florist.common.settings.union import UnionSettings

GroupName = Literal["x25519", "modp2048", "modp3072"]
Normalisation = Literal["none", "strip", "strip-lower"]
LabelStrategyName = Literal[
    "label-majority", "label-minority", "label-random-pos", "label-random-pred", "label-neighbors"
]
FeatureStrategyName = Literal["fea-sampling", "fea-gaussian", "fea-random"]
WireType = Literal["float32", "bfloat16", "float16"]
StandInMode = Literal["once", "repeated"]
StandInTransfer = Literal["oblivious", "plain"]
PeerGradients = Literal["own-share", "joint"]
AggregateUse = Literal["weights", "donors"]
PassiveLearns = Literal["figures", "nothing"]
CalibrationTime = Literal["none", "train", "test"]
RateScheduleName = Literal["warm-up-and-decay", "constant"]


def _check_batch_size(value: object) -> object:
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise ValueError("must be `auto` or a whole number of at least 1")


def _check_learning_rate(value: object) -> object:
    if value == "auto":
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
        return float(value)
    raise ValueError("must be `auto` or a number above 0")


BatchSize = Annotated[Literal["auto"] | int, BeforeValidator(_check_batch_size)]
LearningRate = Annotated[Literal["auto"] | float, BeforeValidator(_check_learning_rate)]

#: The most offers per UID: the traffic is as many times that of one embedding.
MAX_OFFERS = 16

#: The largest class weight.
MAX_WEIGHT = 10_000

#: Bounds of `auto`. The noise on embeddings is estimated from the rows of a message, so batches
#: must not be too small; above the upper bound, a step has no overhead left to save.
AUTO_BATCH_SIZES = (64, 8192)
#: `auto` learning rates are this divided by the root of the number of steps, up to the second.
AUTO_RATE, MAX_AUTO_RATE = 0.06, 0.005


#: The smallest union with a label aggregate by `auto`. With 36,000 people it cost AUC on SBA loans.
AUTO_AGGREGATE_FROM = 50_000


def auto_batch_size(union_size: int) -> int:
    """Return the power of two nearest to the root of the size, so that steps grow like the root.

    Only integers, because both parties must get the same number.
    """
    smallest, largest = AUTO_BATCH_SIZES
    return min(max(1 << (union_size.bit_length() // 2), smallest), largest)


def auto_learning_rate(steps: int) -> float:
    """Return the highest learning rate for a number of steps, with two digits."""
    return float(f"{min(AUTO_RATE / math.sqrt(steps), MAX_AUTO_RATE):.2g}")


def auto_aggregate_privacy(union_size: int) -> AggregatePrivacy | None:
    """Return the guarantee of the label aggregate for a size of the union; None for small ones."""
    return AggregatePrivacy() if union_size >= AUTO_AGGREGATE_FROM else None


class SyntheticLabels(Section):
    """How the active party generates labels for UIDs that it lacks."""

    strategy: LabelStrategyName = Field(
        default="label-random-pred",
        description="How synthetic labels are chosen. label-majority: the most frequent class. "
        "label-minority: the least frequent class. label-random-pos: drawn from the class "
        "frequencies. label-random-pred: drawn from the model's own prediction. label-neighbors: "
        "from the three nearest embeddings in the batch.",
    )
    samples: int = Field(
        default=1,
        ge=1,
        le=100,
        description="Number of labels drawn per row and averaged, for the two random strategies. "
        "More give a better model and less privacy.",
    )


class SyntheticFeatures(Section):
    """How a party generates features for UIDs that it lacks."""

    strategy: FeatureStrategyName = Field(
        default="fea-sampling",
        description="How synthetic features are chosen. fea-sampling: the features of one of the "
        "party's own rows, drawn at random. fea-gaussian, fea-random: random embeddings, for "
        "experiments only, because the peer can recognise them.",
    )


class AggregatePrivacy(Section):
    """The guarantee of differential privacy for the label aggregate."""

    epsilon: float = Field(
        default=1.0,
        ge=0.01,
        le=100,
        description="How much one person of the active party can change the aggregate: the "
        "probability of anything that the passive party can learn from it changes by a factor of "
        "at most e^epsilon. Smaller is more private, and gives a worse first model.",
    )
    delta: float = Field(
        default=1e-7,
        gt=0,
        lt=1,
        description="Probability with which that factor may be exceeded.",
    )


def _check_aggregate_privacy(value: object) -> object:
    if isinstance(value, str) and value != "auto":
        raise ValueError("must be `auto`, null, or a section with epsilon and delta")
    return value


class AggregateAgreement(Section):
    """The label aggregate: noised sums of labels by category, from which training starts."""

    privacy: Annotated[
        AggregatePrivacy | Literal["auto"] | None, BeforeValidator(_check_aggregate_privacy)
    ] = Field(
        default="auto",
        description="Differential privacy of the aggregate: the sums of the active party's labels "
        "for each category of the passive party's features, computed under encryption and noised, "
        "which give the passive party a first model. auto: chosen by the size of the union; none "
        "for small ones. null: no aggregate.",
    )
    min_count: int = Field(
        default=300,
        ge=1,
        description="Categories with fewer rows of the passive party are merged into one per "
        "column before labels are summed. The larger it is, the less single people weigh in the "
        "sums.",
    )
    uses: list[AggregateUse] = Field(
        default=["weights", "donors"],
        min_length=1,
        description="What the first model is used for. weights: the wide part starts with its "
        "weights. donors: with oblivious stand-ins, the classes of donors are drawn from it before "
        "their labels are shown, so that stand-ins fit the label from the first batch on.",
    )


class TrainingAgreement(Section):
    """How the model is trained on the union."""

    classes: int = Field(
        default=2, ge=2, le=10_000, description="Number of label classes; 2 for a binary label."
    )
    class_names: list[str] = Field(
        default=[],
        description="Texts of the labels, in the order of the classes, which is that of the "
        "predicted probabilities; with two classes the second one is predicted. Agreed, so that "
        "both parties read predictions alike. []: integers from 0 to classes - 1, or with more "
        "than two classes any texts, in sorted order.",
    )
    class_weights: list[float] = Field(
        default=[],
        description="With two classes: how much each row counts in the loss by its label, for "
        "example [1, 20] if class 1 is rare. Only the ratio matters. The loss corrects for the "
        "weights, so that predictions stay calibrated probabilities. []: all rows count alike.",
    )
    epochs: int = Field(
        default=1,
        ge=1,
        description="Number of passes over the union. Each pass reveals more about every UID, so "
        "fewer are more private.",
    )
    batch_size: BatchSize = Field(
        default="auto",
        description="Number of UIDs per optimiser step. Larger batches need fewer messages, which "
        "helps on a slow network, but need more people: a model learns little in fewer than 100 "
        "steps. auto: chosen by the size of the union.",
    )
    learning_rate: LearningRate = Field(
        default="auto",
        description="Highest learning rate of both parties, such as 0.001 or 1e-3. auto: chosen by "
        "the number of steps. A party can change its own with optimiser.learning_rate.",
    )
    rate_schedule: RateScheduleName = Field(
        default="warm-up-and-decay",
        description="How the learning rate changes during training. warm-up-and-decay: it rises in "
        "the first steps, and falls to nearly 0 at the end. constant: it is the same in all steps.",
    )
    micro_batch: int = Field(
        default=512,
        ge=1,
        description="Number of rows per message. While one party computes one part of a batch, the "
        "other computes the next. Noise and the rates of synthetic labels are estimated per "
        "message, so at least some hundred rows are advisable; else it does not change the result.",
    )
    cut_width: int = Field(
        default=0,
        ge=0,
        le=65_536,
        description="Width of the embeddings at the cut layer. 0: late fusion; the passive party's "
        "network computes its share of the logits, and sends one number per output of the model. "
        "The paper has 128. More numbers per person can describe how both parties' features "
        "interact, and reveal more.",
    )
    wide: bool = Field(
        default=True,
        description="Whether the model has a wide part: one weight per category and output, whose "
        "sum is added to the logits. The passive party sends its sum with each embedding.",
    )
    wire_type: WireType = Field(
        default="float32",
        description="Number format on the wire. float32 is exact; bfloat16 and float16 halve the "
        "traffic and round.",
    )
    checkpoint_every: int = Field(
        default=200,
        ge=0,
        description="Number of steps between checkpoints. The end of each epoch is always saved; "
        "0: only that.",
    )
    sticky: bool = Field(
        default=True,
        description="Whether the synthetic data of a UID stay the same in all epochs. If not, the "
        "peer can recognise them because they change.",
    )
    masking: bool = Field(
        default=True,
        description="Whether each party excludes its own synthetic rows from its own update.",
    )
    embedding_noise: float = Field(
        default=0.1,
        ge=0,
        le=10,
        description="Noise added to every embedding, in standard deviations of the embeddings "
        "along each direction. Without it, the peer can recognise copied rows because two "
        "embeddings are equal.",
    )
    averaging: bool = Field(
        default=True,
        description="Whether each party's final weights are the average over the last tenth of the "
        "steps, which reduces the noise from synthetic data.",
    )
    calibration: CalibrationTime = Field(
        default="train",
        description="When the shift caused by synthetic data is corrected. train: in the loss (-tr "
        "in the paper). test: in the predictions (-te in the paper). none: never.",
    )
    test_table: bool = Field(
        default=False,
        description="Whether both parties have a test table, with the same people, on which the "
        "model is tested after each epoch.",
    )
    labels: SyntheticLabels = Field(
        default=SyntheticLabels(), description="Labels for UIDs that the active party lacks."
    )
    features: SyntheticFeatures = Field(
        default=SyntheticFeatures(), description="Features for UIDs that a party lacks."
    )
    gradients: PeerGradients = Field(
        default="own-share",
        description="What the gradients for the passive party are of, with late fusion (cut_width "
        "0). own-share: its share of the logits alone, so they reveal the label and nothing about "
        "the active party's features. joint: the whole model, so that they also show what the "
        "active party's features contribute, and whether that fits. Makes no difference if the "
        "active party has no features; with a cut it is always the whole model.",
    )
    stand_ins: StandInTransfer = Field(
        default="oblivious",
        description="How the passive party sends embeddings. oblivious: for people whom it lacks, "
        "it offers the features of one row of each class, and the active party opens the offer of "
        "its label, without revealing which; so stand-ins fit the label, and cannot be recognised "
        "by it. Takes as many times the traffic as there are classes. plain: one embedding, drawn "
        "regardless of the label.",
    )

    aggregate: AggregateAgreement = Field(
        default=AggregateAgreement(),
        description="The label aggregate, from which training starts. Needs wide: true.",
    )

    @check_model(mode="after")
    def _classes_have_names(self) -> Self:
        names = self.class_names
        if names and len(names) != self.classes:
            raise ValueError(
                f"class_names lists {len(names)}, but classes is {self.classes}; correct one"
            )
        if len(set(names)) < len(names) or any(not name.strip() for name in names):
            raise ValueError("class_names: each name must be non-empty and listed once")
        return self

    @check_model(mode="after")
    def _weights_are_usable(self) -> Self:
        weights = self.class_weights
        if not weights:
            return self
        problem = None
        if self.classes != 2:
            problem = "only supported with two classes; set class_weights: []"
        elif len(weights) != 2:
            problem = f"must list two numbers, of class 0 and class 1, not {len(weights)}"
        elif not all(0 < weight <= MAX_WEIGHT for weight in weights):
            problem = f"must be above 0 and at most {MAX_WEIGHT:,}"
        elif not self.wide:
            problem = "need wide: true, because labels are read off the gradient of the wide part"
        if problem:
            raise ValueError(f"class_weights: {problem}")
        return self

    @check_model(mode="after")
    def _something_is_sent(self) -> Self:
        if not self.cut_width and not self.wide:
            raise ValueError("cut_width: 0 needs wide: true; or set a width, such as 128")
        return self

    @check_model(mode="after")
    def _offers_are_possible(self) -> Self:
        if self.stand_ins == "plain":
            return self
        problem = None
        if not self.wide:
            problem = "wide: true, because labels are read off the gradient of the wide part"
        elif self.features.strategy != "fea-sampling":
            problem = "features.strategy: fea-sampling, because a stand-in is a row of the table"
        elif self.labels.strategy in {"label-majority", "label-minority"}:
            problem = (
                "another labels.strategy, because rows without a label would all be donors of one "
                "class"
            )
        elif self.classes > MAX_OFFERS:
            problem = f"at most {MAX_OFFERS} classes, because each one is an offer"
        if problem:
            raise ValueError(f"stand_ins: oblivious needs {problem}; or set stand_ins: plain")
        return self

    @check_model(mode="after")
    def _an_aggregate_is_usable(self) -> Self:
        if not self.wide and isinstance(self.aggregate.privacy, AggregatePrivacy):
            raise ValueError(
                "aggregate.privacy needs wide: true, because the first model is a wide part; or "
                "set aggregate.privacy: null"
            )
        return self

    @property
    def loss_weights(self) -> tuple[float, float] | None:
        """The weights of class 0 and class 1, with a mean of 1; None if all rows count alike."""
        if not self.class_weights or len(set(self.class_weights)) == 1:
            return None
        zero, one = self.class_weights
        return 2 * zero / (zero + one), 2 * one / (zero + one)

    @property
    def outputs(self) -> int:
        """The number of logits per row: one for two classes, otherwise one per class."""
        return 1 if self.classes == 2 else self.classes

    @property
    def wide_outputs(self) -> int:
        """The number of values of the wide part per row; 0 without one."""
        return self.outputs if self.wide else 0

    @property
    def wire_width(self) -> int:
        """The width of embeddings and gradients on the wire: the cut, then the wide part."""
        return self.cut_width + self.wide_outputs

    @property
    def offers(self) -> int:
        """The number of embeddings that the passive party sends for each row of a batch."""
        return 1 if self.stand_ins == "plain" else self.classes

    @property
    def shows_shares_only(self) -> bool:
        """Whether gradients for the passive party are those of its share of the logits alone."""
        return not self.cut_width and self.gradients == "own-share"

    @property
    def known_batch_size(self) -> int:
        """The batch size of a resolved agreement."""
        if self.batch_size == "auto":
            raise ValueError("the batch size is not resolved")
        return self.batch_size

    @property
    def known_learning_rate(self) -> float:
        """The learning rate of a resolved agreement."""
        if self.learning_rate == "auto":
            raise ValueError("the learning rate is not resolved")
        return self.learning_rate

    @property
    def has_donors_from_the_start(self) -> bool:
        """Whether all stand-ins fit the label, also those of the first batches."""
        has_aggregate = self.known_aggregate_privacy is not None
        return self.stand_ins == "oblivious" and has_aggregate and "donors" in self.aggregate.uses

    @property
    def known_aggregate_privacy(self) -> AggregatePrivacy | None:
        """The guarantee of the label aggregate of a resolved agreement; None without one."""
        if self.aggregate.privacy == "auto":
            raise ValueError("the privacy of the aggregate is not resolved")
        return self.aggregate.privacy

    @property
    def most_aggregate_privacy(self) -> AggregatePrivacy | None:
        """The guarantee of the label aggregate, or the one that `auto` gives to large unions.

        It is the most that an aggregate can cost before the size of the union is known. None: there
        is no aggregate.
        """
        if self.aggregate.privacy != "auto":
            return self.aggregate.privacy
        return AggregatePrivacy() if self.wide else None

    def resolved(self, union_size: int) -> TrainingAgreement:
        """Return this agreement with numbers instead of `auto`, for a union of this size.

        Both parties know the size of the union, so that they get the same numbers.
        """
        batch_size = self.batch_size
        if batch_size == "auto":
            batch_size = auto_batch_size(union_size)
        rate = self.learning_rate
        if rate == "auto":
            rate = auto_learning_rate(self.epochs * -(-union_size // batch_size))
        privacy = self.aggregate.privacy
        if privacy == "auto":
            privacy = auto_aggregate_privacy(union_size) if self.wide else None
        aggregate = self.aggregate.model_copy(update={"privacy": privacy})
        return self.model_copy(
            update={"batch_size": batch_size, "learning_rate": rate, "aggregate": aggregate}
        )

    def steps(self, union_size: int) -> int:
        """Return the number of optimiser steps of a resolved agreement."""
        return self.epochs * -(-union_size // self.known_batch_size)


class EvaluationAgreement(Section):
    """How the finished model is evaluated without revealing which people are shared."""

    table: bool = Field(
        default=False,
        description="Whether both parties have an evaluation table, each with its own people. If "
        "so, `--stage all` ends with an evaluation.",
    )
    stand_ins: StandInMode = Field(
        default="once",
        description="Which rows the passive party sends for people whom it lacks. once: rows that "
        "it keeps out of the union (up to a third of its table), each for one person, so that they "
        "cannot be recognised; at most as many people as there are such rows are scored. repeated: "
        "any of its rows, and all people are scored; for experiments only, because the active "
        "party can recognise repeated rows.",
    )
    passive_learns: PassiveLearns = Field(
        default="figures",
        description="What the passive party learns at the end. figures: the estimated AUC, ACE and "
        "log loss with their standard errors. nothing: only that the evaluation is complete.",
    )
    max_models: int = Field(
        default=8,
        ge=1,
        le=1024,
        description="How many models may be evaluated on the same people. Each one shows the "
        "active party one more embedding of each person, and the passive party, which may choose "
        "the embeddings if its software is modified, three more figures.",
    )


class ServingAgreement(Section):
    """How predictions are requested if the active party has features of its own."""

    table: Literal["train", "test"] = Field(
        default="train",
        description="If the active party has features: the aligned table, train or test, whose "
        "people can be predicted.",
    )
    hiding_size: int = Field(
        default=256,
        ge=2,
        le=65_536,
        description="If the active party has features: the number of UIDs among which each "
        "requested person is hidden. The union is divided into fixed groups of this size, and "
        "requests name whole groups.",
    )


class Agreement(Section):
    """The settings that must be the same at both parties; compared before any data is sent."""

    group: GroupName = Field(
        default="x25519",
        description="Group in which IDs are encrypted. x25519 is fast; modp2048 and modp3072 "
        "(bits) are those of the paper and more than a hundred times slower.",
    )
    id_normalisation: Normalisation = Field(
        default="strip",
        description="How IDs are normalised before they are compared. none: not at all. strip: "
        "whitespace at both ends is removed. strip-lower: the same, and A-Z become a-z.",
    )
    branches: int = Field(
        default=1,
        ge=1,
        le=256,
        description="Number of processes of each party that align in parallel, each with one of "
        "the peer's, for parties that both have a cluster. Above 1, compute.executor must be ray.",
    )
    union: UnionSettings = Field(
        default=UnionSettings(),
        description="What the private set union reveals, and the overlaps with which a run "
        "continues.",
    )
    training: TrainingAgreement = Field(
        default=TrainingAgreement(), description="How the model is trained on the union."
    )
    evaluation: EvaluationAgreement = Field(
        default=EvaluationAgreement(), description="How the finished model is evaluated."
    )
    serving: ServingAgreement = Field(
        default=ServingAgreement(), description="How predictions are requested."
    )

    def canonical(self) -> str:
        """Return this agreement as canonical JSON: sorted keys, no whitespace, ASCII."""
        values = self.model_dump(mode="json")
        return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
