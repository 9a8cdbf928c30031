"""The self-audit of a run as a table, as a plot over the steps, and as a section of its report."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

from florist.common.audit.findings import excesses, verdict, worst_stratum_of, worst_window
from florist.common.reports.html import card, figures_table, markup, tag
from florist.common.reports.plots import COLOUR, svg_plot, whole_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.figure import Figure

    from florist.common.audit.findings import AuditRecord, Figures, Finding, Scope, Verdict
    from florist.common.audit.statistics import IntervalEstimate
    from florist.common.reports.html import Html
    from florist.common.settings.audit import AuditSettings

HEADS = (
    "attack",
    "all epochs",
    "worst stratum",
    "stratum",
    "worst window",
    "window",
    "TPR at 1% FPR",
    "limits",
)
WINDOW_HEADS = ("window", "strongest attack", "folded AUC", "TPR at 1% FPR", "limits")
MARKS: dict[Verdict, str] = {"fine": "✓", "warn": "✗", "stop": "✗"}

_NONE = "\N{EN DASH}"

#: Points of a line; more would not be visible.
_POINTS = 40


def table_rows(audits: list[Figures], settings: AuditSettings) -> Iterator[tuple[str, ...]]:
    """Yield a row of texts below `HEADS` for each attack of these audits.

    A row has the folded AUC over all epochs and, next to it, those of the group of UIDs and of the
    part of the run where the attack does best. The true positive rate is the highest of all. The
    strongest attack is first.
    """
    by_attack: dict[str, list[tuple[Figures, Finding]]] = {}
    for figures in audits:
        for finding in figures.findings:
            by_attack.setdefault(finding.attack, []).append((figures, finding))

    def highest_end(found: list[tuple[Figures, Finding]]) -> tuple[float, float]:
        return max((finding.auc.low, finding.auc.value) for _, finding in found)

    for attack, found in sorted(by_attack.items(), key=lambda item: highest_end(item[1]))[::-1]:
        whole = [finding for figures, finding in found if figures.over == "epochs"]
        worst = worst_window(audits, attack)
        stratum = whole[-1].worst if whole else None
        rates = [finding.tpr for _, finding in found if finding.tpr is not None]
        yield (
            attack,
            str(whole[-1].auc) if whole else _NONE,
            str(stratum.auc) if stratum else _NONE,
            stratum.stratum if stratum else _NONE,
            str(worst[1].auc) if worst else _NONE,
            worst[0].scope_text if worst else _NONE,
            _percent(max(rates, key=lambda rate: (rate.low, rate.value), default=None)),
            mark([finding for _, finding in found], settings),
        )


def window_rows(audits: list[Figures], settings: AuditSettings) -> Iterator[tuple[str, ...]]:
    """Yield a row of texts below `WINDOW_HEADS` for each of these audits: its strongest attack."""
    for figures in audits:
        worst = max(figures.findings, key=lambda finding: (finding.auc.low, finding.auc.value))
        rates = [finding.tpr for finding in figures.findings if finding.tpr is not None]
        yield (
            figures.scope_text,
            worst.attack,
            str(worst.auc),
            _percent(max(rates, key=lambda rate: (rate.low, rate.value), default=None)),
            mark(figures.findings, settings),
        )


def mark(findings: Sequence[Finding], settings: AuditSettings) -> str:
    """Show whether findings are within our limits, and if not, which ones they exceed."""
    judged = verdict(findings, settings)
    if judged == "fine":
        return MARKS[judged]
    keys = dict.fromkeys(excess.key for excess in excesses(findings, settings, judged))
    return f"{MARKS[judged]} {', '.join(keys)}"


def _percent(estimate: IntervalEstimate | None) -> str:
    if estimate is None:
        return _NONE
    low, high = 100 * estimate.low, 100 * estimate.high
    return f"{100 * estimate.value:.1f}% ({low:.1f}\N{EN DASH}{high:.1f})"


def skipped_text(record: AuditRecord) -> str | None:
    """Return which attacks of the peer we could not make on ourselves, and why; None if none."""
    whole = [figures for figures in record.audits if figures.over == "epochs"]
    newest = (whole or record.audits)[-1:]
    by_reason: dict[str, list[str]] = {}
    for figures in newest:
        for each in figures.skipped:
            by_reason.setdefault(each.reason, []).append(each.attack)
    if not by_reason:
        return None
    found = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in by_reason.items())
    return (
        f"Not measured, because this party lacks what the attack needs: {found}. The "
        "peer may be able to make these attacks; `florist simulate` measures them."
    )


def conclusion(record: AuditRecord) -> str:
    """Sum up the audits of a run in one sentence."""
    if not record.last:
        return "No audit had enough rows for a verdict."
    what = {
        "fine": "No attack exceeded our limits in any audit",
        "warn": "An attack exceeded one of our warning limits",
        "stop": "An attack exceeded a limit at which the run must stop",
    }[record.verdict]
    return f"{what} ({len(record.audits):,} so far)."


def draw_audits(figure: Figure, record: AuditRecord) -> None:
    """Draw the folded AUC of each attack over the steps, with our limits."""
    axes = figure.subplots()
    attacks = dict.fromkeys(f.attack for audit in record.audits for f in audit.findings)
    for attack, (number, marker) in zip(attacks, cycle(enumerate("os^Dv<>P", 1)), strict=False):
        look: dict[str, Any] = {"color": COLOUR[f"line{number}"], "linewidth": 1.0}
        axes.plot(*_line(record, attack, "batches"), linestyle=":", marker=".", **look)
        axes.plot(
            *_line(record, attack, "epochs"), marker=marker, markersize=4, label=attack, **look
        )
    for key in ("warn_above", "stop_above"):
        limit = getattr(record.settings, key)
        if limit is not None:
            axes.axhline(limit, color=COLOUR["muted"], linestyle="--", linewidth=0.9)
            at = (1, limit)
            axes.annotate(key, at, xycoords=("axes fraction", "data"), ha="right", va="bottom")
    axes.set_xlabel("training step")
    axes.set_ylabel("folded AUC")
    axes.set_ylim(0.49, max(0.71, axes.get_ylim()[1]))
    whole_numbers(axes, "x", 6)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    if attacks:
        figure.legend(loc="outside lower center", ncols=2)


def _line(record: AuditRecord, attack: str, over: Scope) -> tuple[list[int], list[float]]:
    """Return the steps and figures of one attack, thinned out."""
    points = [
        (audit.step, finding.auc.value)
        for audit in record.audits
        if audit.over == over
        for finding in audit.findings
        if finding.attack == attack
    ]
    thinned = points[:: max(-(-len(points) // _POINTS), 1)]
    return [step for step, _ in thinned], [value for _, value in thinned]


def audit_section(record: AuditRecord | None, peer: str) -> Html | None:
    """Make the section of a report, or None if there is nothing to show."""
    if record is None or not record.last:
        return None
    newest = record.last[0]
    strongest = newest.strongest
    assert strongest is not None
    kind = "labels" if record.role == "active" else "features"
    cards = tag(
        "dl",
        card("verdict", MARKS[record.verdict], conclusion(record)),
        card("strongest attack", f"{strongest.auc.value:.2f}", f"{strongest.attack}, folded AUC"),
        *_worst_stratum_card(record),
        *_worst_window_card(record),
        class_="cards",
    )
    explanation = tag(
        "details",
        tag("summary", "How to read these figures"),
        tag(
            "p",
            f"During training this party attacked what it sent, as {peer} could: how well can real "
            f"{kind} be distinguished from synthetic ones? 0.5 is chance, 1 is certainty; "
            "intervals are in brackets and hold for all audits together with 95% confidence. The "
            "highest of many figures is too high by chance, but its interval takes account of "
            "that: read its lower end.",
        ),
        tag(
            "p",
            "A stratum is a group of UIDs that the peer can tell apart: those of a part of the "
            f"pass, or those with a label. The attacks used {record.followed:,} UIDs over all "
            "epochs, the first batches, and the last batches before each audit. Limits apply to "
            f"each of them. {peer} was not informed.",
        ),
    )
    plot = svg_plot(
        "self-audit",
        "Folded AUC of each attack at each audit. Lines with markers: all epochs so far. Dotted: "
        "the last batches. Dashed: our limits.",
        f"Line plot of the folded AUC of each attack over {len(record.audits):,} audits; the "
        "latest figures are in the table below.",
        lambda figure: draw_audits(figure, record),
        width=4.8,
        height=3.6,
    )
    return markup(
        cards,
        explanation,
        tag("div", plot, class_="wide"),
        figures_table(HEADS, table_rows(record.audits, record.settings), stacks=True),
        *(tag("p", text) for text in (skipped_text(record),) if text is not None),
        tag("p", "The strongest attack in each part of the run:"),
        figures_table(WINDOW_HEADS, window_rows(record.last, record.settings), stacks=True),
    )


def _worst_stratum_card(record: AuditRecord) -> Iterator[Html]:
    worst = worst_stratum_of(record.last)
    if worst is not None:
        attack, finding = worst
        yield card("worst stratum", f"{finding.auc.value:.2f}", f"{attack}, {finding.stratum}")


def _worst_window_card(record: AuditRecord) -> Iterator[Html]:
    worst = worst_window(record.audits)
    if worst is not None:
        figures, finding = worst
        where = f"{finding.attack}, {figures.scope_text}"
        yield card("worst window", f"{finding.auc.value:.2f}", where)
