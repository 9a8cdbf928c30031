"""Section `audit`: how a party audits what it reveals while it trains."""

from __future__ import annotations

from pydantic import Field

from florist.common.settings.section import Section


class AuditSettings(Section):
    """The self-audit: a party attacks what it sends, as its peer could."""

    enabled: bool = Field(
        default=True,
        description="Whether to attack what this party sends, as a curious peer could, while it "
        "trains. The results stay with this party. It takes a few percent of the time.",
    )
    every: int = Field(
        default=100,
        ge=0,
        description="Number of batches between audits of the latest batches. The first 20 batches, "
        "in four windows, and the end of each epoch, on all epochs so far, are always audited; 0: "
        "only these.",
    )
    rows: int = Field(
        default=2000,
        ge=400,
        description="Approximate number of UIDs in the audit sample, the same ones in all epochs, "
        "and of rows in each window of the first batches. More give narrower intervals and take "
        "longer.",
    )
    warn_above: float | None = Field(
        default=0.6,
        ge=0.5,
        le=1,
        description="Warn if the whole confidence interval of an attack's folded AUC is above this "
        "value (0.5 is chance) in any training window or in the whole run; null: never. Intervals "
        "are corrected for the number of comparisons.",
    )
    stop_above: float | None = Field(
        default=None,
        ge=0.5,
        le=1,
        description="Stop the run if that interval is above this value; null: never. The peer "
        "learns that a policy of this party stopped the run, but no number.",
    )
    warn_tpr_above: float | None = Field(
        default=0.05,
        ge=0.01,
        le=1,
        description="Warn if the whole confidence interval of an attack's true positive rate at a "
        "1% false positive rate is above this value (0.01 is chance); null: never.",
    )
    stop_tpr_above: float | None = Field(
        default=None,
        ge=0.01,
        le=1,
        description="Stop the run if that interval is above this value; null: never.",
    )
    keep_view: bool = Field(
        default=False,
        description="Whether to keep what the peer saw of the audit sample, in files that only the "
        "owner may read, so that `florist audit --again` can repeat the attacks.",
    )
