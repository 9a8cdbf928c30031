"""Sections `model`, `optimiser` and `training`: each party chooses them for itself."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo
from pydantic import field_validator as check_field

from florist.common.core.errors import ConfigurationError
from florist.common.core.units import DataSize, size_in_bytes
from florist.common.settings.section import Section

EmbeddingUpdates = Literal["dense", "sparse", "auto"]
OptimiserName = Literal["adam", "adamw", "sgd"]
DeviceName = Literal["auto", "cpu", "cuda", "mps"]

Width = Annotated[int, Field(ge=1, le=65536)]
Layers = Annotated[list[Width], Field(min_length=1)]


class Model(Section):
    """This party's half of the model."""

    embedding_width: int = Field(
        default=4,
        ge=1,
        le=1024,
        description="Embedding size per category of a categorical column.",
    )
    hidden: Layers = Field(
        default=[128, 128],
        description="Number of units of each ReLU layer. Passive party: the last layer is the cut "
        "layer, and its width must be agreement.training.cut_width, unless that is 0. Active "
        "party: the layers of the top model, between the cut layer and the output.",
    )
    tower: Layers = Field(
        default=[128, 128],
        description="Number of units of each ReLU layer for the active party's own features, if it "
        "has any, before they join at the cut layer.",
    )
    embedding_updates: EmbeddingUpdates = Field(
        default="auto",
        description="How the embeddings of categories are updated. dense: all of them in each "
        "step. sparse: only those in the batch; the others keep their weights and moments, which "
        "is faster with many categories. auto: sparse from two million categories.",
    )

    def check_cut_width(self, cut_width: int) -> None:
        """Check that the passive party's model ends at the agreed cut, unless there is none.

        Raises:
            ConfigurationError: its last layer has another width.
        """
        if cut_width and self.hidden[-1] != cut_width:
            raise ConfigurationError(
                f"model.hidden: the last layer has {self.hidden[-1]} units, but the agreed cut has "
                f"{cut_width}; make the last number {cut_width}"
            )


class Optimiser(Section):
    """How this party's half is optimised."""

    name: OptimiserName = Field(
        default="adam",
        description="Optimiser: adam; adamw, with decoupled weight decay; or sgd.",
    )
    learning_rate: float | None = Field(
        default=None,
        gt=0,
        description="Highest learning rate of this party, such as 0.001 or 1e-3. null: as agreed "
        "(agreement.training.learning_rate).",
    )
    weight_decay: float = Field(
        default=0.0,
        ge=0,
        description="Weight decay. With sparse updates, it applies to the embedding of a category "
        "only in steps whose batch contains the category.",
    )
    momentum: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="SGD momentum; must be 0 for the other optimisers.",
    )

    @check_field("momentum")
    @classmethod
    def _only_sgd(cls, momentum: float, info: ValidationInfo) -> float:
        if momentum and info.data.get("name") != "sgd":
            raise ValueError("must be 0 unless optimiser.name is sgd")
        return momentum


class Training(Section):
    """Where and how this party's half is trained."""

    device: DeviceName = Field(
        default="auto",
        description="Device to train on: cpu, cuda, mps (Apple), or auto, which is cuda if "
        "available and cpu otherwise.",
    )
    # Not in the repr: whoever reads it in a log can repeat the secret draws.
    seed: int | None = Field(
        default=None,
        ge=0,
        repr=False,
        description="null: randomness comes from the operating system. A number makes random "
        "choices repeatable, for experiments only: whoever guesses it can repeat the draws of the "
        "synthetic data and the initial weights, which weakens privacy.",
    )
    threads: int = Field(
        default=0, ge=0, description="Number of cores for training; 0: all of them."
    )
    processes: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Number of processes that share the rows of each batch. On cuda, each process "
        "uses its own GPU. On cpu they share the cores, and one process with all cores is usually "
        "as fast. The result is the same as with one process, up to rounding.",
    )
    checkpoint_keep: int = Field(
        default=3,
        ge=2,
        description="Number of checkpoints to keep; older ones are deleted. At least 2, because "
        "the peer may be one checkpoint behind.",
    )
    max_resumptions: int = Field(
        default=64,
        ge=1,
        description="How often a run may be resumed after an interruption. The run then ends; "
        "raise the limit if you know why it is interrupted so often.",
    )
    tensorboard: bool = Field(
        default=False,
        description="Whether to write the losses for TensorBoard, in run_directory.",
    )
    worth: bool = Field(
        default=True,
        description="Whether the report says what the joint model was worth. After the last "
        "message to the peer, the active party trains the same learner on its own data alone, and "
        "compares the two on its test or evaluation table; both parties measure the importance of "
        "their own columns. Nothing is sent for it, and the peer does not wait.",
    )
    mlflow: str | None = Field(
        default=None,
        description="MLflow tracking server of this party's own organisation, such as "
        "http://mlflow.internal:5000, or a file such as sqlite:////srv/florist/mlflow.db. It gets "
        "the losses, the test metrics, and the numbers and choices under agreement.training, model "
        "and optimiser; nothing about people. Needs `pip install florist[mlflow]`. null: none.",
    )
    table_memory: DataSize = Field(
        default="2GB",
        description="Memory for this party's tables during training, in addition to the program "
        "and the model. Larger tables (4 bytes per row and feature) are kept in unlinked temporary "
        "files in run_directory and read batch by batch. A number with MB, GB, MiB or GiB; 0MB "
        "keeps all tables in files.",
    )

    @check_field("mlflow")
    @classmethod
    def _has_no_password(cls, uri: str | None) -> str | None:
        if uri is None:
            return None
        if not uri.startswith(("http://", "https://", "sqlite:///")):
            raise ValueError("must start with http://, https:// or sqlite:///")
        if "@" in uri:
            raise ValueError(
                "must not contain a user or password; set the environment variables "
                "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
            )
        return uri

    @property
    def table_bytes(self) -> int:
        """The memory for tables in bytes."""
        return size_in_bytes(self.table_memory)
