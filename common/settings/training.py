"""The private part of training: what one party decides by itself, unseen by its peer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo
from pydantic import field_validator as check_field

from florist.common.core.units import DataSize, size_in_bytes
from florist.common.settings.section import Section

EmbeddingUpdates = Literal["dense", "sparse", "auto"]
OptimiserName = Literal["adam", "adamw", "sgd"]
DeviceName = Literal["auto", "cpu", "cuda", "mps"]

Width = Annotated[int, Field(ge=1, le=65536)]
Layers = Annotated[list[Width], Field(min_length=1)]


class Model(Section):
    """Our half of the model."""

    embedding_width: int = Field(
        default=4, ge=1, le=1024, description="Numbers that stand for a category, per column."
    )
    hidden: Layers = Field(
        default=[128, 128],
        description="Units of each ReLU layer of our half. On the passive side the last one is the "
        "cut, and as wide as the agreement says; on the active side they are those of the top "
        "model, between the cut and the output.",
    )
    tower: Layers = Field(
        default=[128, 128],
        description="Units of each ReLU layer that the active party's own features, if it has any, "
        "go through before they join at the cut.",
    )
    embedding_updates: EmbeddingUpdates = Field(
        default="auto",
        description="How the embeddings of categories learn. dense: all of them at each step; "
        "sparse: those of the batch only, while the others keep their place and their moments, "
        "which is faster for many categories; auto: sparse from two million categories on.",
    )


class Optimiser(Section):
    """How our half learns."""

    name: OptimiserName = Field(
        default="adam",
        description="Rule by which weights follow their gradients: adam; adamw, which decays the "
        "weights apart from the gradients; sgd.",
    )
    learning_rate: float = Field(
        default=1e-3,
        gt=0,
        description="Size of a step, such as 0.001; YAML takes 1e-3 for a text. With millions of "
        "people, take less.",
    )
    weight_decay: float = Field(
        default=0.0,
        ge=0,
        description="Pull of all weights towards zero. With sparse updates it reaches a category's "
        "embedding in those steps only whose batch holds the category.",
    )
    momentum: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Part of the last step that sgd repeats in the next one; 0 for the others.",
    )

    @check_field("momentum")
    @classmethod
    def _only_sgd(cls, momentum: float, info: ValidationInfo) -> float:
        if momentum and info.data.get("name") != "sgd":
            raise ValueError("must be 0 unless the optimiser's name is sgd")
        return momentum


class Training(Section):
    """Where and how our half of the training runs."""

    device: DeviceName = Field(
        default="auto",
        description="What computes: cpu, cuda, mps (Apple), or auto, which takes cuda where there "
        "is one and else cpu.",
    )
    # Not in the repr: whoever reads it in a log can repeat our secret draws.
    seed: int | None = Field(
        default=None,
        ge=0,
        repr=False,
        description="Empty: our random choices come from the operating system. A number makes them "
        "the same in each run, for experiments. It weakens privacy: whoever guesses it can repeat "
        "the draws behind our synthetic data and our first weights.",
    )
    threads: int = Field(
        default=0, ge=0, description="Number of cores to train with; 0 stands for all of them."
    )
    processes: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Number of processes that share the rows of each batch. On cuda each has a GPU "
        "of its own; on cpu they share the cores, and one process with all cores is mostly as "
        "fast. The result is that of one process, but for rounding.",
    )
    checkpoint_keep: int = Field(
        default=3,
        ge=2,
        description="Number of checkpoints to keep; older ones are deleted. Two at least: the peer "
        "may be one behind.",
    )
    tensorboard: bool = Field(
        default=False, description="Whether to write losses for TensorBoard, in the run directory."
    )
    table_memory: DataSize = Field(
        default="2GB",
        description="Memory for our tables while we train, beside the program and the model. What "
        "takes more, at 4 bytes per row and feature, is kept in files without a name in "
        "run_directory, and read from there batch by batch. A number with MB, GB, MiB or GiB; 0MB "
        "keeps all of it in files.",
    )

    @property
    def table_bytes(self) -> int:
        return size_in_bytes(self.table_memory)
