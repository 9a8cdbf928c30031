"""The report of a training run: a self-contained HTML file.

It contains aggregates only, so it cannot reveal who is shared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from florist.common.audit.measured_figures import OWN_FEATURES
from florist.common.evaluation.metric_names import METRICS
from florist.common.reports.audit_report import audit_section
from florist.common.reports.column_section import column_section
from florist.common.reports.conclusions import (
    EVALUATION_REPORT,
    conclusion_box,
    privacy_text,
    quality_text,
    report_link,
)
from florist.common.reports.html import (
    Html,
    card,
    facts_table,
    figures_table,
    markup,
    page,
    tag,
    titled_section,
)
from florist.common.reports.plots import svg_plot
from florist.common.reports.shown_values import byte_count, dotted_facts, duration, number
from florist.common.reports.size_statements import guarantee, known_sizes
from florist.common.reports.training_plots import (
    bar_chart,
    draw_calibration,
    draw_counts,
    draw_epochs,
    draw_steps,
)
from florist.common.reports.worth_section import WORTH, Parties, short_conclusion, worth_section
from florist.common.training.history import MIN_BIN_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from florist.common.audit.findings import AuditRecord
    from florist.common.core.roles import RoleName
    from florist.common.data.column_report import TableReport
    from florist.common.evaluation.worth import Worth
    from florist.common.session.union_sizes import UnionSizes
    from florist.common.training.history import CalibrationPoints, History


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """A training method and its test figures."""

    name: str
    auc: float | None
    ace: float | None


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """What a party may report of its run. All texts, including the peer's, are escaped."""

    party: str
    peer: str
    role: RoleName
    release: str
    finished_at: str
    agreement: dict[str, Any]
    #: As both learned from the alignment; dummies included.
    #: Sizes of the padded sets.
    sizes: UnionSizes
    #: `epsilon` and `delta` of the guarantee for the sizes; None if they are exact.
    privacy: dict[str, float] | None
    history: History
    #: The finished model on the test table, such as `auc`, `ace`, `log_loss`.
    metrics: dict[str, float]
    calibration: CalibrationPoints | None
    comparison: Sequence[ComparisonRow] | None
    #: Our half: parameters, layers.
    model: dict[str, Any]
    bytes_sent: int
    bytes_received: int
    #: The findings of the self-audit; None if there was none.
    audit: AuditRecord | None = None
    #: A sentence on who has signed the evidence of the stage.
    evidence: str = ""
    #: Our own table; None if it could not be read again.
    columns: TableReport | None = None
    #: None until it is computed, after the last message, and if the evaluation has it.
    worth: Worth | None = None


def render(report: TrainingReport) -> str:
    """Return the whole page, a few hundred kilobytes at most; the same report gives the same text.

    Sections without data are left out, and listed at the end. Epochs and steps count from 1.
    """
    absent: list[Html] = []
    sections: list[Html] = []
    for section in _SECTIONS:
        body = section.write(report)
        if body is not None:
            sections.append(titled_section(section.title, body))
        elif section.why_absent:
            absent.append(tag("li", tag("strong", f"{section.title}:"), section.why_absent))
    if absent:
        sections.append(titled_section("Not in this report", tag("ul", *absent)))
    title = f"Training of {report.party} with {report.peer}"
    return page(title, _header(title, report), _conclusion(report), *sections, _FOOTER)


# --- sections ---


def _header(title: str, report: TrainingReport) -> Html:
    finished = tag("time", report.finished_at.replace("T", " "), datetime=report.finished_at)
    source = (
        f"Seen from {report.party}, the {report.role} party · FLORIST {report.release} · finished "
    )
    return tag("header", tag("h1", title), tag("p", source, finished, class_="muted"))


def _conclusion(report: TrainingReport) -> Html:
    link = None
    if report.agreement.get("evaluation", {}).get("table"):
        link = report_link("Evaluation report", EVALUATION_REPORT, "(once the evaluation is done)")
    return conclusion_box(
        [
            quality_text(report.metrics, report.history.epochs),
            *short_conclusion(report.worth, report.peer),
            privacy_text(report.audit, report.party, report.peer),
        ],
        link,
    )


def _headline(report: TrainingReport) -> Html:
    history = report.history
    cards = [
        card(label, number(report.metrics[key]), meaning)
        for key, (label, meaning) in METRICS.items()
        if key in report.metrics
    ]
    cards += [
        card(key.replace("_", " "), number(value))
        for key, value in report.metrics.items()
        if key not in METRICS
    ]
    if not cards and history.epochs:
        cards.append(card("loss", number(history.epochs[-1].loss), "mean of the last epoch"))
    cards.append(card("IDs in the union", number(report.sizes.union), "padding included"))
    if seconds := _seconds(history):
        cards.append(card("time", duration(seconds), f"{history.rows / seconds:,.0f} rows/s"))
    traffic = report.bytes_sent + report.bytes_received
    cards.append(card("traffic", byte_count(traffic), "both ways"))
    return tag("dl", *cards, class_="cards")


