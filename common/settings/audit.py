"""Section `audit`: how a party audits what it reveals while it trains."""

from __future__ import annotations

from pydantic import Field

from florist.common.settings.section import Section


class AuditSettings(Section):
    """How we watch what we give away: each party attacks what it sends, as its peer could."""

    enabled: bool = Field(
        default=True,
        description="Whether to attack what we send, as a curious peer would, while we train. The "
        "figures stay with us. It takes a few hundredths of the time.",
    )
    every: int = Field(
        default=100,
        ge=0,
        description="Batches between two audits of the last batches, besides one of all epochs so "
        "far at the end of each epoch; 0 makes only those.",
    )
    rows: int = Field(
        default=2000,
        ge=400,
        description="UIDs, about, that an audit judges by, the same ones in all epochs. More make "
        "narrower intervals, and take longer.",
    )
    warn_above: float | None = Field(
        default=0.6,
        ge=0.5,
        le=1,
        description="We are warned when an attack's folded AUC is above this (0.5 is chance), with "
        "all of its confidence interval; null: never.",
    )
    stop_above: float | None = Field(
        default=None,
        ge=0.5,
        le=1,
        description="The run is stopped when it is above this; null: never. The peer is told that "
        "a policy of ours did it, and no figure.",
    )
    warn_tpr_above: float | None = Field(
        default=0.05,
        ge=0.01,
        le=1,
        description="We are warned when an attack finds more than this share of the people, if it "
        "may be wrong about 1% of the others (0.01 is chance), with all of its interval; null: "
        "never.",
    )
    stop_tpr_above: float | None = Field(
        default=None,
        ge=0.01,
        le=1,
        description="The run is stopped when it finds more than this share; null: never.",
    )
    keep_view: bool = Field(
        default=False,
        description="Whether to keep, readable by us alone, what the peer saw of the UIDs that the "
        "audit follows, so that `florist audit --again` can attack it anew.",
    )
