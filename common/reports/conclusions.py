"""What a report says first: its conclusion in plain language, with a link to the other report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.reports.html import Html, markup, tag
from florist.common.reports.shown_values import number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from florist.common.audit.findings import AuditRecord
    from florist.common.audit.statistics import IntervalEstimate
    from florist.common.training.history import EpochFigures

#: The reports of a run directory, relative to each other.
TRAINING_REPORT = "../training/report.html"
EVALUATION_REPORT = "../evaluation/report.html"

#: The true positive rate of guessing, at 1% false positives.
CHANCE_RATE = 0.01

_VERDICTS = {
    "fine": "No attack exceeded your limits.",
    "warn": "An attack exceeded one of your warning limits; see the self-audit below.",
    "stop": "An attack exceeded a limit at which the run must stop; see the self-audit below.",
}


def conclusion_box(sentences: Iterable[str], link: Html | None = None) -> Html:
    """Make the part of a report that comes first; one paragraph per text."""
    last = tag("p", link) if link is not None else ""
    return tag("div", *(tag("p", text) for text in sentences), last, class_="conclusion")


def report_link(text: str, path: str, note: str = "") -> Html:
    """Make a link to another report of the same run directory."""
    return markup(tag("a", text, href=path), note)


def quality_text(metrics: dict[str, float], epochs: list[EpochFigures]) -> str:
    """Return how good the trained model is, as far as this party knows it."""
    if "auc" in metrics:
        return (
            f"On the test table the model has an AUC of {number(metrics['auc'])}; 0.5 is chance, "
            "1 is perfect."
        )
    if not epochs:
        return "How good the model is was not measured during training."
    last = f"{number(epochs[-1].loss)} in the last epoch"
    fell = f"was {last}" if len(epochs) == 1 else f"went from {number(epochs[0].loss)} to {last}"
    return (
        f"The loss {fell}. There was no test table, so how good the model is shows only in the "
        "evaluation."
    )


def privacy_text(record: AuditRecord | None, party: str, peer: str) -> str:
    """Return what the strongest known attack finds, and what this party's limits are."""
    if record is None or not record.last:
        return (
            f"What {peer} could infer from what {party} sent was not measured: the self-audit was "
            "disabled, or had too few rows."
        )
    found = [finding for figures in record.last for finding in figures.findings]
    strongest = max(found, key=lambda finding: _strength(finding.auc)).auc
    rates = [finding.tpr for finding in found if finding.tpr is not None]
    kind = "labels" if record.role == "active" else "features"
    settings = record.settings
    text = (
        f"The strongest known attack that {peer} could make on what {party} sent tells real {kind} "
        f"from synthetic ones with an AUC of {strongest.value:.2f} (interval {strongest.low:.2f} "
        f"to {strongest.high:.2f}), where 0.5 is guessing and 1 is certainty; "
        f"{_limit(settings.warn_above, settings.stop_above, '{:.2f}')}. "
    )
    if rates:
        rate = max(rates, key=lambda rate: (max(rate.low, CHANCE_RATE), rate.value))
        text += (
            f"With one false alarm in a hundred, an attack finds {rate.value:.1%} of them "
            f"(interval {rate.low:.1%} to {rate.high:.1%}), where guessing finds 1%; "
            f"{_limit(settings.warn_tpr_above, settings.stop_tpr_above, '{:.0%}')}. "
        )
    return text + _VERDICTS[record.verdict]


def _strength(estimate: IntervalEstimate) -> tuple[float, float]:
    """Order estimates as the limits do: by the lower end of the interval."""
    return estimate.low, estimate.value


def _limit(warn: float | None, stop: float | None, shown: str) -> str:
    limits = [limit for limit in (warn, stop) if limit is not None]
    return f"your limit is {shown.format(min(limits))}" if limits else "you have set no limit"
