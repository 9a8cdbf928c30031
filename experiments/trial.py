"""A trial: a training method on people split between two parties, its utility, and its leakage.

People are split as in the paper: of the training people, the passive party lacks a fraction
`alpha`, whose features are synthetic, and the active party a fraction `beta`, whose labels are
synthetic. The choices are independent, so some people are lacked by both. The paper keeps those in
the training data, as if they were dummies; a private set union does not contain them.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
from pydantic import Field
from pydantic import field_validator as check_field
from threadpoolctl import threadpool_limits

from florist.common.audit import statistics, strata
from florist.common.audit.attack_runner import oriented
from florist.common.audit.attacks import ACTIVE_ATTACKS, PASSIVE_ATTACKS
from florist.common.audit.attacks.spectral import spectral_auc
from florist.common.audit.view import ActiveView, PassiveView
from florist.common.evaluation import metrics
from florist.common.settings.agreement import BatchSize, LearningRate, TrainingAgreement
from florist.common.settings.data import PreprocessingSettings, Scaling
from florist.common.settings.section import Section
from florist.common.settings.training import Model, Optimiser
from florist.experiments.cluster_stand_ins import cluster_stand_ins
from florist.experiments.learned_attack import LearnedAttack
from florist.experiments.methods import Method
from florist.experiments.shadow_runs import ShadowRuns
from florist.experiments.simulation import (
    Holdings,
    Seen,
    SimulationSettings,
    Union,
    Wiring,
    observe,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from florist.common.audit.attacks import Attack
    from florist.common.audit.statistics import AttackResult
    from florist.common.core.roles import RoleName
    from florist.experiments.people import People
    from florist.experiments.simulation import Observed, Predictions

V = TypeVar("V", PassiveView, ActiveView)

#: Incremented when the same trial gives different results.
VERSION = 3


#: The names of all attacks, by attacker.
KNOWN_ATTACKS: Mapping[RoleName, tuple[str, ...]] = {
    "passive": PASSIVE_ATTACKS.names,
    "active": ACTIVE_ATTACKS.names,
}


class TrialAudit(Section):
    """The attacks of each party on the other, in addition to the paper's attack AUC."""

    attacks: list[str] | None = Field(
        default=None, description="Names of attacks; null: all; []: none."
    )
    samples: int = Field(
        default=1000, ge=20, description="Bootstrap samples per interval; more take longer."
    )
    learned: bool = Field(
        default=False,
        description="Whether each party also learns an attack from a shadow run of its own; takes "
        "several times as long.",
    )

    @check_field("attacks")
    @classmethod
    def _are_known(cls, attacks: list[str] | None) -> list[str] | None:
        known = dict.fromkeys((*PASSIVE_ATTACKS.names, *ACTIVE_ATTACKS.names))
        if unknown := [name for name in attacks or () if name not in known]:
            raise ValueError(f"attack {unknown[0]!r} is unknown; known are: {', '.join(known)}")
        return attacks

    def chosen(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of the given attacks that are selected."""
        return names if self.attacks is None else tuple(n for n in names if n in self.attacks)


class Trial(Section):
    """Everything that determines the results, except the people."""

    method: Method
    #: Fractions of the training people without features, and without a label.
    alpha: float = Field(ge=0, lt=1)
    beta: float = Field(ge=0, lt=1)
    #: Seed of the split, initial weights, synthetic data and order of batches.
    seed: int = Field(default=0, ge=0)
    epochs: int = Field(default=1, ge=1)
    batch_size: BatchSize = "auto"
    learning_rate: LearningRate = "auto"
    #: People lacked by both parties: absent, or dummies as in the paper.
    lacked_by_both: Literal["absent", "dummies"] = "absent"
    #: Further dummies of each party, which it uses as known stand-ins.
    active_dummies: int = Field(default=0, ge=0)
    passive_dummies: int = Field(default=0, ge=0)
    min_count: int = Field(default=10, ge=1)
    scaling: Scaling = "log"
    #: Quantile bins of each number; the method may have its own.
    bins: int = Field(default=PreprocessingSettings().bins, ge=0)
    #: The model of both parties.
    model: Model = Model()
    #: The width of the cut; None: that of the method or, for the paper's methods, the last of the
    #: model's `hidden`.
    cut_width: int | None = Field(default=None, ge=0)

    def agreement(self, classes: int = 2) -> TrainingAgreement:
        cut_width = self.cut_width
        if cut_width is None:
            agreed = TrainingAgreement.model_validate(self.method.agreement)
            cut_width = agreed.cut_width if agreed.wide else self.model.hidden[-1]
        own = {
            "classes": classes,
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
            "cut_width": cut_width,
            "checkpoint_every": 0,
            "test_table": True,
        }
        # The size of a message matters only on a network; but noise is drawn per message.
        whole = {"micro_batch": 2048}
        return TrainingAgreement.model_validate(whole | self.method.agreement | own)

    @property
    def preprocessing(self) -> PreprocessingSettings:
        bins = self.bins if self.method.bins is None else self.method.bins
        return PreprocessingSettings(min_count=self.min_count, scaling=self.scaling, bins=bins)

    @property
    def optimiser(self) -> Optimiser:
        return Optimiser()

    def facts(self) -> dict[str, object]:
        """Return all settings as JSON values, including the complete agreement."""
        return self.model_dump(mode="json") | {"agreement": self.agreement().model_dump()}

    def holdings(self, train: npt.NDArray[np.int64]) -> Holdings:
        """Split the training people between the parties."""
        random = np.random.default_rng([self.seed, 1])
        lacks_features = _chosen(random, len(train), self.alpha)
        lacks_label = _chosen(random, len(train), self.beta)
        union = Holdings(
            train[~lacks_label],
            train[~lacks_features],
            dummies=self.active_dummies
            + (
                int((lacks_label & lacks_features).sum()) if self.lacked_by_both == "dummies" else 0
            ),
            passive_dummies=self.passive_dummies,
        )
        match self.method.who:
            case "union":
                return union
            case "shared":
                return union.shared
            case "everybody":
                return Holdings(train, train)


def _chosen(random: np.random.Generator, people: int, fraction: float) -> npt.NDArray[np.bool_]:
    """Choose exactly this fraction at random."""
    chosen = np.zeros(people, dtype=np.bool_)
    chosen[random.permutation(people)[: round(fraction * people)]] = True
    return chosen


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measured number, with its confidence interval if there is one."""

    metric: str
    value: float
    low: float | None = None
    high: float | None = None
    #: The held-out people on whom it was measured: validation or test.
    part: str | None = None
    epoch: int | None = None
    #: The attacker, and the name of the attack.
    side: RoleName | None = None
    attack: str | None = None
    #: The group of UIDs on which an attack was measured; None: all.
    stratum: str | None = None


@dataclass(frozen=True, slots=True)
class SkippedAttack:
    """An attack that was not possible, and why."""

    side: RoleName
    attack: str
    reason: str


@dataclass(frozen=True, slots=True, repr=False)
class TrialResult:
    """The results of a trial."""

    trial: Trial
    figures: tuple[Measurement, ...]
    #: Mean loss of each step, synthetic labels included.
    losses: tuple[float, ...]
    #: Number of training people by party, shared people, and UIDs in the union.
    sizes: dict[str, int]
    seconds: dict[str, float]
    skipped: tuple[SkippedAttack, ...] = ()

    @property
    def agreement(self) -> TrainingAgreement:
        """The agreement, with numbers instead of `auto`."""
        return self.trial.agreement().resolved(self.sizes["union"])

    def values(self, metric: str, **where: object) -> list[Measurement]:
        """Return the measurements of a metric whose fields equal those in `where`."""
        return [
            figure
            for figure in self.figures
            if figure.metric == metric
            and all(getattr(figure, name) == value for name, value in where.items())
        ]

    def last(self, metric: str, part: str = "test") -> float:
        """Return a metric on held-out people after the last epoch."""
        return self.values(metric, part=part)[-1].value

    def strongest(self, side: RoleName, metric: str = "attack_folded_auc") -> Measurement | None:
        """Return this attacker's highest measurement; None if there was nothing to attack."""
        found = self.values(metric, side=side)
        return max(found, key=lambda figure: figure.value) if found else None

    def worst_stratum(self, side: RoleName, metric: str = "auc") -> Measurement | None:
        """Return this attacker's figure in its worst stratum, over all attacks; None without any.

        It is the one with the highest lower end. The metric is `auc` or `tpr_0.01`.
        """
        found = self.values(f"worst_stratum_{metric}", side=side)
        return max(found, key=lambda figure: (figure.low or 0, figure.value), default=None)


def run_trial(people: People, trial: Trial, audit: TrialAudit | None = TrialAudit()) -> TrialResult:  # noqa: B008 - frozen
    """Train, evaluate on held-out people after each epoch, and attack, all in this process.

    The same arguments give the same results, except for the timings.

    Args:
        people: the people to split between the parties.
        trial: how to split and train.
        audit: None skips the attacks, which take longer than training. Baselines have no attacks.
    """
    started = time.monotonic()
    with threadpool_limits(1):  # sums over several threads are rounded differently
        holdings = trial.holdings(people.train)
        shared = len(holdings.shared.active)
        active, passive = len(holdings.active), len(holdings.passive)
        union = active + passive - shared + holdings.dummies + holdings.passive_dummies
        world, held_out = people.worlds(holdings.passive, holdings.active, trial.preprocessing)
        settings = SimulationSettings(
            trial.agreement(people.classes), trial.model, trial.optimiser, trial.seed
        )
        audited = audit is not None and not trial.method.is_baseline
        drawn, wiring = Union.drawn(len(world.labels), holdings, trial.seed), Wiring()
        if trial.method.clusters:
            make = cluster_stand_ins(world, holdings, drawn, trial.method.clusters)
            wiring = Wiring(make_passive=make)
        run = observe(
            world, holdings, held_out, settings, record=audited, union=drawn, wiring=wiring
        )
        trained = time.monotonic()
        figures = list(quality(people, _predictions(run, trial, holdings)))
        if run.first_model is not None and people.classes == 2:
            first = run.first_model.probabilities(held_out.features.categories)
            scores = [first[:, 1].astype(np.float32)]
            figures += [
                replace(found, metric=f"first_model_{found.metric}")
                for found in quality(people, scores)
            ]
        skipped: list[SkippedAttack] = []
        if audit is not None and run.seen is not None:
            shadow_runs = ShadowRuns(world, holdings, union, settings) if audit.learned else None
            for attempt in _attempts(run.seen, audit, shadow_runs):
                figures += _leaks(attempt, audit.samples, trial.seed)
                skipped += attempt.skipped
    return TrialResult(
        trial,
        tuple(figures),
        tuple(run.active.run.history.losses),
        {
            "active": active,
            "passive": passive,
            "shared": shared,
            "union": union,
        },
        {"training": trained - started, "audit": time.monotonic() - trained},
        tuple(skipped),
    )


def _predictions(run: Observed, trial: Trial, holdings: Holdings) -> list[Predictions]:
    """Return the predictions for held-out people by epoch, with the method's calibration."""
    if not trial.method.label_shift:
        return run.predictions
    everyone = len(np.union1d(holdings.active, holdings.passive)) + holdings.dummies
    everyone += holdings.passive_dummies
    real = len(holdings.active) / everyone
    return [np.minimum(predictions / real, 1) for predictions in run.predictions]


def quality(people: People, by_epoch: Sequence[npt.NDArray[np.floating]]) -> Iterator[Measurement]:
    """Measure AUC, ACE and log loss after each epoch."""
    first = len(people.validation)
    parts = {"validation": slice(first), "test": slice(first, None)}
    truth = people.labels[people.held_out]
    for epoch, predictions in enumerate(by_epoch, start=1):
        for part, rows in parts.items():
            if len(truth[rows]):
                scores = metrics.evaluate(truth[rows], predictions[rows])
                for metric, value in asdict(scores).items():
                    yield Measurement(metric, value, part=part, epoch=epoch)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Attempt:
    """The attacks of one party: the truth about each of its UIDs, and the scores by attack."""

    side: RoleName
    view: PassiveView | ActiveView
    #: For each UID of the union, whether the peer's data are real.
    is_real: npt.NDArray[np.bool_]
    scores: dict[str, npt.NDArray[np.float64]]
    skipped: list[SkippedAttack]

    @property
    def truth(self) -> npt.NDArray[np.bool_]:
        """For each UID of the view, whether the peer's data are real."""
        return self.is_real[self.view.uids]


def _attempts(seen: Seen, audit: TrialAudit, runs: ShadowRuns | None) -> Iterator[_Attempt]:
    """Make every attack of each party on the other, if it has both real and synthetic rows."""
    passive = _Attempt("passive", seen.passive, seen.has_label, {}, [])
    active = _Attempt("active", seen.active, seen.has_features, {}, [])
    for name in audit.chosen(PASSIVE_ATTACKS.names) if _has_both(passive.truth) else ():
        _attack(passive, PASSIVE_ATTACKS[name], seen.passive)
    for name in audit.chosen(ACTIVE_ATTACKS.names) if _has_both(active.truth) else ():
        _attack(active, ACTIVE_ATTACKS[name], seen.active)
    for attempt in (passive, active):
        if runs is not None and _has_both(attempt.truth):
            learned = runs.scores(attempt.side, seen)
            if learned is not None:
                attempt.scores[LearnedAttack.name] = learned
        yield attempt


def _attack(attempt: _Attempt, attack: Attack[V], view: V) -> None:
    """Add the scores of an attack, or the reason why it is not possible."""
    reason = attack.reason_to_skip(view)
    if reason is None:
        attempt.scores[attack.name] = attack.score(view)
    else:
        attempt.skipped.append(SkippedAttack(attempt.side, attack.name, reason))


def _leaks(attempt: _Attempt, samples: int, seed: int) -> Iterator[Measurement]:
    """Measure all attacks of a party, on all of its UIDs and by stratum."""
    yield from _paper_attack(attempt.side, attempt.view, attempt.is_real)
    if not attempt.scores:
        return
    truth = attempt.truth
    groups = strata.judged_strata(strata.strata_of(attempt.view), truth)
    # The AUC, and the true positive rate in two directions.
    comparisons = 3 * len(groups) * len(attempt.scores)
    confidence = strata.corrected_confidence(statistics.CONFIDENCE, comparisons)
    for name, scores in attempt.scores.items():
        turned = oriented(scores, truth)
        found = statistics.evaluate(name, turned, truth, samples=samples, seed=seed)
        yield from _attack_figures(attempt.side, found, is_inverted=turned is not scores)
        yield from _strata_figures(
            attempt.side, strata.evaluate_strata(name, turned, truth, groups, confidence)
        )


def _strata_figures(side: RoleName, results: list[strata.StratumResult]) -> Iterator[Measurement]:
    """Yield the folded AUC of each stratum, and the worst AUC and true positive rate."""

    def figure(
        metric: str, found: strata.StratumResult, estimate: statistics.IntervalEstimate
    ) -> Measurement:
        return Measurement(
            metric,
            estimate.value,
            estimate.low,
            estimate.high,
            side=side,
            attack=found.result.attack,
            stratum=found.stratum,
        )

    for found in results:
        yield figure("stratum_folded_auc", found, found.result.folded_auc)
    worst = strata.worst_stratum(results)
    if worst is not None:
        yield figure("worst_stratum_auc", worst, worst.result.folded_auc)
    rate = statistics.FALSE_POSITIVE_RATES[0]
    worst = strata.worst_rates(results, rate)
    if worst is not None:
        yield figure(f"worst_stratum_tpr_{rate:g}", worst, worst.result.true_positive_rate(rate))


def _has_both(truth: npt.NDArray[np.bool_]) -> bool:
    return bool(truth.any() and not truth.all())


def _paper_attack(
    side: RoleName, view: PassiveView | ActiveView, is_real: npt.NDArray[np.bool_]
) -> Iterator[Measurement]:
    value = spectral_auc(view, is_real)
    if not np.isnan(value):
        yield Measurement("paper_attack_auc", value, side=side, attack="spectral")


def _attack_figures(
    side: RoleName, result: AttackResult, *, is_inverted: bool
) -> Iterator[Measurement]:
    """Yield all figures; `is_inverted` if the scores were inverted, as an attacker may do."""
    if np.isnan(result.auc.value):
        return  # undefined, such as too few rows
    auc = result.auc
    if is_inverted:
        auc = statistics.IntervalEstimate(1 - auc.value, 1 - auc.high, 1 - auc.low)
    estimates = {"attack_auc": auc, "attack_folded_auc": result.folded_auc}
    for rate in statistics.FALSE_POSITIVE_RATES:
        estimates[f"finds_real_{rate:g}"] = result.finds_real[rate]
        estimates[f"finds_synthetic_{rate:g}"] = result.finds_synthetic[rate]
        estimates[f"tpr_{rate:g}"] = result.true_positive_rate(rate)
    for metric, estimate in estimates.items():
        yield Measurement(
            metric, estimate.value, estimate.low, estimate.high, side=side, attack=result.attack
        )


def trial_digest(
    people_digest: str,
    trial: Trial,
    audit: TrialAudit | None,
    known_attacks: Mapping[RoleName, tuple[str, ...]] = KNOWN_ATTACKS,
) -> str:
    """Return a digest that is equal for trials with equal measurements."""
    facts = {
        "version": VERSION,
        "people": people_digest,
        "trial": trial.facts(),
        # By name, so that results from before an attack was added do not count as complete.
        "audit": audit
        and {
            "samples": audit.samples,
            "learned": audit.learned,
            "passive": audit.chosen(known_attacks["passive"]),
            "active": audit.chosen(known_attacks["active"]),
        },
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
