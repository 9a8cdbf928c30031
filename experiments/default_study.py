"""The study behind the default settings: utility against the strongest attack.

Batch size, learning rate and, unless they are part of its name, epochs of each contender are chosen
on validation people with one seed; the default has those that it is shipped with. Then all seeds
are measured on test people and attacked.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from florist.common.core.errors import ConfigurationError
from florist.common.settings.data import Table
from florist.experiments.grid import run_trials
from florist.experiments.methods import METHODS, Method
from florist.experiments.people import Generated, PeopleSettings, RealDataFolder
from florist.experiments.trial import Trial, TrialAudit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from florist.common.core.progress import Progress
    from florist.common.core.roles import RoleName
    from florist.common.settings.agreement import BatchSize, LearningRate
    from florist.experiments.grid import Failure
    from florist.experiments.trial import Measurement, TrialResult

RATIOS = (0.5, 0.2, 0.8)

#: The public data sets of the study, and the number of rows that are sampled; None: all.
REAL_SETS: dict[str, int | None] = {
    "sba_loans": 60_000,
    "default_credit": None,
    "diabetes130": None,
    "bank_marketing": None,
}


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """The values that are tried.

    Attributes:
        ratios: fractions of people that each party lacks.
        seeds: the first one is used to choose hyper-parameters.
        max_epochs: hyper-parameters are tried with up to this number of epochs.
        steps: pairs of batch size and learning rate to choose from, for contenders that do not
            fix them.
    """

    ratios: tuple[float, ...] = RATIOS
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    max_epochs: int = 3
    steps: tuple[tuple[BatchSize, LearningRate], ...] = (
        ("auto", "auto"),
        (128, 2e-3),
        (256, 1e-3),
        (256, 4e-3),
        (1024, 2e-3),
    )


#: For data of two organisations: one ratio, and the hyper-parameters of the default.
TWO_SIDED_PLAN = StudyPlan(ratios=RATIOS[:1], max_epochs=1, steps=(("auto", "auto"),))


@dataclass(frozen=True, slots=True)
class Contender:
    """A training method to compare."""

    method: Method
    #: Fixed number of epochs; None: whatever is best in validation.
    epochs: int | None = None
    ratios: tuple[float, ...] = RATIOS
    #: Use the hyper-parameters of this contender, except `epochs`: the two differ in one thing.
    like: str | None = None
    #: Whether batch size and learning rate are `auto`, as shipped, instead of chosen in validation.
    is_untuned: bool = False

    @property
    def name(self) -> str:
        return self.method.name


_DEFAULT = METHODS["default"]
_ONCE = (RATIOS[0],)
_AS_SHIPPED: tuple[tuple[BatchSize, LearningRate], ...] = (("auto", "auto"),)

#: Variants of the default, by what they change.
_NO_AGGREGATE: dict[str, object] = {"aggregate": {"privacy": None}}
_CHANGES: dict[str, dict[str, object]] = {
    "no aggregate": _NO_AGGREGATE,
    "aggregate, epsilon 4": {"aggregate": {"privacy": {"epsilon": 4.0}}},
    "aggregate, epsilon 16": {"aggregate": {"privacy": {"epsilon": 16.0}}},
    "aggregate of 10,000 sums, epsilon 4": {
        "aggregate": {"privacy": {"epsilon": 4.0}, "min_count": 10}
    },
    "first model for weights only": {"aggregate": {"uses": ["weights"]}},
    "first model for donors only": {"aggregate": {"uses": ["donors"]}},
    "full cut": {"cut_width": 128, "embedding_noise": 0.3},
    "full cut, no aggregate, plain stand-ins": _NO_AGGREGATE
    | {"cut_width": 128, "embedding_noise": 0.3, "stand_ins": "plain"},
}
#: Variants that differ only if the active party has features.
_OWN_FEATURES: dict[str, dict[str, object]] = {
    "noise 1": {"embedding_noise": 1.0},
    "joint gradients": {"gradients": "joint"},
    "cut 1": {"cut_width": 1, "embedding_noise": 0.3},
    "cut 2": {"cut_width": 2, "embedding_noise": 0.3},
    "cut 4": {"cut_width": 4, "embedding_noise": 0.3},
    "cut 8": {"cut_width": 8, "embedding_noise": 0.3},
    "cut 16": {"cut_width": 16, "embedding_noise": 0.3},
}


def _variants(changes: dict[str, dict[str, object]]) -> list[Contender]:
    return [
        Contender(_DEFAULT.but(name, **changed), ratios=_ONCE, like="default")
        for name, changed in changes.items()
    ]


CONTENDERS = (
    Contender(METHODS["baseline-full-default"], ratios=_ONCE),
    Contender(METHODS["baseline-partial-default"]),
    Contender(METHODS["florist-paper"]),
    Contender(_DEFAULT, epochs=1, is_untuned=True),
    # Small unions have no aggregate by default.
    Contender(_DEFAULT.but("no aggregate", **_NO_AGGREGATE), like="default"),
    *_variants({name: changed for name, changed in _CHANGES.items() if name != "no aggregate"}),
)
#: For data of two organisations that both have features.
TWO_SIDED_CONTENDERS = (
    Contender(METHODS["baseline-partial-default"], ratios=_ONCE),
    Contender(_DEFAULT, epochs=1, ratios=_ONCE, is_untuned=True),
    *_variants(
        {
            name: _CHANGES[name]
            for name in ("no aggregate", "full cut", "full cut, no aggregate, plain stand-ins")
        }
    ),
    *_variants(_OWN_FEATURES),
    *(
        Contender(
            _DEFAULT.by_cluster(f"stand-ins of {count} clusters, simulated", count),
            ratios=_ONCE,
            like="default",
        )
        for count in (64, 512)
    ),
)


@dataclass(frozen=True, slots=True)
class HyperParameters:
    """The hyper-parameters chosen for a contender at a ratio."""

    batch_size: BatchSize
    learning_rate: LearningRate
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
    #: By attacker: the highest folded AUC of any attack, seed and stratum, with where it is.
    worst: dict[RoleName, Measurement]
    #: By attacker and attack: the mean folded AUC and the mean TPR at 1% false positives.
    attacks: dict[tuple[RoleName, str], tuple[float, float]]
    #: The mean test AUC of the model from which training started; None without a label aggregate.
    first_auc: float | None = None

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
            for step in (_AS_SHIPPED if contender.is_untuned else plan.steps)
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
    criteo: Path | None,
    real: Path | None,
    output: Path,
    jobs: int,
    progress: Progress,
    only: Sequence[str] = (),
) -> tuple[str, list[Failure]]:
    """Run the whole study and write its tables and plots to a folder.

    Args:
        criteo: Criteo's training file or a sample of its rows; None generates data.
        real: a folder with public data sets of two organisations (`real_data.py`); None for none.
        output: the folder; trials in it are not run again.
        jobs: number of processes.
        progress: counts trials.
        only: names of the data sets to study: `clicks` or some of `REAL_SETS`; empty: all.

    Returns:
        The tables as Markdown, and the failed trials.

    Raises:
        ConfigurationError: a name is unknown, or its data are not given.
    """
    data = (
        PeopleSettings(generated=Generated(people=120_000))
        if criteo is None
        else PeopleSettings(table=Table.model_validate({"path": criteo, "format": "criteo"}))
    )
    parts: list[tuple[str, PeopleSettings, Sequence[Contender], StudyPlan]] = [
        ("clicks", data, CONTENDERS, StudyPlan())
    ]
    if real is not None:
        for name, rows in REAL_SETS.items():
            source = RealDataFolder(name=name, folder=real)
            settings = PeopleSettings(real=source, rows=rows)
            parts.append((name, settings, TWO_SIDED_CONTENDERS, TWO_SIDED_PLAN))
    names = [name for name, *_ in parts]
    if unknown := [name for name in only if name not in names]:
        missing = " without --real" if unknown[0] in REAL_SETS else ""
        raise ConfigurationError(
            f"--data-set {unknown[0]}: unknown{missing}; choose one of: {', '.join(names)}"
        )
    parts = [part for part in parts if not only or part[0] in only]
    texts, failures = [], []
    two_sided: dict[str, list[Row]] = {}
    for name, settings, contenders, plan in parts:
        study = DefaultStudy(settings, output / name / "trials", jobs, progress, plan)
        found = study.rows(TrialAudit(samples=100), contenders)
        text = f"## {name}\n\n{as_markdown(found)}\n{attacks_as_markdown(found)}"
        (output / name / "front.md").write_text(text, encoding="utf-8")
        for ratio in plan.ratios:
            draw(found, ratio, output / name / f"front-{ratio:g}.png")
        texts.append(text)
        failures += study.failures
        if name in REAL_SETS:
            two_sided[name] = found
    if two_sided:
        text = own_features_as_markdown(two_sided)
        (output / "own-features.md").write_text(text, encoding="utf-8")
        texts.append(text)
    return "\n".join(texts), failures


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
        {side: worst for side in _SIDES if (worst := _worst(seeds, side)) is not None},
        {
            (side, attack): (auc, tpr)
            for side in _SIDES
            for attack, auc, tpr in _all_attacks(seeds, side)
        },
        fmean(first) if (first := _first_aucs(seeds)) else None,
    )


def _first_aucs(seeds: list[TrialResult]) -> list[float]:
    found = (seed.values("first_model_auc", part="test") for seed in seeds)
    return [figure.value for figures in found for figure in figures]


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


def _worst(seeds: list[TrialResult], side: RoleName) -> Measurement | None:
    """Return the stratum with the highest lower end of its interval, over all seeds."""
    found = [figure for seed in seeds if (figure := seed.worst_stratum(side)) is not None]
    return max(found, key=lambda figure: (figure.low or 0, figure.value), default=None)


def _all_attacks(seeds: list[TrialResult], side: RoleName) -> Iterator[tuple[str, float, float]]:
    aucs, rates = (
        _means(found for seed in seeds for found in seed.values(metric, side=side))
        for metric in ("attack_folded_auc", "tpr_0.01")
    )
    for attack, auc in aucs.items():
        yield attack, auc, rates[attack]


def _means(measured: Iterable[Measurement]) -> dict[str, float]:
    """Return the mean over seeds of each attack."""
    values: dict[str, list[float]] = {}
    for each in measured:
        values.setdefault(each.attack or "", []).append(each.value)
    return {attack: fmean(found) for attack, found in values.items()}


_LEAK_TITLES = " | ".join(f"by {side}: AUC / TPR | worst stratum" for side in _SIDES)


def as_markdown(rows: Sequence[Row]) -> str:
    """Return one table per ratio."""
    lines = []
    for ratio in dict.fromkeys(row.ratio for row in rows):
        lines += [
            f"**α = β = {ratio:g}**",
            "",
            f"| | epochs, batch, rate | first model | test AUC | ACE | {_LEAK_TITLES} |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for row in (row for row in rows if row.ratio == ratio):
            setting = row.setting
            cells = [cell for side in _SIDES for cell in _leak_cells(row, side)]
            first = "" if row.first_auc is None else f"{row.first_auc:.4f}"
            lines.append(
                f"| {row.name} | {setting.epochs}, {setting.batch_size}, "
                f"{setting.learning_rate} | {first} | {row.auc:.4f} ± {row.auc_deviation:.4f} "
                f"| {row.ace:.4f} | {' | '.join(cells)} |"
            )
        lines.append("")
    return "\n".join(lines)


def _leak_cells(row: Row, side: RoleName) -> tuple[str, str]:
    """Return the strongest attack on average, and the worst stratum of any."""
    if side not in row.leaks:
        return "", ""
    attack, auc, rate = row.leaks[side]
    worst = row.worst.get(side)
    where = (
        f"`{worst.attack}` {worst.value:.3f} ({worst.low:.3f}\N{EN DASH}{worst.high:.3f}), "
        f"{worst.stratum}"
        if worst is not None and worst.low is not None and worst.high is not None
        else ""
    )
    return f"`{attack}` {auc:.3f} / {rate:.1%}", where


def attacks_as_markdown(rows: Sequence[Row]) -> str:
    """Return a table of all attacks at the first ratio: means over seeds of AUC and TPR."""
    shown = [row for row in rows if row.ratio == rows[0].ratio and row.attacks]
    lines = [
        "| attack | by | " + " | ".join(row.name for row in shown) + " |",
        "|---" * (2 + len(shown)) + "|",
    ]
    for side, attack in dict.fromkeys(key for row in shown for key in row.attacks):
        cells = [
            f"{found[0]:.3f} / {found[1]:.1%}" if (found := row.attacks.get((side, attack))) else ""
            for row in shown
        ]
        lines.append(f"| `{attack}` | {side} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


#: The attacks that compare what arrives with own features of the same person, by attacker.
_OWN_FEATURE_ATTACKS: tuple[tuple[RoleName, str], ...] = (
    ("active", "pair"),
    ("passive", "share-fit"),
)


def own_features_as_markdown(data_sets: dict[str, list[Row]]) -> str:
    """Return a table of the attacks by own features: contenders by attack and data set."""
    names = list(
        dict.fromkeys(row.name for rows in data_sets.values() for row in rows if row.attacks)
    )
    lines = ["| | " + " | ".join(names) + " |", "|---" * (1 + len(names)) + "|"]
    for attack in _OWN_FEATURE_ATTACKS:
        for data_set, rows in data_sets.items():
            found = {row.name: row.attacks.get(attack) for row in rows}
            cells = [
                f"{figures[0]:.3f} / {figures[1]:.1%}" if (figures := found.get(name)) else ""
                for name in names
            ]
            lines.append(f"| `{attack[1]}`, {data_set} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


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
