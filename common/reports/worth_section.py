"""The section "Was it worth it?" of the training and evaluation reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from florist.common.reports.html import card, figures_table, markup, tag
from florist.common.reports.plots import COLOUR, svg_plot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from florist.common.core.roles import RoleName
    from florist.common.evaluation.paired_estimates import Difference
    from florist.common.evaluation.private_estimate import Estimate
    from florist.common.evaluation.worth import Comparison, Importance, Worth
    from florist.common.reports.html import Html

WORTH = "Was it worth it?"

#: Columns in the plot; the table has all of them.
PLOTTED = 15
#: Characters of a column's name in the plot.
_NAME_WIDTH = 28


class Parties(NamedTuple):
    """The names of a report's party and of its peer, and the party's role."""

    party: str
    peer: str
    role: RoleName


def worth_section(worth: Worth, parties: Parties) -> Html:
    """Return the body of the section: conclusion, figures, plots, and what they reveal."""
    parts: list[Html] = []
    if worth.comparison is not None:
        parts += [
            tag("p", tag("strong", conclusion(worth.comparison, parties))),
            _comparison(worth.comparison, parties),
        ]
    elif parties.role == "passive":
        parts.append(
            tag(
                "p",
                f"What the model gains depends on labels, which only {parties.peer} has. What "
                f"{parties.party} can see is which of its columns matter for what it sends.",
            )
        )
    if worth.importance is not None:
        parts.append(_importance(worth.importance, parties))
    parts += [tag("p", sentence) for sentence in worth.missing]
    return markup(*parts)


def conclusion(comparison: Comparison, parties: Parties) -> str:
    """Return the answer in plain language."""
    party, peer, gain = parties.party, parties.peer, comparison.gain.auc
    base = (
        f"On its own data alone, {party} reaches an AUC of {comparison.gain.baseline_auc.value:.3f}"
        if comparison.columns
        else f"{party} has no features of its own, so alone it can only predict the same for "
        "everybody, with an AUC of 0.5"
    )
    interval = f"between {gain.low:+.3f} and {gain.high:+.3f} with 95% confidence"
    known = f"{base}; together with {peer} it is {comparison.joint_auc.value:.3f}."
    if gain.low > 0:
        return f"Yes. {known} The gain is {gain.value:.3f}, {interval}."
    if gain.high < 0:
        return f"No. {known} The joint model is worse: the gain is {gain.value:+.3f}, {interval}."
    return (
        f"These people cannot tell. {known} The gain is {gain.value:+.3f}, {interval}, so it may "
        "be 0."
    )


def short_conclusion(worth: Worth | None, peer: str) -> list[str]:
    """Return one sentence for the start of a report; none if this party cannot know."""
    if worth is None or worth.comparison is None:
        return []
    gain = worth.comparison.gain.auc
    interval = f"({gain.low:+.3f} to {gain.high:+.3f} with 95% confidence)"
    than = f"with {peer} than on own data alone"
    if gain.low > 0:
        return [f"It was worth it: the AUC is {gain.value:.3f} higher {than} {interval}."]
    if gain.high < 0:
        return [f"It was not worth it: the AUC is {-gain.value:.3f} lower {than} {interval}."]
    unknown = (
        f"Whether it was worth it cannot be told: the AUC differs by {gain.value:+.3f} from that "
        f"on own data alone {interval}."
    )
    return [unknown]


def _comparison(comparison: Comparison, parties: Parties) -> Html:
    gain = comparison.gain
    cards = [
        card("AUC alone", str(gain.baseline_auc), _trained_with(comparison)),
        card(f"AUC with {parties.peer}", str(comparison.joint_auc), "the joint model"),
        card("gain in AUC", str(gain.auc), "value ± half of the 95% interval"),
        card("lower log loss by", str(gain.log_loss), f"{gain.baseline_log_loss} alone"),
    ]
    bars = _BarPlot(
        "AUC",
        ("own data alone", f"with {_short(parties.peer)}"),
        (gain.baseline_auc, comparison.joint_auc),
        start=0.5,
    )
    plot = svg_plot(
        "worth-comparison",
        f"AUC on the same {comparison.people:,} people, with 95% intervals. Both figures depend "
        "on the same people, so the gain is known more precisely than either.",
        f"Bar chart: AUC {gain.baseline_auc} alone, {comparison.joint_auc} together.",
        bars.draw,
        height=1.3,
    )
    how = (
        "Alone: the same learner, trained with the agreed settings on all own training rows and "
        "own columns, without the peer. The interval is about these people and these two models; "
        "another training run differs a little. The baseline was trained after the last message, "
        "so the peer learns nothing of it."
    )
    return markup(tag("dl", *cards, class_="cards"), plot, tag("p", how, class_="muted"))


def _trained_with(comparison: Comparison) -> str:
    rows = f"{comparison.rows:,} own row{'' if comparison.rows == 1 else 's'}"
    if not comparison.columns:
        return f"class frequencies of {rows}"
    return f"{rows}, {comparison.columns} column{'' if comparison.columns == 1 else 's'}"


def _importance(importance: Importance, parties: Parties) -> Html:
    shown = importance.columns[:PLOTTED]
    names = [_short(each.column) for each in shown]
    figures = [each.importance for each in shown]
    if importance.peer is not None:
        names = [f"all of {_short(parties.peer)}", *names]
        figures = [importance.peer, *figures]
    unit, meaning, reveals = _meaning(importance, parties)
    left_out = len(importance.columns) - len(shown)
    caption = f"{meaning} Lines are 95% intervals, over {importance.people:,} people."
    if left_out > 0:
        caption += f" {left_out:,} less important columns are in the table."
    plot = svg_plot(
        "worth-importance",
        caption,
        "Bar chart of the importance of columns; the numbers are in the table below.",
        _BarPlot(unit, names, figures).draw,
        height=0.75 + 0.24 * len(names),
    )
    rows = [
        [each.column, f"{each.importance.value:.4f}", f"{each.importance.half_width:.4f}"]
        for each in importance.columns
    ]
    if importance.peer is not None:
        peer = importance.peer
        rows.insert(0, [f"all of {parties.peer}", f"{peer.value:.4f}", f"{peer.half_width:.4f}"])
    table = figures_table(["column", unit, "±"], rows)
    return markup(
        tag("h3", "Which columns matter"),
        plot,
        tag("details", tag("summary", "Show the numbers"), table),
        tag("p", reveals, class_="muted"),
    )


def _meaning(importance: Importance, parties: Parties) -> tuple[str, str, str]:
    """Return the unit, what the figures mean, and what they reveal."""
    party, peer = parties.party, parties.peer
    if importance.unit == "auc":
        meaning = (
            "How much lower the AUC is if the values of a column are exchanged between people at "
            f"random; for all of {peer}, what it sends is exchanged."
        )
        reveals = (
            f"Computed from what {party} had received already: nothing was sent for it, and "
            f"{peer} learns nothing. Columns that say the same thing share their importance. "
            f"{peer}'s columns are not told apart: that would show {party} what each of them "
            "contributes to each person."
        )
        return "drop in AUC", meaning, reveals
    meaning = (
        f"Which part of the variance of what {party} sends changes if the values of a column are "
        "exchanged between people at random: 0 is nothing, 1 is everything."
    )
    reveals = (
        f"Computed on rows of {party}'s own table: nothing was sent for it, no label is needed, "
        f"and {peer} learns nothing. It says how strongly the model uses a column, not how much "
        "the AUC gains by it."
    )
    return "part of what is sent", meaning, reveals


class _BarPlot(NamedTuple):
    """Horizontal bars with intervals, each followed by its value."""

    unit: str
    names: Sequence[str]
    figures: Sequence[Estimate | Difference]
    #: Where bars start.
    start: float = 0.0

    def draw(self, figure: Figure) -> None:
        axes = figure.subplots()
        places = range(len(self.names))
        values = [each.value for each in self.figures]
        widths = [each.half_width for each in self.figures]
        axes.barh(
            places,
            [value - self.start for value in values],
            left=self.start,
            color=COLOUR["accent"],
            height=0.6,
        )
        axes.errorbar(
            values,
            places,
            xerr=widths,
            fmt="none",
            ecolor=COLOUR["ink"],
            elinewidth=1.1,
            capsize=2.5,
        )
        low = min(self.start, *(value - width for value, width in zip(values, widths, strict=True)))
        high = max(
            self.start, *(value + width for value, width in zip(values, widths, strict=True))
        )
        span = max(high - low, 1e-6)
        for place, value, width in zip(places, values, widths, strict=True):
            at = max(value + width, self.start) + 0.02 * span
            axes.text(at, place, f"{value:.3f}", va="center", ha="left")
        axes.set_xlim(low - 0.02 * span if low < self.start else low, high + 0.18 * span)
        axes.set_yticks(list(places), list(self.names))
        axes.invert_yaxis()
        axes.set_xlabel(self.unit)
        axes.tick_params(left=False)
        axes.tick_params(axis="y", labelcolor=COLOUR["ink"])
        axes.grid(visible=False, axis="y")


def _short(name: str) -> str:
    return name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 1]}…"
