"""A training run on one page: an HTML file that needs nothing else, safe to show to a colleague.

It is made of aggregates alone, so it cannot tell who is shared.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.ticker import MaxNLocator

from florist.common.reports.audit_report import audit_section
from florist.common.reports.html import (
    COLOUR,
    Html,
    card,
    facts_table,
    figures_table,
    markup,
    page,
    picture,
    tag,
    titled_section,
)
from florist.common.training.history import FEWEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from matplotlib.figure import Figure

    from florist.common.audit.findings import AuditRecord
    from florist.common.core.roles import RoleName
    from florist.common.training.history import CalibrationPoints, History

#: A plot of losses has at most twice as many points: the lowest and the highest of each stretch.
STRETCHES = 750
#: Points of its smoothed line; each is the mean over a fiftieth of the run.
SMOOTHED_POINTS = 500


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """A way of training and its test figures."""

    name: str
    auc: float | None
    ace: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """What a party may tell of its run. Texts may be any, the peer's too: they are escaped."""

    party: str
    peer: str
    role: RoleName
    release: str
    finished_at: str
    agreement: dict[str, Any]
    #: As the alignment told both; dummies included.
    union_size: int
    own_size: int
    peer_size: int
    shared_size: int
    history: History
    #: The finished model on the test table, such as `auc`, `ace`, `log_loss`.
    metrics: dict[str, float]
    calibration: CalibrationPoints | None
    comparison: Sequence[ComparisonRow] | None
    #: Of our half: parameters, layers.
    model: dict[str, Any]
    bytes_sent: int
    bytes_received: int
    #: What we found when we attacked what we send; None if we did not.
    audit: AuditRecord | None = None


