"""The results in a run directory, as plain objects."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from florist.api.records import Records
from florist.common.audit.audit_folder import AuditFolder
from florist.common.audit.findings import AuditRecord
from florist.common.core.errors import ConfigurationError
from florist.common.evaluation.metric_names import METRICS
from florist.common.session.evaluated_model import is_outdated
from florist.common.session.run_directory import RunDirectory
from florist.common.training.history import EpochFigures, History

if TYPE_CHECKING:
    from florist.api.config import AnyPath
    from florist.common.audit.findings import Verdict
    from florist.common.audit.statistics import IntervalEstimate
    from florist.common.session.alignment_result import AlignmentSummary


@dataclass(frozen=True, slots=True)
class RunSizes:
    """Numbers of IDs in the aligned tables; sets include all padding.

    Attributes:
        rows: rows of this party's own table.
        own: IDs in this party's padded set, as announced.
        peer: IDs in the peer's padded set, as announced.
        union: UIDs in the union.
        shared_estimate: people in both sets, as both parties estimate it. Which people they are,
            and with private counts the exact number, is not known to either party.
        shared_deviation: standard deviation of that estimate; 0 if it is exact.
    """

    rows: int
    own: int
    peer: int
    union: int
    shared_estimate: int
    shared_deviation: float


@dataclass(frozen=True, slots=True)
class EpochMetrics:
    """Mean training loss of an epoch, and the metrics on the test table after it, if there is one.

    Attributes:
        epoch: counted from 1.
        loss: mean over the steps of the epoch, synthetic labels included.
        auc: test AUC.
        ace: test calibration error (ACE).
        log_loss: test log loss.
    """

    epoch: int
    loss: float
    auc: float | None
    ace: float | None
    log_loss: float | None


@dataclass(frozen=True, slots=True)
class MetricEstimate:
    """A metric estimated on the evaluation tables, with its 95% confidence interval.

    Attributes:
        metric: "auc", "ace" or "log_loss".
        value: the estimate.
        low: lower end of the interval.
        high: upper end of the interval.
    """

    metric: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ColumnImportance:
    """The importance of one of this party's columns, with its 95% confidence interval.

    Attributes:
        column: the name of the column.
        value: at the active party, how much lower the AUC is if the column's values are exchanged
            between people; at the passive party, which part of the variance of what it sends
            depends on the column.
        low: lower end of the interval.
        high: upper end of the interval.
    """

    column: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class WorthResult:
    """What the joint model is worth to this party, on its test or evaluation table.

    Attributes:
        baseline: the same learner on the active party's own data alone, one row per metric (AUC and
            log loss); empty at the passive party, and if there is no baseline.
        joint: the joint model on the same people.
        gain: how much better the joint model is: higher AUC, lower log loss. Intervals may include
            negative numbers.
        people: number of people on whom both were compared; 0 without a comparison.
        baseline_rows: rows of the active party that the baseline was trained with.
        baseline_columns: its feature columns; with 0, the baseline predicts the same for everybody.
        importance: this party's columns, the most important first.
        peer_importance: how much lower the AUC is if people exchange all that the peer sends; None
            at the passive party.
        missing: sentences on what could not be computed, and why.
    """

    baseline: Records[MetricEstimate]
    joint: Records[MetricEstimate]
    gain: Records[MetricEstimate]
    people: int
    baseline_rows: int
    baseline_columns: int
    importance: Records[ColumnImportance]
    peer_importance: ColumnImportance | None
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """The result of the stage "evaluate".

    Attributes:
        sizes: people in the evaluation tables.
        scored: people who were scored.
        estimates: one row per metric; empty if the agreement keeps the metrics from this party.
        warning: why the estimates are too imprecise to use; "" if they are not.
        worth: what the joint model is worth to this party; None if `training.worth` was off.
    """

    sizes: RunSizes
    scored: int
    estimates: Records[MetricEstimate]
    warning: str
    worth: WorthResult | None


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """How well one attack distinguishes this party's real rows from its synthetic rows.

    Attributes:
        step: training step after which the audit was made.
        scope: "batches" (the most recent batches), "epochs" (sampled people in all epochs), or a
            training window: "batch-0", "batches-0-4", "batches-5-9", "batches-10-19" or
            "later-batches" (sampled people from batch 20).
        attack: name of the attack.
        auc: AUC of the attack, folded: 0.5 is chance.
        auc_low: lower end of its confidence interval.
        auc_high: upper end of its confidence interval.
        tpr: true-positive rate at a false-positive rate of 1%; None if there were too few rows.
        tpr_low: lower end of its confidence interval.
        tpr_high: upper end of its confidence interval.
    """

    step: int
    scope: str
    attack: str
    auc: float
    auc_low: float
    auc_high: float
    tpr: float | None
    tpr_low: float | None
    tpr_high: float | None


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The results of the self-audit during training.

    Attributes:
        verdict: "fine", "warn" or "stop": the worst of the run, by the limits under `audit`.
        findings: one row per audit and attack, in order of time.
    """

    verdict: Verdict
    findings: Records[AuditFinding]


