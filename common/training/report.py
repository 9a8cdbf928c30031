"""A training run on one page: an HTML file that needs nothing else, safe to show to a colleague.

It is made of aggregates alone, so it cannot tell who is shared. Pictures are inline SVG whose
colours are the page's own, so that they follow its light or dark scheme. No script, no resource
from elsewhere; the page's own policy forbids both.
"""

from __future__ import annotations

import html
import json
import math
import re
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from florist.common.role import RoleName
    from florist.common.training.history import History

#: A plot of losses has at most twice as many points: the lowest and the highest of each stretch.
STRETCHES = 750
#: Points of its smoothed line; each is the mean over a fiftieth of the run.
SMOOTHED_POINTS = 500
#: Test rows from which a bin is shown: a rate over fewer would tell of single people.
FEWEST = 5


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationPoints:
    """Per bin of test rows: mean prediction, rate observed, rows; three arrays of one length.

    Bins of fewer than `FEWEST` rows may hold anything, and are not shown.
    """

    predicted: npt.NDArray[np.float64]
    observed: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]


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


def render(report: Report) -> str:
    """The whole page, a few hundred kilobytes at most; the same report gives the same text.

    What has no data is left out, and named at the end. Epochs and steps are shown from 1.
    """
    absent: list[_Html] = []
    sections: list[_Html] = []
    for section in _SECTIONS:
        body = section.write(report)
        if body is not None:
            sections.append(_section(section.title, body))
        elif section.why_absent:
            absent.append(_tag("li", _tag("strong", f"{section.title}:"), section.why_absent))
    if absent:
        sections.append(_section("Not in this report", _tag("ul", *absent)))
    title = f"Training of {report.party} with {report.peer}"
    head = _tag("head", _HEAD, _tag("title", title), _tag("style", _Html(_css())))
    main = _tag("main", _header(title, report), *sections, _FOOTER)
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n{_tag("body", main)}\n</html>\n'


# --- sections ---


def _header(title: str, report: Report) -> _Html:
    finished = _tag("time", report.finished_at.replace("T", " "), datetime=report.finished_at)
    told = (
        f"Seen from {report.party}, the {report.role} party · FLORIST {report.release} · finished "
    )
    return _tag("header", _tag("h1", title), _tag("p", told, finished, class_="muted"))


def _headline(report: Report) -> _Html:
    history = report.history
    cards = [
        _card(label, _number(report.metrics[key]), meaning)
        for key, (label, meaning) in _METRICS.items()
        if key in report.metrics
    ]
    cards += [
        _card(key.replace("_", " "), _number(value))
        for key, value in report.metrics.items()
        if key not in _METRICS
    ]
    if not cards and history.epochs:
        cards.append(_card("loss", _number(history.epochs[-1].loss), "mean of the last epoch"))
    cards.append(_card("IDs in the union", _number(report.union_size), "of both parties"))
    if seconds := _seconds(history):
        cards.append(_card("time", _duration(seconds), f"{history.rows / seconds:,.0f} rows/s"))
    traffic = report.bytes_sent + report.bytes_received
    cards.append(_card("traffic", _bytes(traffic), "both ways"))
    return _tag("dl", *cards, class_="cards")


def _comparison(report: Report) -> _Html | None:
    if not report.comparison:
        return None
    rows = [[row.name, _number(row.auc), _number(row.ace)] for row in report.comparison]
    return _table(["trained", "AUC", "ACE"], rows)


def _loss(report: Report) -> _Html | None:
    epochs = report.history.epochs
    steps = list(_per_step(report))
    means = list(_per_epoch(report, "loss", "Mean loss of each epoch."))
    if epochs and not means:
        means = [_facts({f"epoch {e.epoch + 1}": _number(e.loss) for e in epochs})]
    if not steps and not means:
        return None
    note = "" if steps else _tag("p", _NO_STEPS, class_="muted")
    return _html(_tag("div", *steps, *means, class_="grid"), note)


def _per_step(report: Report) -> Iterator[_Html]:
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
    yield _figure("loss-per-step", caption, label, lambda f: _draw_steps(f, steps, losses, window))


def _epochs(report: Report) -> _Html | None:
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
    table = _table(["epoch", "training loss", *known.values()], rows)
    return _html(_tag("div", *plots, class_="grid") if plots else "", table)