def _comparison(report: TrainingReport) -> Html | None:
    if not report.comparison:
        return None
    rows = [[row.name, number(row.auc), number(row.ace)] for row in report.comparison]
    return figures_table(["trained", "AUC", "ACE"], rows)


def _loss(report: TrainingReport) -> Html | None:
    epochs = report.history.epochs
    steps = list(_per_step(report))
    means = list(_per_epoch(report, "loss", "Mean loss of each epoch."))
    if epochs and not means:
        means = [facts_table({f"epoch {e.epoch + 1}": number(e.loss) for e in epochs})]
    if not steps and not means:
        return None
    note = "" if steps else tag("p", _NO_STEPS, class_="muted")
    return markup(tag("div", *steps, *means, class_="grid"), note)


def _per_step(report: TrainingReport) -> Iterator[Html]:
    """Plot the loss over the steps, for the party that knows it."""
    losses = np.asarray(report.history.losses, dtype=np.float64)
    finite = np.isfinite(losses)
    steps, losses = np.flatnonzero(finite) + 1, losses[finite]
    if not len(losses):
        return
    window = len(losses) // 50 | 1
    caption = "Mean loss of each step, including synthetic labels"
    caption += f"; the line is the mean over {window:,} steps." if window > 1 else "."
    if lost := int(np.sum(~finite)):
        caption += f" {lost:,} steps had no finite loss."
    label = (
        f"Line plot of the loss of {len(losses):,} steps, from {number(losses[0])} at the first "
        f"to {number(losses[-1])} at the last."
    )
    yield svg_plot("loss-per-step", caption, label, lambda f: draw_steps(f, steps, losses, window))


def _epochs(report: TrainingReport) -> Html | None:
    epochs = report.history.epochs
    known = {
        key: label
        for key, (label, _) in METRICS.items()
        if any(getattr(figures, key) is not None for figures in epochs)
    }
    if not known:
        return None
    rows = [
        [str(figures.epoch + 1), *(number(getattr(figures, key)) for key in ("loss", *known))]
        for figures in epochs
    ]
    plots = [
        *_per_epoch(report, "auc", "AUC on the test table: 0.5 is chance, 1 is perfect."),
        *_per_epoch(report, "ace", "ACE, the adaptive calibration error: 0 is perfect."),
    ]
    table = figures_table(["epoch", "training loss", *known.values()], rows)
    return markup(tag("div", *plots, class_="grid") if plots else "", table)


def _per_epoch(report: TrainingReport, key: str, caption: str) -> Iterator[Html]:
    """Plot one figure over the epochs, if there are at least two."""
    known = {figures.epoch + 1: getattr(figures, key) for figures in report.history.epochs}
    known = {epoch: value for epoch, value in known.items() if _is_finite(value)}
    if len(known) > 1:
        values = ", ".join(f"{number(value)} in epoch {epoch}" for epoch, value in known.items())
        label = f"Line plot over the epochs: {values}."
        name = METRICS[key][0] if key in METRICS else key
        yield svg_plot(f"{key}-per-epoch", caption, label, lambda f: draw_epochs(f, known, name))


def _calibration(report: TrainingReport) -> Html | None:
    points = report.calibration
    if points is None or not (shown := points.counts >= MIN_BIN_ROWS).any():
        return None
    predicted, observed = points.predicted[shown], points.observed[shown]
    counts = points.counts[shown]
    curve = svg_plot(
        "calibration-curve",
        "Observed rate over the prediction; on the dashed line both are equal.",
        "Calibration curve; its numbers are in the table below.",
        lambda figure: draw_calibration(figure, predicted, observed),
    )
    sizes = svg_plot(
        "calibration-counts",
        "Test rows of each point of the curve.",
        "Rows of each bin; the numbers are in the table below.",
        lambda figure: draw_counts(figure, predicted, counts),
    )
    rows = [
        [number(float(p)), number(float(o)), number(int(n))]
        for p, o, n in zip(predicted, observed, counts, strict=True)
    ]
    table = figures_table(["predicted", "observed", "rows"], rows)
    numbers = tag("details", tag("summary", "Show the numbers"), table)
    return markup(tag("div", curve, sizes, class_="grid"), numbers)


def _time(report: TrainingReport) -> Html | None:
    history = report.history
    if not (seconds := _seconds(history)):
        return None
    parts = {"computing": history.compute, "wire": history.wire, "waiting": history.wait}
    shown = [f"{duration(part)} ({part / seconds:.0%})" for part in parts.values()]
    caption = "Wire: encoding and sending messages. Waiting: for the peer's part of the work."
    facts = {
        "total": duration(seconds),
        "rows trained on": number(history.rows),
        "rows per second": f"{history.rows / seconds:,.0f}",
    }
    return tag(
        "div", bar_chart("time-split", caption, parts, shown), facts_table(facts), class_="grid"
    )