def render(report: Report) -> str:
    """The whole page, a few hundred kilobytes at most; the same report gives the same text.

    What has no data is left out, and named at the end. Epochs and steps are shown from 1.
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
    return page(title, _header(title, report), *sections, _FOOTER)


# --- sections ---


def _header(title: str, report: Report) -> Html:
    finished = tag("time", report.finished_at.replace("T", " "), datetime=report.finished_at)
    told = (
        f"Seen from {report.party}, the {report.role} party · FLORIST {report.release} · finished "
    )
    return tag("header", tag("h1", title), tag("p", told, finished, class_="muted"))


def _headline(report: Report) -> Html:
    history = report.history
    cards = [
        card(label, _number(report.metrics[key]), meaning)
        for key, (label, meaning) in _METRICS.items()
        if key in report.metrics
    ]
    cards += [
        card(key.replace("_", " "), _number(value))
        for key, value in report.metrics.items()
        if key not in _METRICS
    ]
    if not cards and history.epochs:
        cards.append(card("loss", _number(history.epochs[-1].loss), "mean of the last epoch"))
    cards.append(card("IDs in the union", _number(report.union_size), "of both parties"))
    if seconds := _seconds(history):
        cards.append(card("time", _duration(seconds), f"{history.rows / seconds:,.0f} rows/s"))
    traffic = report.bytes_sent + report.bytes_received
    cards.append(card("traffic", _bytes(traffic), "both ways"))
    return tag("dl", *cards, class_="cards")


def _comparison(report: Report) -> Html | None:
    if not report.comparison:
        return None
    rows = [[row.name, _number(row.auc), _number(row.ace)] for row in report.comparison]
    return figures_table(["trained", "AUC", "ACE"], rows)


def _loss(report: Report) -> Html | None:
    epochs = report.history.epochs
    steps = list(_per_step(report))
    means = list(_per_epoch(report, "loss", "Mean loss of each epoch."))
    if epochs and not means:
        means = [facts_table({f"epoch {e.epoch + 1}": _number(e.loss) for e in epochs})]
    if not steps and not means:
        return None
    note = "" if steps else tag("p", _NO_STEPS, class_="muted")
    return markup(tag("div", *steps, *means, class_="grid"), note)


def _per_step(report: Report) -> Iterator[Html]:
    """A plot of the loss over the steps, for the party that knows it."""
    losses = np.asarray(report.history.losses, dtype=np.float64)
    finite = np.isfinite(losses)
    steps, losses = np.flatnonzero(finite) + 1, losses[finite]
    if not len(losses):
        return
    window = len(losses) // 50 | 1
    caption = "Mean loss of each step, synthetic labels included"
    caption += f"; the line is its mean over {window:,} steps." if window > 1 else "."
    if lost := int(np.sum(~finite)):
        caption += f" {lost:,} steps had no finite loss."
    label = (
        f"Line plot of the loss of {len(losses):,} steps, from {_number(losses[0])} at the first "
        f"to {_number(losses[-1])} at the last."
    )
    yield picture("loss-per-step", caption, label, lambda f: _draw_steps(f, steps, losses, window))


def _epochs(report: Report) -> Html | None:
    epochs = report.history.epochs
    known = {
        key: label
        for key, (label, _) in _METRICS.items()
        if any(getattr(figures, key) is not None for figures in epochs)
    }
    if not known:
        return None
    rows = [
        [str(figures.epoch + 1), *(_number(getattr(figures, key)) for key in ("loss", *known))]
        for figures in epochs
    ]
    plots = [
        *_per_epoch(report, "auc", "AUC on the test table: 0.5 is chance, 1 is perfect."),
        *_per_epoch(report, "ace", "ACE, the adaptive calibration error: 0 is perfect."),
    ]
    table = figures_table(["epoch", "training loss", *known.values()], rows)
    return markup(tag("div", *plots, class_="grid") if plots else "", table)


def _per_epoch(report: Report, key: str, caption: str) -> Iterator[Html]:
    """A plot of one figure over the epochs, if there is anything to compare."""
    known = {figures.epoch + 1: getattr(figures, key) for figures in report.history.epochs}
    known = {epoch: value for epoch, value in known.items() if _is_finite(value)}
    if len(known) > 1:
        values = ", ".join(f"{_number(value)} in epoch {epoch}" for epoch, value in known.items())
        label = f"Line plot over the epochs: {values}."
        yield picture(f"{key}-per-epoch", caption, label, lambda f: _draw_epochs(f, known))


def _calibration(report: Report) -> Html | None:
    points = report.calibration
    if points is None or not (shown := points.counts >= FEWEST).any():
        return None
    predicted, observed = points.predicted[shown], points.observed[shown]
    counts = points.counts[shown]
    curve = picture(
        "calibration-curve",
        "The rate observed where the model predicts so much; on the dashed line both are equal.",
        "Calibration curve; its numbers are in the table below.",
        lambda figure: _draw_calibration(figure, predicted, observed),
    )
    sizes = picture(
        "calibration-counts",
        "Test rows behind each point of the curve.",
        "Rows of each bin; the numbers are in the table below.",
        lambda figure: _draw_counts(figure, predicted, counts),
    )
    rows = [
        [_number(float(p)), _number(float(o)), _number(int(n))]
        for p, o, n in zip(predicted, observed, counts, strict=True)
    ]
    table = figures_table(["predicted", "observed", "rows"], rows)
    numbers = tag("details", tag("summary", "The same in numbers"), table)
    return markup(tag("div", curve, sizes, class_="grid"), numbers)


def _time(report: Report) -> Html | None:
    history = report.history
    if not (seconds := _seconds(history)):
        return None
    parts = {"computing": history.compute, "wire": history.wire, "waiting": history.wait}
    shown = [f"{_duration(part)} ({part / seconds:.0%})" for part in parts.values()]
    caption = "Wire: handing messages over. Waiting: for the peer's part of the work."
    facts = {
        "together": _duration(seconds),
        "rows trained on": _number(history.rows),
        "rows per second": f"{history.rows / seconds:,.0f}",
    }
    return tag("div", _bars("time-split", caption, parts, shown), facts_table(facts), class_="grid")


def _traffic(report: Report) -> Html:
    parts = {"sent": report.bytes_sent, "received": report.bytes_received}
    shown = [_bytes(count) for count in parts.values()]
    facts = dict(zip(parts, shown, strict=True))
    if report.history.rows:
        facts |= {
            f"{way} per row": _bytes(round(count / report.history.rows))
            for way, count in parts.items()
        }
    caption = f"Bytes between {report.party} and {report.peer}."
    return tag(
        "div", _bars("traffic-split", caption, parts, shown), facts_table(facts), class_="grid"
    )


def _learned(report: Report) -> Html:
    active, passive = report.party, report.peer
    active_size, passive_size = report.own_size, report.peer_size
    if report.role == "passive":
        active, passive = passive, active
        active_size, passive_size = passive_size, active_size
    shared, union = report.shared_size, report.union_size
    parts = {
        "only active": active_size - shared,
        "both": shared,
        "only passive": passive_size - shared,
    }
    bars = _bars(
        "set-sizes",
        f"IDs in the union, of {active} (active) and {passive} (passive).",
        parts,
        [_number(part) for part in parts.values()],
    )
    known = tag(
        "p",
        f"Both know four sizes: {active_size:,} IDs of {active}, {passive_size:,} of {passive}, "
        f"{union:,} in the union, and so {shared:,} in both. Dummies, where a party added some, "
        "count as IDs.",
    )
    sides = (
        _side(
            f"{active} (active)",
            "the place of its own IDs in the union; for each place of the union an embedding, made "
            "from real or synthetic features.",
            f"which of its IDs {passive} also has; any other ID of {passive}; the features; which "
            "of them are real.",
        ),
        _side(
            f"{passive} (passive)",
            "the place of its own IDs in the union; for each place of the union a gradient, made "
            "from a real or synthetic label.",
            f"which of its IDs {active} also has; any other ID of {active}; which labels are real.",
        ),
    )
    limits = tag(
        "p",
        "Embeddings and gradients are made from data, so a curious peer may guess from them, the "
        "more so the more often it sees the same ID: here "
        f"{report.history.rows / max(union, 1):.3g} times. How well it could guess is for the "
        "self-audit to measure, as far as the attacks in it go.",
    )
    return markup(tag("div", bars, known, class_="grid"), tag("div", *sides, class_="grid"), limits)


def _side(party: str, learned: str, hidden: str) -> Html:
    return tag(
        "div",
        tag("h3", party),
        tag("p", tag("strong", "Learned:"), learned),
        tag("p", tag("strong", "Was not told:"), hidden),
    )


def _model(report: Report) -> Html | None:
    return facts_table(dict(_leaves(report.model))) if report.model else None


def _agreement(report: Report) -> Html | None:
    return facts_table(dict(_leaves(report.agreement))) if report.agreement else None


_NO_STEPS = "Step by step only the active party sees the loss, because it has the labels."


class _Section(NamedTuple):
    title: str
    write: Callable[[Report], Html | None]
    #: Said when there is nothing to write; empty where nobody would miss it.
    why_absent: str = ""


_SECTIONS = (
    _Section("Headline figures", _headline),
    _Section("Comparison", _comparison),
    _Section("Loss", _loss, f"none was recorded. {_NO_STEPS}"),
    _Section("Test figures", _epochs, "no epoch was evaluated on a test table here."),
    _Section(
        "Calibration", _calibration, "there are no predictions on a test table here, or too few."
    ),
    _Section(
        "Self-audit",
        lambda report: audit_section(report.audit, report.peer),
        "it was switched off, or had too few rows to judge by.",
    ),
    _Section("Time", _time, "none was recorded."),
    _Section("Traffic", _traffic),
    _Section("What each side learned", _learned),
    _Section("Our half of the model", _model, "it was not described."),
    _Section("Agreement", _agreement, "it was not recorded."),
)

_METRICS = {
    "auc": ("AUC", "0.5 is chance, 1 perfect"),
    "ace": ("ACE", "calibration error, 0 perfect"),
    "log_loss": ("log loss", "on the test table"),
}


# --- numbers ---


def _number(value: float | None) -> str:
    match value:
        case None:
            return "\N{EN DASH}"
        case int():
            return f"{value:,}"
        case _ if not math.isfinite(value):
            return "not finite"
        case _ if value and not 1e-3 <= abs(value) < 1e4:
            return f"{value:.3g}"
        case _:
            return f"{value:.4f}"


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _seconds(history: History) -> float:
    return history.compute + history.wire + history.wait


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.2f} TB"


def _leaves(values: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Dotted key and shown value, section by section."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", _shown(value)


def _shown(value: object) -> str:
    match value:
        case str():
            return value
        case list() | tuple():
            return ", ".join(_shown(item) for item in value) or "none"
        case int() if not isinstance(value, bool):
            return f"{value:,}"
        case _:
            return json.dumps(value, ensure_ascii=False, default=str)


# --- pictures ---


def _draw_steps(
    figure: Figure, steps: npt.NDArray[np.intp], losses: npt.NDArray[np.float64], window: int
) -> None:
    axes = figure.subplots()
    kept = _thinned(losses)
    axes.plot(steps[kept], losses[kept], color=COLOUR["pale"], linewidth=0.7, label="each step")
    if window > 1:
        line = np.unique(np.linspace(0, len(losses) - 1, SMOOTHED_POINTS).astype(np.intp))
        smooth = _smoothed(losses, window)
        axes.plot(steps[line], smooth[line], color=COLOUR["accent"], linewidth=1.5, label="mean")
        axes.legend(loc="upper right")
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter("{x:,.0f}")


def _draw_epochs(figure: Figure, values: dict[int, float]) -> None:
    axes = figure.subplots()
    axes.plot(list(values), list(values.values()), "o-", color=COLOUR["accent"], markersize=4)
    axes.set_xlabel("epoch")
    axes.margins(y=0.15)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_calibration(
    figure: Figure, predicted: npt.NDArray[np.float64], observed: npt.NDArray[np.float64]
) -> None:
    axes = figure.subplots()
    end = 1.05 * max(predicted.max(), observed.max())
    axes.plot([0, end], [0, end], "--", color=COLOUR["muted"], linewidth=0.9)
    axes.plot(predicted, observed, "o-", color=COLOUR["accent"], markersize=4)
    axes.set_xlabel("predicted")
    axes.set_ylabel("observed")


def _draw_counts(
    figure: Figure, predicted: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]
) -> None:
    axes = figure.subplots()
    axes.vlines(predicted, 0, counts, color=COLOUR["accent"], linewidth=2.5)
    axes.set_ylim(0, 1.15 * counts.max())
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlim(left=0)
    axes.set_xlabel("predicted")
    axes.set_ylabel("rows")


def _bars(name: str, caption: str, parts: Mapping[str, float], shown: list[str]) -> Html:
    """Horizontal bars, each with its shown value behind it."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        bars = axes.barh(list(parts), list(parts.values()), color=COLOUR["accent"], height=0.6)
        axes.bar_label(bars, shown, padding=4)
        axes.set_xlim(0, 1.6 * max(*parts.values(), 1e-9))
        axes.invert_yaxis()
        axes.tick_params(left=False, bottom=False, labelbottom=False)
        axes.tick_params(axis="y", labelcolor=COLOUR["ink"])
        axes.spines[:].set_visible(False)
        axes.grid(visible=False)

    values = ", ".join(f"{part} {text}" for part, text in zip(parts, shown, strict=True))
    label = f"Bar chart: {values}."
    return picture(name, caption, label, draw, height=0.35 + 0.3 * len(parts))


def _thinned(losses: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Positions to show: all, or those of the lowest and the highest loss of each stretch."""
    everything = np.arange(len(losses))
    if len(losses) <= 2 * STRETCHES:
        return everything
    kept = [
        stretch[extreme(losses[stretch])]
        for stretch in np.array_split(everything, STRETCHES)
        for extreme in (np.argmin, np.argmax)
    ]
    return np.unique(kept)


def _smoothed(losses: npt.NDArray[np.float64], window: int) -> npt.NDArray[np.float64]:
    """Means over `window` steps around each, an odd number; fewer at both ends."""
    sums = np.concatenate(([0.0], np.cumsum(losses)))
    places = np.arange(len(losses))
    start = np.maximum(places - window // 2, 0)
    stop = np.minimum(places + window // 2 + 1, len(losses))
    means: npt.NDArray[np.float64] = (sums[stop] - sums[start]) / (stop - start)
    return means


# --- the page ---


_FOOTER = tag(
    "footer",
    tag(
        "p",
        "Made of aggregates alone: totals that both parties know, means over batches, figures over "
        "the whole test table. No ID, no row and no place in the union is in this file, and "
        "nothing in it tells which people the two parties share. It loads nothing from elsewhere.",
    ),
    class_="muted",
)
