"""The configuration of one party: all its sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field, ValidationInfo
from pydantic import field_validator as check_field

from florist.common.core.roles import RoleName
from florist.common.settings.agreement import Agreement
from florist.common.settings.alignment import AlignmentSettings
from florist.common.settings.audit import AuditSettings
from florist.common.settings.compute import ComputeSettings
from florist.common.settings.data import Data
from florist.common.settings.field_types import FilePath
from florist.common.settings.network import Network, Party
from florist.common.settings.observability import Observability
from florist.common.settings.privacy import PrivacySettings
from florist.common.settings.section import Section
from florist.common.settings.serving import Serving
from florist.common.settings.timeouts import Timeouts
from florist.common.settings.training import Model, Optimiser, Training


class Contact(Section):
    """The part of a configuration that a party needs to contact its peer."""

    role: RoleName | None = None
    party: Party
    network: Network
    timeouts: Timeouts = Timeouts()


class PartyConfig(Section):
    """The contents of one party's configuration file."""

    renamed_keys: ClassVar[Mapping[str, str]] = {
        "patience": "timeouts",
        "serving.answer": "serving.answer_timeout",
        "serving.drain": "serving.drain_timeout",
        "serving.idle": "serving.idle_timeout",
    }

    role: RoleName | None = Field(
        default=None,
        description="The side that this party takes. active: it has the labels, and listens. "
        "passive: it has features, and connects. null: the option --role decides.",
    )
    party: Party = Field(description="The names of the two parties.")
    network: Network = Field(description="How the parties connect and authenticate each other.")
    data: Data = Field(description="The tables of this party.")
    run_directory: FilePath = Field(
        description="Folder for results and checkpoints; created if it does not exist."
    )
    alignment: AlignmentSettings = Field(
        default=AlignmentSettings(),
        description="How this party takes part in the private set union.",
    )
    privacy: PrivacySettings = Field(
        default=PrivacySettings(),
        description="The privacy ledger: what the unions with the peer cost so far, and what more "
        "they may cost.",
    )
    compute: ComputeSettings = Field(
        default=ComputeSettings(), description="What this party computes the alignment with."
    )
    model: Model = Field(default=Model(), description="This party's half of the model.")
    optimiser: Optimiser = Field(
        default=Optimiser(), description="How this party's half is optimised."
    )
    training: Training = Field(
        default=Training(), description="Where and how this party's half is trained."
    )
    audit: AuditSettings = Field(
        default=AuditSettings(),
        description="Self-audit: while it trains, this party attacks what it sends, as its peer "
        "could, and measures what leaks.",
    )
    timeouts: Timeouts = Field(default=Timeouts(), description="How long to wait for the peer.")
    serving: Serving = Field(
        default=Serving(), description="How predictions are served and requested after training."
    )
    observability: Observability = Field(
        default=Observability(), description="Where this party's operators monitor a run."
    )
    agreement: Agreement = Field(
        default=Agreement(),
        description="Settings that must be the same at both parties. The parties compare them "
        "before anything else and stop if they differ.",
    )

    @check_field("agreement")
    @classmethod
    def _check_positive_label(cls, agreement: Agreement, info: ValidationInfo) -> Agreement:
        data, training = info.data.get("data"), agreement.training
        if data is None or data.train.positive_label is None:
            return agreement
        if training.classes != 2 or training.class_names:
            raise ValueError(
                "training: data.train.positive_label divides the labels into two classes, so it "
                "needs classes: 2 and class_names: []; or remove it"
            )
        return agreement

    @check_field("agreement")
    @classmethod
    def _check_branches(cls, agreement: Agreement, info: ValidationInfo) -> Agreement:
        compute = info.data.get("compute")
        if agreement.branches > 1 and compute is not None and compute.executor != "ray":
            raise ValueError("branches above 1 require a Ray cluster: set compute.executor to ray")
        return agreement
