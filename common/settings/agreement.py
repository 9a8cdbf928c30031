"""Section `agreement`: the settings that must be the same at both parties."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import Field

from florist.common.settings.section import Section

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
    stand_ins: StandInMode = Field(
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