def _per_epoch(report: Report, key: str, caption: str) -> Iterator[_Html]:
    """A plot of one figure over the epochs, if there is anything to compare."""
    known = {figures.epoch + 1: getattr(figures, key) for figures in report.history.epochs}
    known = {epoch: value for epoch, value in known.items() if _is_finite(value)}
    if len(known) > 1:
        values = ", ".join(f"{_number(value)} in epoch {epoch}" for epoch, value in known.items())
        label = f"Line plot over the epochs: {values}."
        yield _figure(f"{key}-per-epoch", caption, label, lambda f: _draw_epochs(f, known))


def _calibration(report: Report) -> _Html | None:
    points = report.calibration
    if points is None or not (shown := points.counts >= FEWEST).any():
        return None
    predicted, observed = points.predicted[shown], points.observed[shown]
    counts = points.counts[shown]
    curve = _figure(
        "calibration-curve",
        "The rate observed where the model predicts so much; on the dashed line both are equal.",
        "Calibration curve; its numbers are in the table below.",
        lambda figure: _draw_calibration(figure, predicted, observed),
    )
    sizes = _figure(
        "calibration-counts",
        "Test rows behind each point of the curve.",
        "Rows of each bin; the numbers are in the table below.",
        lambda figure: _draw_counts(figure, predicted, counts),
    )
    rows = [
        [_number(float(p)), _number(float(o)), _number(int(n))]
        for p, o, n in zip(predicted, observed, counts, strict=True)
    ]
    table = _table(["predicted", "observed", "rows"], rows)
    numbers = _tag("details", _tag("summary", "The same in numbers"), table)
    return _html(_tag("div", curve, sizes, class_="grid"), numbers)


def _time(report: Report) -> _Html | None:
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
    return _tag("div", _bars("time-split", caption, parts, shown), _facts(facts), class_="grid")


def _traffic(report: Report) -> _Html:
    parts = {"sent": report.bytes_sent, "received": report.bytes_received}
    shown = [_bytes(count) for count in parts.values()]
    facts = dict(zip(parts, shown, strict=True))
    if report.history.rows:
        facts |= {
            f"{way} per row": _bytes(round(count / report.history.rows))
            for way, count in parts.items()
        }
    caption = f"Bytes between {report.party} and {report.peer}."
    return _tag("div", _bars("traffic-split", caption, parts, shown), _facts(facts), class_="grid")


