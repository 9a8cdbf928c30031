"""Section `agreement`: the settings that must be the same at both parties."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import Field

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
PassiveLearns = Literal["figures", "nothing"]
CalibrationTime = Literal["none", "train", "test"]


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


class TrainingAgreement(Section):
    """How the model is trained on the union."""

    classes: int = Field(
        default=2, ge=2, le=10_000, description="Number of label classes; 2 for a binary label."
    )
    epochs: int = Field(
        default=1,
        ge=1,
        description="Number of passes over the union. Each pass reveals more about every UID, so "
        "fewer are more private.",
    )
    batch_size: int = Field(
        default=1024,
        ge=1,
        description="Number of UIDs per optimiser step. Larger batches need fewer messages, which "
        "helps on a slow network, but need more people: a model learns little in fewer than 100 "
        "steps.",
    )
    micro_batch: int = Field(
        default=512,
        ge=1,
        description="Number of rows per message. While one party computes one part of a batch, the "
        "other computes the next. Noise and the rates of synthetic labels are estimated per "
        "message, so at least some hundred rows are advisable; else it does not change the result.",
    )
    cut_width: int = Field(
        default=128, ge=1, le=65_536, description="Width of the embeddings at the cut layer."
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
        default=0.3,
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