@dataclass(frozen=True, slots=True)
class RunResult:
    """What one party's run directory holds.

    Attributes:
        path: the run directory.
        party: name of this party.
        peer: name of the peer.
        role: "active" or "passive".
        sizes: numbers of people in the aligned training tables.
        alignment: more about the alignment: traffic, timings, digest of the union, agreement.
        history: one row per epoch; empty before training has finished.
        losses: training loss of each step; the active party's only.
        metrics: test metrics after the last epoch, by name; empty without a test table.
        evaluation: the result of the stage "evaluate"; None before it has finished for the model
            that the run directory now holds.
        evaluation_is_outdated: whether there is only an evaluation of an earlier model.
        audit: the results of the self-audit, also of a run in progress; None if there are none.
        worth: what the joint model is worth to this party: that of the evaluation or, without an
            evaluation table, that of training; None before it is known.
    """

    path: Path
    party: str
    peer: str
    role: str
    sizes: RunSizes
    alignment: AlignmentSummary
    history: Records[EpochMetrics]
    losses: tuple[float, ...]
    metrics: dict[str, float]
    evaluation: EvaluationResult | None
    evaluation_is_outdated: bool
    audit: AuditResult | None
    worth: WorthResult | None

    @property
    def reports(self) -> tuple[Path, ...]:
        """The HTML reports of the finished stages."""
        runs = RunDirectory(self.path)
        folders = [runs.training] + ([] if self.evaluation_is_outdated else [runs.evaluation])
        reports = (folder / "report.html" for folder in folders)
        return tuple(report for report in reports if report.exists())


def load_run(path: AnyPath) -> RunResult:
    """Read the results of one party's run.

    Stages that have not finished yet are left empty; only the alignment must be there.

    Args:
        path: the party's run directory (`run_directory` in its configuration).

    Returns:
        UnionSizes, training history, metrics, evaluation and audit findings.

    Raises:
        ConfigurationError: there is no finished alignment, or a file is damaged or was written by
            an incompatible release.

    Example:
        >>> run = florist.load_run("runs/bank")
        >>> run.sizes.union
        24000
        >>> run.history.to_pandas()
    """
    runs = RunDirectory(Path(path))
    summary = runs.load_summary()
    history = load_history(runs)
    epochs = epoch_metrics(history)
    evaluation = load_evaluation(runs)
    return RunResult(
        path=runs.path,
        party=summary.party,
        peer=summary.peer,
        role=summary.role,
        sizes=RunSizes(
            summary.rows,
            summary.sizes.own,
            summary.sizes.peer,
            summary.sizes.union,
            summary.sizes.shared_estimate,
            summary.sizes.shared_deviation,
        ),
        alignment=summary,
        history=epochs,
        losses=tuple(history.losses),
        metrics=_metrics(epochs[-1]) if epochs else {},
        evaluation=evaluation,
        evaluation_is_outdated=is_outdated(runs.training, runs.evaluation),
        audit=_audit(runs),
        worth=load_training_worth(runs) if evaluation is None else evaluation.worth,
    )


def load_history(runs: RunDirectory) -> History:
    """Read the training history; it is empty before training has finished.

    Raises:
        ConfigurationError: the file is damaged.
    """
    if not runs.training.exists():
        return History()
    path = runs.training / "history.json"
    runs.require_intact(path, runs.training / "metrics.json")
    try:
        return History.from_json(runs.load_history())
    except (KeyError, TypeError, AttributeError):
        raise _damaged(path) from None


def epoch_metrics(history: History) -> Records[EpochMetrics]:
    """Return the metrics of each epoch."""
    return Records(EpochMetrics, map(_epoch, history.epochs))