def _learned(report: Report) -> _Html:
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
    known = _tag(
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
    limits = _tag(
        "p",
        "Embeddings and gradients are made from data, so a curious peer may guess from them, the "
        "more so the more often it sees the same ID: here "
        f"{report.history.rows / max(union, 1):.3g} times. How well it could guess is for a "
        "privacy audit to measure; this page does not.",
    )
    return _html(
        _tag("div", bars, known, class_="grid"), _tag("div", *sides, class_="grid"), limits
    )


def _side(party: str, learned: str, hidden: str) -> _Html:
    return _tag(
        "div",
        _tag("h3", party),
        _tag("p", _tag("strong", "Learned:"), learned),
        _tag("p", _tag("strong", "Was not told:"), hidden),
    )


def _model(report: Report) -> _Html | None:
    return _facts(dict(_leaves(report.model))) if report.model else None


def _agreement(report: Report) -> _Html | None:
    return _facts(dict(_leaves(report.agreement))) if report.agreement else None


_NO_STEPS = "Step by step only the active party sees the loss, because it has the labels."


class _Section(NamedTuple):
    title: str
    write: Callable[[Report], _Html | None]
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

#: Colour of the page in the light scheme, and in the dark one.
_PALETTE = {
    "paper": ("#ffffff", "#14181f"),
    "panel": ("#f4f6f9", "#1d232d"),
    "ink": ("#1b222c", "#e3e8ef"),
    "muted": ("#586374", "#9aa6b6"),
    "rule": ("#d8dee7", "#343d4b"),
    "accent": ("#1f6fb5", "#63b0f2"),
    "pale": ("#9fc3e4", "#4878a6"),
}
_COLOUR = {name: light for name, (light, _) in _PALETTE.items()}

_STYLE: dict[Any, Any] = {  # matplotlib types its keys as one long Literal
    "svg.fonttype": "none",
    "svg.hashsalt": "florist",
    "text.parse_math": False,
    "font.size": 8.5,
    "text.color": _COLOUR["ink"],
    "axes.edgecolor": _COLOUR["muted"],
    "axes.labelcolor": _COLOUR["muted"],
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": _COLOUR["rule"],
    "grid.linewidth": 0.6,
    "xtick.color": _COLOUR["muted"],
    "ytick.color": _COLOUR["muted"],
    "legend.frameon": False,
}


def _draw_steps(
    figure: Figure, steps: npt.NDArray[np.intp], losses: npt.NDArray[np.float64], window: int
) -> None:
    axes = figure.subplots()
    kept = _thinned(losses)
    axes.plot(steps[kept], losses[kept], color=_COLOUR["pale"], linewidth=0.7, label="each step")
    if window > 1:
        line = np.unique(np.linspace(0, len(losses) - 1, SMOOTHED_POINTS).astype(np.intp))
        smooth = _smoothed(losses, window)
        axes.plot(steps[line], smooth[line], color=_COLOUR["accent"], linewidth=1.5, label="mean")
        axes.legend(loc="upper right")
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter("{x:,.0f}")


def _draw_epochs(figure: Figure, values: dict[int, float]) -> None:
    axes = figure.subplots()
    axes.plot(list(values), list(values.values()), "o-", color=_COLOUR["accent"], markersize=4)
    axes.set_xlabel("epoch")
    axes.margins(y=0.15)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_calibration(
    figure: Figure, predicted: npt.NDArray[np.float64], observed: npt.NDArray[np.float64]
) -> None:
    axes = figure.subplots()
    end = 1.05 * max(predicted.max(), observed.max())
    axes.plot([0, end], [0, end], "--", color=_COLOUR["muted"], linewidth=0.9)
    axes.plot(predicted, observed, "o-", color=_COLOUR["accent"], markersize=4)
    axes.set_xlabel("predicted")
    axes.set_ylabel("observed")


def _draw_counts(
    figure: Figure, predicted: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]
) -> None:
    axes = figure.subplots()
    axes.vlines(predicted, 0, counts, color=_COLOUR["accent"], linewidth=2.5)
    axes.set_ylim(0, 1.15 * counts.max())
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlim(left=0)
    axes.set_xlabel("predicted")
    axes.set_ylabel("rows")


