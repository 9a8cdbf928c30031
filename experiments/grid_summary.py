"""Tables of a grid's results: means over seeds, and the best hyper-parameters."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from florist.common.core.roles import RoleName
    from florist.experiments.trial import TrialResult


@dataclass(frozen=True, slots=True, order=True)
class TrialGroup:
    """Trials that differ only in their seed."""

    method: str
    alpha: float
    beta: float
    epochs: int
    batch_size: int
    learning_rate: float

    @property
    def task(self) -> tuple[str, float, float]:
        """Method and ratio; groups with equal ones are compared with each other."""
        return self.method, self.alpha, self.beta


def by_group(results: Iterable[TrialResult]) -> dict[TrialGroup, list[TrialResult]]:
    """Group results that differ only in their seed."""
    grouped: dict[TrialGroup, list[TrialResult]] = defaultdict(list)
    for result in results:
        trial = result.trial
        setting = TrialGroup(
            trial.method.name,
            trial.alpha,
            trial.beta,
            trial.epochs,
            result.agreement.known_batch_size,
            result.agreement.known_learning_rate,
        )
        grouped[setting].append(result)
    return dict(grouped)


def best_groups(results: Iterable[TrialResult], metric: str = "auc") -> list[TrialGroup]:
    """Return the best group of each method and ratio on the validation people, over all seeds.

    Returns nothing without validation people.
    """
    sign = 1 if metric == "auc" else -1
    best: dict[tuple[str, float, float], tuple[float, TrialGroup]] = {}
    for setting, seeds in by_group(results).items():
        if not all(seed.values(metric, part="validation") for seed in seeds):
            return []
        score = sign * fmean(seed.last(metric, "validation") for seed in seeds)
        if setting.task not in best or score > best[setting.task][0]:
            best[setting.task] = score, setting
    return [setting for _, setting in best.values()]


def utility_table(results: Sequence[TrialResult], choose_by: str) -> Table:
    """Return the test metrics after the last epoch: mean ± standard deviation over seeds.

    If a method has several hyper-parameters, a star marks those chosen on the validation people.
    """
    chosen = set(best_groups(results, choose_by))
    if len(chosen) == len(by_group(results)):
        chosen.clear()
    table = _table("Test metrics", "AUC", "ACE", "log loss")
    table.caption = f"± over seeds; * best by {choose_by} on the validation people"
    for setting, seeds in by_group(results).items():
        quality = (_shown([s.last(metric) for s in seeds]) for metric in ("auc", "ace", "log_loss"))
        table.add_row(*_headings(setting, seeds, starred=setting in chosen), *quality)
    return table


def leak_table(results: Sequence[TrialResult]) -> Table:
    """Return the strongest attack of each party by folded AUC, and by TPR at 1% false positives.

    Next to them is the worst stratum of any attack, by the lower end of its interval.
    """
    table = _table(
        "Strongest attacks",
        *("by passive", "AUC", "TPR at 1%", "worst stratum"),
        *("by active", "AUC", "TPR at 1%", "worst stratum"),
    )
    table.caption = (
        "Worst stratum: folded AUC by training window, label or cluster of own features; its "
        "interval is corrected for the number of strata and attacks."
    )
    for setting, seeds in by_group(results).items():
        attacks = *_strongest(seeds, "passive"), *_strongest(seeds, "active")
        if any(attacks):
            table.add_row(*_headings(setting, seeds), *attacks)
    return table


def _table(title: str, *figures: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("method", no_wrap=True)
    for heading in ("α", "β", "epochs", "batch", "rate", "seeds", *figures):
        table.add_column(heading, justify="right")
    return table


def _headings(
    setting: TrialGroup, seeds: Sequence[TrialResult], *, starred: bool = False
) -> tuple[str, ...]:
    return (
        f"{setting.method} *" if starred else setting.method,
        f"{setting.alpha:g}",
        f"{setting.beta:g}",
        str(setting.epochs),
        str(setting.batch_size),
        f"{setting.learning_rate:g}",
        str(len(seeds)),
    )


def skipped_attacks(results: Iterable[TrialResult]) -> list[str]:
    """Return a line for each attack that was skipped in any trial, with the reason."""
    lines = (
        f"{each.attack} by the {each.side} party: {each.reason}"
        for result in results
        for each in result.skipped
    )
    return list(dict.fromkeys(lines))


def _strongest(seeds: Sequence[TrialResult], side: RoleName) -> tuple[str, str, str, str]:
    by_auc = [figure for seed in seeds if (figure := seed.strongest(side))]
    by_rate = [figure for seed in seeds if (figure := seed.strongest(side, "tpr_0.01"))]
    names = sorted({str(figure.attack) for figure in by_auc})
    return (
        "\n".join(names),
        _shown([figure.value for figure in by_auc]),
        _shown([figure.value for figure in by_rate]),
        _worst_stratum(seeds, side),
    )


def _worst_stratum(seeds: Sequence[TrialResult], side: RoleName) -> str:
    """Return the figure of the worst stratum over all seeds, with its interval."""
    found = [figure for seed in seeds if (figure := seed.worst_stratum(side))]
    if not found:
        return ""
    worst = max(found, key=lambda figure: (figure.low or 0, figure.value))
    interval = f"({worst.low:.3f}\N{EN DASH}{worst.high:.3f})"
    return f"{worst.value:.3f} {interval}\n{worst.attack}\n{worst.stratum}"


def _shown(values: Sequence[float]) -> str:
    deviation = f" ±{stdev(values):.3f}" if len(values) > 1 else ""
    return f"{fmean(values):.3f}{deviation}" if values else ""