def _epoch(figures: EpochFigures) -> EpochMetrics:
    return EpochMetrics(figures.epoch + 1, figures.loss, figures.auc, figures.ace, figures.log_loss)


def _metrics(last: EpochMetrics) -> dict[str, float]:
    values = {name: getattr(last, name) for name in METRICS}
    return {name: value for name, value in values.items() if value is not None}


def load_evaluation(runs: RunDirectory) -> EvaluationResult | None:
    """Read the result of the stage "evaluate"; None before it has finished for this model.

    Raises:
        ConfigurationError: the file cannot be read or is damaged.
    """
    if not runs.evaluation.exists() or is_outdated(runs.training, runs.evaluation):
        return None
    path = runs.evaluation / "evaluation.json"
    runs.require_intact(path)
    try:
        return _parse_evaluation(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _damaged(path) from None


def load_training_worth(runs: RunDirectory) -> WorthResult | None:
    """Read what the model was worth after training; None if there is nothing about it.

    Raises:
        ConfigurationError: the file cannot be read or is damaged.
    """
    path = runs.training / "worth.json"
    runs.require_intact(path)
    try:
        return _parse_worth(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _damaged(path) from None


def _parse_worth(facts: dict[str, Any]) -> WorthResult:
    comparison, importance = facts["comparison"] or {}, facts["importance"] or {}
    peer = importance.get("peer")
    return WorthResult(
        baseline=_metric_records(comparison.get("baseline", {})),
        joint=_metric_records(comparison.get("joint", {})),
        gain=_metric_records(comparison.get("gain", {})),
        people=int(comparison.get("people", 0)),
        baseline_rows=int(comparison.get("rows", 0)),
        baseline_columns=int(comparison.get("columns", 0)),
        importance=Records(
            ColumnImportance,
            (
                ColumnImportance(str(each["column"]), *_figure(each))
                for each in importance.get("columns", ())
            ),
        ),
        peer_importance=None
        if peer is None
        else ColumnImportance("all of the peer", *_figure(peer)),
        missing=tuple(map(str, facts["missing"])),
    )


def _metric_records(facts: dict[str, Any]) -> Records[MetricEstimate]:
    """Return the metrics that are there, in the usual order."""
    return Records(
        MetricEstimate,
        (MetricEstimate(name, *_figure(facts[name])) for name in METRICS if name in facts),
    )


def _figure(facts: dict[str, Any]) -> tuple[float, float, float]:
    return float(facts["value"]), float(facts["low"]), float(facts["high"])


def _parse_evaluation(facts: dict[str, Any]) -> EvaluationResult:
    sizes, estimates = facts["sizes"], facts["estimates"] or {}
    return EvaluationResult(
        sizes=RunSizes(
            rows=int(sizes["table"]),
            own=int(sizes["own"]),
            peer=int(sizes["peer"]),
            union=int(sizes["union"]),
            shared_estimate=int(sizes["shared_estimate"]),
            shared_deviation=float(sizes["shared_deviation"]),
        ),
        # The passive party's file does not name it: there it is the size of the peer's set.
        scored=int(facts.get("scored", sizes["peer"])),
        estimates=Records(
            MetricEstimate,
            (MetricEstimate(name, *_figure(estimates[name])) for name in METRICS if estimates),
        ),
        warning=str(facts["warning"]),
        # Earlier releases did not write it.
        worth=None if facts.get("worth") is None else _parse_worth(facts["worth"]),
    )


def _audit(runs: RunDirectory) -> AuditResult | None:
    folder = AuditFolder(runs.audit)
    if not folder.files.exists(folder.record.name):
        return None
    record = AuditRecord.load(folder)
    findings = (
        AuditFinding(
            figures.step,
            figures.over,
            finding.attack,
            *_interval(finding.auc),
            *(_interval(finding.tpr) if finding.tpr else (None, None, None)),
        )
        for figures in record.audits
        for finding in figures.findings
    )
    return AuditResult(record.verdict, Records(AuditFinding, findings))


def _interval(estimate: IntervalEstimate) -> tuple[float, float, float]:
    return estimate.value, estimate.low, estimate.high


def _damaged(path: Path) -> ConfigurationError:
    return ConfigurationError(f"{path} is damaged; restore it, or run the stage again")