def _traffic(report: TrainingReport) -> Html:
    parts = {"sent": report.bytes_sent, "received": report.bytes_received}
    shown = [byte_count(count) for count in parts.values()]
    facts = dict(zip(parts, shown, strict=True))
    if report.history.rows:
        facts |= {
            f"{way} per row": byte_count(round(count / report.history.rows))
            for way, count in parts.items()
        }
    caption = f"Bytes between {report.party} and {report.peer}."
    return tag(
        "div", bar_chart("traffic-split", caption, parts, shown), facts_table(facts), class_="grid"
    )


def _learned(report: TrainingReport) -> Html:
    active, passive = report.party, report.peer
    sizes = report.sizes
    own, peer = (sizes.own, sizes.own_people_estimate), (sizes.peer, sizes.peer_people_estimate)
    if report.role == "passive":
        active, passive = passive, active
        own, peer = peer, own
    shared = max(sizes.shared_estimate, 0)
    parts = {
        "only active": max(own[1] - shared, 0),
        "both": shared,
        "only passive": max(peer[1] - shared, 0),
    }
    bars = bar_chart(
        "set-sizes",
        f"{'People' if sizes.is_exact else 'Estimated people'} in the union, of {active} (active) "
        f"and {passive} (passive).",
        parts,
        [number(part) for part in parts.values()],
    )
    known = markup(
        tag("p", known_sizes({active: own[0], passive: peer[0]}, sizes)),
        tag("p", guarantee(report.privacy)),
    )
    sides = (
        _side(
            f"{active} (active)",
            "the ranks of its own IDs in the union; for each UID of the union an embedding, made "
            "from real or synthetic features.",
            f"which of its IDs {passive} also has; any other ID of {passive}; the features; which "
            "of them are real.",
        ),
        _side(
            f"{passive} (passive)",
            "the ranks of its own IDs in the union; for each UID of the union a gradient, made "
            "from a real or synthetic label.",
            f"which of its IDs {active} also has; any other ID of {active}; which labels are real.",
        ),
    )
    limits = tag(
        "p",
        "Embeddings and gradients depend on the data, so a curious peer may infer something from "
        "them, the more so the more often it sees the same UID: here "
        f"{report.history.rows / max(sizes.union, 1):.3g} times. The self-audit measures how well "
        "the attacks that it includes succeed. It cannot measure what features of the active "
        "party's own, if it has any, reveal to that party: on public data, with the default "
        f"settings, {OWN_FEATURES}.",
    )
    signed = tag("p", report.evidence) if report.evidence else ""
    return markup(
        tag("div", bars, known, class_="grid"), tag("div", *sides, class_="grid"), limits, signed
    )


def _side(party: str, learned: str, hidden: str) -> Html:
    return tag(
        "div",
        tag("h3", party),
        tag("p", tag("strong", "Learned:"), learned),
        tag("p", tag("strong", "Did not learn:"), hidden),
    )


def _model(report: TrainingReport) -> Html | None:
    return facts_table(dict(dotted_facts(report.model))) if report.model else None


def _agreement(report: TrainingReport) -> Html | None:
    if not report.agreement:
        return None
    settings = facts_table(dict(dotted_facts(report.agreement)))
    return tag("details", tag("summary", "Show all settings"), settings)


_NO_STEPS = "Only the active party sees the loss of each step, because it has the labels."


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _seconds(history: History) -> float:
    return history.compute + history.wire + history.wait


def _columns(report: TrainingReport) -> Html | None:
    return None if report.columns is None else column_section(report.columns)


def _worth(report: TrainingReport) -> Html | None:
    if report.worth is None:
        return None
    return worth_section(report.worth, Parties(report.party, report.peer, report.role))


class _Section(NamedTuple):
    title: str
    write: Callable[[TrainingReport], Html | None]
    #: Shown when there are no data; empty if nobody would miss the section.
    why_absent: str = ""


_SECTIONS = (
    _Section("Headline figures", _headline),
    _Section(WORTH, _worth),
    _Section("Comparison", _comparison),
    _Section("Loss", _loss, f"no loss was recorded. {_NO_STEPS}"),
    _Section("Test figures", _epochs, "no epoch was evaluated on a test table."),
    _Section("Calibration", _calibration, "there are no predictions on a test table, or too few."),
    _Section(
        "Self-audit",
        lambda report: audit_section(report.audit, report.peer),
        "it was disabled, or had too few rows for a verdict.",
    ),
    _Section("Time", _time, "no times were recorded."),
    _Section("Traffic", _traffic),
    _Section("What each side learned", _learned),
    _Section("Our half of the model", _model, "it was not described."),
    _Section("Our columns", _columns),
    _Section("Agreement", _agreement, "it was not recorded."),
)


_FOOTER = tag(
    "footer",
    tag(
        "p",
        "This file contains aggregates only: totals that both parties know, means over batches, "
        "and figures over the whole test table. It contains no ID, no row and no rank, and does "
        "not reveal which people the two parties share. It loads no external resources.",
    ),
    class_="muted",
)
