"""Section `privacy`: how this party accounts for what it reveals to one peer over time."""

from __future__ import annotations

from pydantic import Field

from florist.common.settings.field_types import FilePath
from florist.common.settings.section import Section


class PrivacyBudget(Section):
    """The sum of what all unions and label aggregates with one peer may cost."""

    epsilon: float = Field(
        default=10.0,
        gt=0,
        description="Largest sum of `agreement.union.privacy.epsilon` over all unions with this "
        "peer: the training and test tables of each run count once each, the evaluation table "
        "twice (once with stand_ins: repeated). At the active party, the epsilon of each label "
        "aggregate (agreement.training.aggregate.privacy) is added.",
    )
    delta: float = Field(
        default=1e-6,
        gt=0,
        lt=1,
        description="Largest sum of delta over the same unions and label aggregates.",
    )


class PrivacySettings(Section):
    """The privacy ledger: what was revealed to a peer so far, and what more may be."""

    ledger: FilePath | None = Field(
        default=None,
        description="Folder of the privacy ledgers, with one folder per peer in it. All runs with "
        "the same peer must use the same folder, or their costs are not added up. null: the folder "
        "`ledger` next to the run directory.",
    )
    budget: PrivacyBudget | None = Field(
        default=PrivacyBudget(),
        description="Limit on the sum of what the unions and label aggregates with this peer cost. "
        "A run that would exceed it is rejected before the parties connect. null: no limit; the "
        "costs are still recorded.",
    )
    minimum_change: int = Field(
        default=1000,
        ge=0,
        description="A run is rejected if this party's table differs from that of the previous run "
        "with this peer by at least 1 and at most this number of people, because the difference "
        "between the two results would tell about just those people. `--accept-difference REASON` "
        "overrides this once; 0: never rejected.",
    )
