"""The study behind the default settings: utility against the strongest attack.

Batch size, learning rate and, unless they are part of its name, epochs of each contender are chosen
on validation people with one seed. Then all seeds are measured on test people and attacked.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from florist.common.settings.data import Table
from florist.experiments.grid import run_trials
from florist.experiments.methods import METHODS, Method
from florist.experiments.people import Generated, PeopleSettings
from florist.experiments.trial import Trial, TrialAudit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from florist.common.core.progress import Progress
    from florist.common.core.roles import RoleName
    from florist.experiments.grid import Failure
    from florist.experiments.trial import Measurement, TrialResult

RATIOS = (0.5, 0.2, 0.8)


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """The values that are tried.

    Attributes:
        ratios: fractions of people that each party lacks.
        seeds: the first one is used to choose hyper-parameters.
        max_epochs: hyper-parameters are tried with up to this number of epochs.
        steps: pairs of batch size and learning rate to choose from.
    """

    ratios: tuple[float, ...] = RATIOS
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    max_epochs: int = 3
    steps: tuple[tuple[int, float], ...] = ((256, 1e-3), (256, 2e-3), (1024, 1e-3), (1024, 2e-3))


@dataclass(frozen=True, slots=True)
class Contender:
    """A training method to compare."""

    method: Method
    #: Fixed number of epochs; None: whatever is best in validation.
    epochs: int | None = None
    ratios: tuple[float, ...] = RATIOS
    #: Use the hyper-parameters of this contender, except `epochs`: the two differ in one thing.
    like: str | None = None

    @property
    def name(self) -> str:
        return self.method.name


_DEFAULT = METHODS["default"]
_ONCE = (RATIOS[0],)

#: Variants of the default, by what they change.
_CHANGES: dict[str, dict[str, object]] = {
    "no noise": {"embedding_noise": 0.0},
    "noise 0.1": {"embedding_noise": 0.1},
    "noise 0.5": {"embedding_noise": 0.5},
    "noise 1": {"embedding_noise": 1.0},
    "no masking": {"masking": False},
    "no averaging": {"averaging": False},
}

CONTENDERS = (
    Contender(METHODS["baseline-full"]),
    Contender(METHODS["baseline-partial"]),
    Contender(METHODS["florist-paper"]),
    Contender(_DEFAULT, epochs=1),
    Contender(_DEFAULT.but("default, 3 passes"), epochs=3, like="default"),
    Contender(_DEFAULT.but("re-drawn, 3 passes", sticky=False), epochs=3, like="default"),
    Contender(
        _DEFAULT.but("label-random-pos", labels={"strategy": "label-random-pos"}), like="default"
    ),
    *(
        Contender(_DEFAULT.but(name, **changes), ratios=_ONCE, like="default")
        for name, changes in _CHANGES.items()
    ),
    *(
        Contender(METHODS[name], like="florist-paper")
        for name in (
            "label-minority-tr",
            "label-random-pos-tr",
            "label-random-pred-tr",
            "label-neighbors-tr",
            "fea-gaussian-tr",
            "fea-random-tr",
        )
    ),
)


@dataclass(frozen=True, slots=True)
class HyperParameters:
    """The hyper-parameters chosen for a contender at a ratio."""

    batch_size: int
    learning_rate: float
    epochs: int


@dataclass(frozen=True, slots=True)
class Row:
    """The results of a contender at a ratio: means over seeds, and the deviation of the AUC."""

    name: str
    ratio: float
    setting: HyperParameters
    auc: float
    auc_deviation: float
    ace: float
    #: By attacker: the attack with the highest mean folded AUC, that AUC, and the highest mean TPR
    #: at 1% false positives of any attack.
    leaks: dict[RoleName, tuple[str, float, float]]

    @property
    def strongest(self) -> float | None:
        """The highest folded AUC of either attacker; None for a baseline."""
        return max((auc for _, auc, _ in self.leaks.values()), default=None)


class DefaultStudy:
    """The trials of the study. Results in `folder` are not computed again."""

    def __init__(
        self,
        data: PeopleSettings,
        folder: Path,
        jobs: int,
        progress: Progress,
        plan: StudyPlan = StudyPlan(),  # noqa: B008 - frozen
    ) -> None:
        self._data = data
        self._folder = folder
        self._jobs = jobs
        self._progress = progress
        self._plan = plan
        self.failures: list[Failure] = []

    def rows(self, audit: TrialAudit, contenders: Sequence[Contender] = CONTENDERS) -> list[Row]:
        """Choose hyper-parameters, run all seeds, and summarise."""
        chosen = self._tuned(contenders)
        wanted = {
            (contender.name, ratio): [
                _trial(contender, ratio, seed, chosen[contender.like or contender.name, ratio])
                for seed in self._plan.seeds
            ]
            for ratio in self._plan.ratios
            for contender in contenders
            if ratio in contender.ratios
        }
        results = self._run([trial for trials in wanted.values() for trial in trials], audit)
        return [
            _row(name, ratio, [result for result in results if result.trial in trials])
            for (name, ratio), trials in wanted.items()
            if any(result.trial in trials for result in results)
        ]

    def _tuned(self, contenders: Sequence[Contender]) -> dict[tuple[str, float], HyperParameters]:
        """Choose hyper-parameters by validation AUC, by contender and ratio."""
        plan = self._plan
        tried = [
            _trial(
                contender,
                ratio,
                plan.seeds[0],
                HyperParameters(*step, plan.max_epochs),
                tuning=True,
            )
            for contender in contenders
            if contender.like is None
            for ratio in contender.ratios
            for step in plan.steps
        ]
        results = self._run(tried, None)
        fixed = {contender.name: contender.epochs for contender in contenders}
        best: dict[tuple[str, float], tuple[float, HyperParameters]] = {}
        for result in results:
            trial = result.trial
            key = trial.method.name, trial.alpha
            for measured in result.values("auc", part="validation"):
                assert measured.epoch is not None
                if measured.epoch != (fixed[trial.method.name] or measured.epoch):
                    continue
                candidate = HyperParameters(trial.batch_size, trial.learning_rate, measured.epoch)
                if key not in best or measured.value > best[key][0]:
                    best[key] = measured.value, candidate
        return {key: chosen for key, (_, chosen) in best.items()}

    def _run(self, trials: list[Trial], audit: TrialAudit | None) -> list[TrialResult]:
        results, failures = run_trials(
            self._data, trials, audit, self._folder, self._jobs, self._progress
        )
        self.failures += failures
        return results


def study_defaults(
    criteo: Path | None, output: Path, jobs: int, progress: Progress
) -> tuple[str, list[Failure]]:
    """Run the whole study and write its tables and plots to a folder.

    Args:
        criteo: Criteo's training file or a sample of its rows; None generates data.
        output: the folder; trials in it are not run again.
        jobs: number of processes.
        progress: counts trials.

    Returns:
        The tables as Markdown, and the failed trials.
    """
    data = (
        PeopleSettings(generated=Generated(people=120_000))
        if criteo is None
        else PeopleSettings(table=Table.model_validate({"path": criteo, "format": "criteo"}))
    )
    study = DefaultStudy(data, output / "trials", jobs, progress)
    rows = study.rows(TrialAudit(samples=100))
    text = as_markdown(rows)
    (output / "front.md").write_text(text, encoding="utf-8")
    for ratio in RATIOS:
        draw(rows, ratio, output / f"front-{ratio:g}.png")
    return text, study.failures


def _trial(
    contender: Contender, ratio: float, seed: int, setting: HyperParameters, *, tuning: bool = False
) -> Trial:
    return Trial(
        method=contender.method,
        alpha=ratio,
        beta=ratio,
        seed=seed,
        epochs=setting.epochs if tuning else contender.epochs or setting.epochs,
        batch_size=setting.batch_size,
        learning_rate=setting.learning_rate,
    )


def _row(name: str, ratio: float, seeds: list[TrialResult]) -> Row:
    aucs = [seed.last("auc") for seed in seeds]
    trial = seeds[0].trial
    return Row(
        name,
        ratio,
        HyperParameters(trial.batch_size, trial.learning_rate, trial.epochs),
        fmean(aucs),
        stdev(aucs) if len(aucs) > 1 else 0.0,
        fmean(seed.last("ace") for seed in seeds),
        {side: found for side in _SIDES if (found := _strongest(seeds, side)) is not None},
    )


_SIDES: tuple[RoleName, RoleName] = ("passive", "active")


def _strongest(seeds: list[TrialResult], side: RoleName) -> tuple[str, float, float] | None:
    """Take means over seeds first: the maximum of noisy values would be biased upwards."""
    means = {
        metric: _means(found for seed in seeds for found in seed.values(metric, side=side))
        for metric in ("attack_folded_auc", "tpr_0.01")
    }
    if not means["attack_folded_auc"]:
        return None
    name, auc = max(means["attack_folded_auc"].items(), key=lambda item: item[1])
    return name, auc, max(means["tpr_0.01"].values())


def _means(measured: Iterable[Measurement]) -> dict[str, float]:
    """Return the mean over seeds of each attack."""
    values: dict[str, list[float]] = {}
    for each in measured:
        values.setdefault(each.attack or "", []).append(each.value)
    return {attack: fmean(found) for attack, found in values.items()}


def as_markdown(rows: Sequence[Row]) -> str:
    """Return one table per ratio."""
    lines = []
    for ratio in dict.fromkeys(row.ratio for row in rows):
        lines += [
            f"**α = β = {ratio:g}**",
            "",
            "| | epochs, batch, rate | test AUC | ACE | by passive: AUC, TPR | by active |",
            "|---|---|---|---|---|---|",
        ]
        for row in (row for row in rows if row.ratio == ratio):
            setting = row.setting
            leaks = [
                f"{row.leaks[side][0]} {row.leaks[side][1]:.3f}, {row.leaks[side][2]:.1%}"
                if side in row.leaks
                else ""
                for side in _SIDES
            ]
            lines.append(
                f"| {row.name} | {setting.epochs}, {setting.batch_size}, "
                f"{setting.learning_rate:g} | {row.auc:.4f} ± {row.auc_deviation:.4f} "
                f"| {row.ace:.4f} | {leaks[0]} | {leaks[1]} |"
            )
        lines.append("")
    return "\n".join(lines)


def draw(rows: Sequence[Row], ratio: float, path: Path) -> None:
    """Plot test AUC against the strongest attack; top left is best. Baselines are lines.

    Points lie close together, so each has a number, which the legend explains.
    """
    figure = Figure(figsize=(9.5, 5), layout="constrained")
    axes = figure.subplots()
    here = [row for row in rows if row.ratio == ratio]
    for row in here:
        if row.strongest is None:
            axes.axhline(row.auc, color="0.6", linestyle="--", linewidth=1)
            axes.annotate(
                row.name,
                (0.995, row.auc),
                color="0.4",
                fontsize=8,
                ha="right",
                va="bottom",
                xycoords=("axes fraction", "data"),
            )
    attacked = [(row, leak) for row in here if (leak := row.strongest) is not None]
    for number, (row, leak) in enumerate(attacked, start=1):
        colour, on_top = ("tab:red", 5) if row.name == "default" else ("tab:blue", 3)
        place = leak, row.auc
        axes.errorbar(*place, row.auc_deviation, color=colour, alpha=0.35, linewidth=1)
        label = f"{number}  {row.name}"
        axes.plot(*place, "o", color=colour, markersize=10, label=label, zorder=on_top)
        axes.annotate(
            str(number),
            place,
            color="white",
            fontsize=7,
            ha="center",
            va="center_baseline",
            zorder=on_top + 1,
        )
    axes.legend(
        loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8, markerscale=0.6
    )
    axes.axvline(0.5, color="0.8", linewidth=1)
    axes.set_xlabel("folded AUC of the strongest attack on either side (0.5 is chance)")
    axes.set_ylabel("test AUC")
    axes.set_title(f"Utility against the strongest attack, α = β = {ratio:g}")
    figure.savefig(path, dpi=110)
