"""The configuration of one party: all its sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field, ValidationInfo
from pydantic import field_validator as check_field

from florist.common.settings.agreement import Agreement
from florist.common.settings.alignment import AlignmentSettings
from florist.common.settings.audit import AuditSettings
from florist.common.settings.compute import ComputeSettings
from florist.common.settings.data import Data
from florist.common.settings.field_types import FilePath
from florist.common.settings.network import Network, Party
from florist.common.settings.observability import Observability
from florist.common.settings.section import Section
from florist.common.settings.serving import Serving
from florist.common.settings.timeouts import Timeouts
from florist.common.settings.training import Model, Optimiser, Training


class PartyConfig(Section):
    """Everything that one party's configuration file contains."""

    renamed_keys: ClassVar[Mapping[str, str]] = {"patience": "timeouts"}

    party: Party = Field(description="Who the two parties are.")
    network: Network = Field(description="Where they meet, and how they know each other.")
    data: Data = Field(description="Our tables.")
    run_directory: FilePath = Field(
        description="Folder for results and checkpoints; made when it is not there."
    )
    alignment: AlignmentSettings = Field(
        default=AlignmentSettings(), description="How we take part in the private set union."
    )
    compute: ComputeSettings = Field(
        default=ComputeSettings(), description="What this machine does the work with."
    )
    model: Model = Field(default=Model(), description="Our half of the model.")
    optimiser: Optimiser = Field(default=Optimiser(), description="How our half learns.")
    training: Training = Field(
        default=Training(), description="Where and how our half of the training runs."
    )
    audit: AuditSettings = Field(
        default=AuditSettings(),
        description="How we watch what we give away: while it trains, a party attacks what it "
        "sends, as its peer could.",
    )
    timeouts: Timeouts = Field(default=Timeouts(), description="How long to wait for the peer.")
    serving: Serving = Field(
        default=Serving(), description="How predictions are given, and got, once a model is there."
    )
    observability: Observability = Field(
        default=Observability(), description="Where our own operators see how the run goes."
    )
    agreement: Agreement = Field(
        default=Agreement(),
        description="What both parties must have alike. They compare it before anything else and "
        "stop at a difference.",
    )

    @check_field("agreement")
    @classmethod
    def _can_have_branches(cls, agreement: Agreement, info: ValidationInfo) -> Agreement:
        compute = info.data.get("compute")
        if agreement.branches > 1 and compute is not None and compute.executor != "ray":
            raise ValueError("branches above 1 run on a Ray cluster: set compute.executor to ray")
        return agreement
