"""`florist rehearse`: what the run would reveal about the features of both parties."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from florist.experiments.rehearsal import check_policy, rehearse

if TYPE_CHECKING:
    from rich.console import Console

    from florist.common.settings.party_config import PartyConfig
    from florist.experiments.rehearsal import RehearsalPlan


def run_rehearsal(config: PartyConfig, plan: RehearsalPlan, console: Console) -> None:
    """Simulate, print what each attack finds, and compare it with the party's limits.

    Raises:
        StoppedByPolicy: a figure exceeds one of the limits.
    """
    result = rehearse(config, plan)
    table = Table("attack", "by", "folded AUC", "TPR at 1%", title="Rehearsal")
    rates = {(rate.side, rate.attack): rate for rate in result.values("tpr_0.01")}
    for auc in result.values("attack_folded_auc"):
        rate = rates[auc.side, auc.attack]
        cells = (
            f"{auc.value:.3f} ({auc.low:.3f}\N{EN DASH}{auc.high:.3f})",
            f"{rate.value:.1%} ({rate.low:.1%}\N{EN DASH}{rate.high:.1%})",
        )
        table.add_row(str(auc.attack), str(auc.side), *cells)
    console.print(table)
    console.print(
        f"Test AUC {result.last('auc'):.4f}, ACE {result.last('ace'):.4f}. Chance is 0.5 and 1%. "
        "Some of your own columns played the part of the peer's; the real ones may be related to "
        "yours more closely, or less.",
        soft_wrap=True,
    )
    check_policy(config, [result])
    console.print("Within the limits of section `audit`.")