def _bars(name: str, caption: str, parts: Mapping[str, float], shown: list[str]) -> _Html:
    """Horizontal bars, each with its shown value behind it."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        bars = axes.barh(list(parts), list(parts.values()), color=_COLOUR["accent"], height=0.6)
        axes.bar_label(bars, shown, padding=4)
        axes.set_xlim(0, 1.6 * max(*parts.values(), 1e-9))
        axes.invert_yaxis()
        axes.tick_params(left=False, bottom=False, labelbottom=False)
        axes.tick_params(axis="y", labelcolor=_COLOUR["ink"])
        axes.spines[:].set_visible(False)
        axes.grid(visible=False)

    values = ", ".join(f"{part} {text}" for part, text in zip(parts, shown, strict=True))
    label = f"Bar chart: {values}."
    return _figure(name, caption, label, draw, height=0.35 + 0.3 * len(parts))


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


def _figure(
    name: str, caption: str, label: str, draw: Callable[[Figure], None], *, height: float = 2.5
) -> _Html:
    """A picture with its caption; `label` is what those hear who cannot see it."""
    drawn = StringIO()
    with mpl.rc_context():
        mpl.rcdefaults()  # whatever the user's own style
        mpl.rcParams.update(_STYLE)
        figure = Figure(figsize=(4.4, height), layout="constrained")
        draw(figure)
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(drawn, format="svg", transparent=True, metadata=nothing)
    svg = _embedded(drawn.getvalue(), name, label)
    return _tag("figure", svg, _tag("figcaption", caption))


def _embedded(svg: str, name: str, label: str) -> _Html:
    """The `<svg>` element for use inside a page: its size, fonts and colours are the page's.

    IDs begin with `name`, because several pictures share the page.
    """
    opening = re.search(r'<svg [^>]*viewBox="([\d. ]+)"[^>]*>', svg)
    assert opening, "matplotlib wrote no svg element"
    body = svg[opening.end() :].replace("xlink:href", "href")
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r" font-family: [^;\"]*;", "", body)
    body = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", body)
    for role, colour in _COLOUR.items():
        body = body.replace(colour, f"var(--{role})")
    start = _opening(
        "svg", xmlns="http://www.w3.org/2000/svg", viewBox=opening[1], role="img", aria_label=label
    )
    return _Html(start + body.rstrip())


# --- the page ---


class _Html(str):
    """Finished markup. Every other text is escaped where it meets some."""

    __slots__ = ()


def _html(*parts: str) -> _Html:
    return _Html("".join(part if isinstance(part, _Html) else _escaped(part) for part in parts))


def _escaped(text: str) -> str:
    """As text or attribute; without what cannot be printed, or turns the direction of writing."""
    return html.escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text))


def _tag(name: str, *children: str, **attributes: str) -> _Html:
    return _Html(f"{_opening(name, **attributes)}{_html(*children)}</{name}>\n")


def _opening(name: str, **attributes: str) -> str:
    shown = (
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{''.join(shown)}>"


def _section(title: str, body: _Html) -> _Html:
    anchor = title.lower().replace(" ", "-")
    return _tag("section", _tag("h2", title, id=anchor), body, aria_labelledby=anchor)


def _card(label: str, value: str, note: str = "") -> _Html:
    below = _tag("dd", note, class_="muted") if note else ""
    return _tag("div", _tag("dt", label), _tag("dd", value), below)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> _Html:
    """Figures in columns; the first cells name their rows."""
    head = _tag("tr", *(_tag("th", text, scope="col") for text in heads))
    body = (
        _tag("tr", _tag("th", first, scope="row"), *(_tag("td", cell) for cell in cells))
        for first, *cells in rows
    )
    return _tag("table", _tag("thead", head), _tag("tbody", *body), class_="figures")


def _facts(facts: dict[str, str]) -> _Html:
    rows = (
        _tag("tr", _tag("th", key, scope="row"), _tag("td", value)) for key, value in facts.items()
    )
    return _tag("table", _tag("tbody", *rows), class_="facts")


_HEAD = _Html("""
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
""")

_FOOTER = _tag(
    "footer",
    _tag(
        "p",
        "Made of aggregates alone: totals that both parties know, means over batches, figures over "
        "the whole test table. No ID, no row and no place in the union is in this file, and "
        "nothing in it tells which people the two parties share. It loads nothing from elsewhere.",
    ),
    class_="muted",
)


def _css() -> str:
    light, dark = (
        "".join(f"--{name}:{colours[scheme]};" for name, colours in _PALETTE.items())
        for scheme in (0, 1)
    )
    return (
        f"\n:root{{{light}}}\n@media (prefers-color-scheme: dark){{:root{{{dark}}}}}\n{_LAYOUT}\n"
    )


_LAYOUT = """\
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
 font:1rem/1.5 system-ui,"Segoe UI",Roboto,Helvetica,Arial,sans-serif;overflow-wrap:anywhere}
main{max-width:62rem;margin:0 auto;padding:1.5rem 1rem 3rem}
h1{font-size:1.7rem;line-height:1.2;margin:0}
h2{font-size:1.2rem;margin:2.5rem 0 .75rem;padding-bottom:.3rem;border-bottom:1px solid var(--rule)}
h3{font-size:1rem;margin:0}
p{max-width:44rem;margin:.5rem 0}
.muted,figcaption{color:var(--muted);font-size:.875rem}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(15rem,45%),1fr));
 gap:.75rem;margin:0}
.cards>div{background:var(--panel);border-radius:.5rem;padding:.75rem}
.cards dt{color:var(--muted);font-size:.875rem}
.cards dd{margin:0}
.cards dt+dd{font-size:clamp(1.1rem,4.5vw,1.45rem);font-weight:600;line-height:1.3}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(20rem,100%),1fr));
 gap:1.25rem 2rem;align-items:start}
figure{margin:0;break-inside:avoid}
svg{display:block;width:100%;height:auto;max-width:34rem;stroke-linejoin:round}
table{border-collapse:collapse;width:100%;font-size:.9375rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem min(.5rem,1.2vw);border-bottom:1px solid var(--rule);text-align:left;
 vertical-align:top}
th{font-weight:500}
thead th{color:var(--muted);font-size:.875rem;overflow-wrap:normal}
.figures td,.figures thead th+th{text-align:right}
.figures td{white-space:nowrap}
.facts{max-width:44rem}
.facts th{min-width:7rem}
.grid+*{margin-top:1.25rem}
summary{cursor:pointer;color:var(--muted);font-size:.875rem}
footer{margin-top:3rem;padding-top:.75rem;border-top:1px solid var(--rule)}"""
