"""An evaluation on one page, and as JSON: aggregates alone, safe to show to a colleague."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from florist.common.evaluation.metric_names import METRICS
from florist.common.reports.html import (
    COLOUR,
    card,
    facts_table,
    figures_table,
    markup,
    page,
    picture,
    tag,
    titled_section,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from florist.common.core.roles import RoleName
    from florist.common.evaluation.evaluation import Evaluation
    from florist.common.evaluation.private_estimate import CurveEstimate, Estimate
    from florist.common.reports.html import Html

#: Raised when what is written changes so that an older reader would misread it.
FORMAT = 1
#: Rows from which a bin is shown: a rate over fewer would tell of single people.
FEWEST = 5


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """What a party may tell of an evaluation."""

    party: str
    peer: str
    role: RoleName
    release: str
    finished_at: str
    #: Names the training run.
    run: str
    agreement: dict[str, Any]
    #: Of our own table, and of the padded sets in the union.
    table_rows: int
    own_size: int
    peer_size: int
    union_size: int
    shared_size: int
    #: None where the agreement keeps it from us. Only the active party has a curve.
    found: Evaluation | None
    #: Whether predictions use features of the active party's own; known to that party.
    own_features: bool
    bytes_sent: int
    bytes_received: int

    @property
    def warning(self) -> str:
        return "" if self.found is None else self.found.warning

    def to_json(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "format": FORMAT,
            "party": self.party,
            "peer": self.peer,
            "role": self.role,
            "release": self.release,
            "finished_at": self.finished_at,
            "run": self.run,
            "agreement": self.agreement,
            "sizes": {
                "table": self.table_rows,
                "own": self.own_size,
                "peer": self.peer_size,
                "union": self.union_size,
                "shared": self.shared_size,
            },
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
            "warning": self.warning,
            "estimates": None,
            "curve": None,
        }
        if self.found is not None:
            facts["estimates"] = {
                name: _estimate_json(getattr(self.found, name)) for name in METRICS
            }
            facts["curve"] = _curve_json(self.found.curve)
        if self.found is not None and self.role == "active":
            facts["scored"] = self.found.rows
        return facts


def _estimate_json(estimate: Estimate) -> dict[str, float]:
    return {
        "value": estimate.value,
        "standard_error": estimate.standard_error,
        "low": estimate.low,
        "high": estimate.high,
    }


def _curve_json(curve: CurveEstimate | None) -> list[dict[str, float]] | None:
    """Bin by bin, those with enough rows."""
    if curve is None:
        return None
    columns = {
        "predicted": curve.confidence,
        "rate": curve.rate,
        "standard_error": curve.standard_error,
        "rows": curve.count,
    }
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    bins = (dict(zip(columns, row, strict=True)) for row in rows)
    return [found for found in bins if found["rows"] >= FEWEST]


# --- the page ---


def render(report: EvaluationReport) -> str:
    """The whole page; the same report gives the same text."""
    title = f"Evaluation of the model of {report.party} and {report.peer}"
    finished = tag("time", report.finished_at.replace("T", " "), datetime=report.finished_at)
    told = f"Seen from {report.party}, the {report.role} party · FLORIST {report.release} · "
    sections = [
        tag("header", tag("h1", title), tag("p", told, finished, class_="muted")),
        titled_section("Estimates", _estimates(report)),
    ]
    curve = _curve_json(report.found.curve) if report.found else None
    if curve:
        sections.append(titled_section("Calibration", _calibration(curve)))
    sections += [
        titled_section("How this was found", _method(report)),
        titled_section("What each side learned", _learned(report)),
        titled_section("Facts", _facts(report)),
    ]
    return page(title, *sections)


def _estimates(report: EvaluationReport) -> Html:
    if report.found is None:
        return tag("p", "By the agreement, only the active party knows them.")
    cards = [
        card(name, str(getattr(report.found, key)), meaning)
        for key, (name, meaning) in METRICS.items()
    ]
    warning = tag("p", tag("strong", "Warning:"), f" {report.warning}.") if report.warning else ""
    note = tag("p", "Value ± half of the 95 % interval.", class_="muted")
    return markup(warning, tag("dl", *cards, class_="cards"), note)


def _calibration(bins: list[dict[str, float]]) -> Html:
    curve = picture(
        "calibration-curve",
        "The estimated rate where the model predicts so much, with 95 % intervals; on the dashed "
        "line both are equal.",
        "Calibration curve; its numbers are in the table below.",
        lambda figure: _draw_curve(figure, bins),
        height=3.2,
    )
    rows = [
        [
            f"{b['predicted']:.4f}",
            f"{b['rate']:.4f}",
            f"{1.96 * b['standard_error']:.4f}",
            f"{b['rows']:,}",
        ]
        for b in bins
    ]
    table = figures_table(["predicted", "estimated rate", "±", "rows"], rows)
    return markup(curve, tag("details", tag("summary", "The same in numbers"), table))


def _draw_curve(figure: Figure, bins: list[dict[str, float]]) -> None:
    axes = figure.subplots()
    predicted = [b["predicted"] for b in bins]
    rates = [b["rate"] for b in bins]
    end = min(max(*predicted, *rates, 0.05) * 1.05, 1)
    axes.plot([0, end], [0, end], "--", color=COLOUR["muted"], linewidth=0.9)
    axes.errorbar(
        predicted,
        rates,
        yerr=[1.96 * b["standard_error"] for b in bins],
        fmt="o-",
        color=COLOUR["accent"],
        ecolor=COLOUR["pale"],
        markersize=4,
        capsize=2,
    )
    axes.set_xlabel("predicted")
    axes.set_ylabel("rate")


def _method(report: EvaluationReport) -> Html:
    active, passive = _parties(report)
    solved = (
        f"{active} scored its own people. A known share of them was scored by their real features, "
        f"the others by those of other people of {passive}, and nobody knows who. What the figures "
        "would be if all features were real follows from what was observed, the share, and what "
        "predictions from another person's features are worth"
    )
    measured = (
        ": that was measured, by giving people each other's embeddings."
        if report.own_features
        else ": nothing, as they do not depend on the label."
    )
    assumed = (
        "This holds if who is shared depends neither on labels nor on features; it cannot be seen "
        "from these data whether it does."
    )
    return markup(tag("p", solved + measured), tag("p", assumed))


def _learned(report: EvaluationReport) -> Html:
    active, passive = _parties(report)
    told = "the estimates" if report.agreement["passive_learns"] == "figures" else "that it is over"
    sizes = (
        f"Both know the sizes of the two sets, {report.own_size:,} and {report.peer_size:,}, of "
        f"their union, {report.union_size:,}, and so how many are in both: {report.shared_size:,}. "
        "Dummies, where a party added some, count as people."
    )
    return markup(
        tag("p", sizes),
        tag(
            "p",
            f"{active} also saw an embedding for each place of the union, made from real features "
            f"or another person's, and was not told which. {passive} also learned {told}.",
        ),
        tag(
            "p",
            "A good model fits people by their own features better than by another's, so that "
            f"{active} can guess who is shared, the better the better the model is: nothing can "
            "be done about it where a model is to be evaluated.",
        ),
    )


def _facts(report: EvaluationReport) -> Html:
    facts = {
        "rows of our table": f"{report.table_rows:,}",
        "stand-ins": str(report.agreement["stand_ins"]),
        "training run": report.run[:16],
        "sent, received (MB)": f"{report.bytes_sent / 1e6:.1f}, {report.bytes_received / 1e6:.1f}",
    }
    if report.found is not None and report.role == "active":
        facts = {"people scored": f"{report.found.rows:,}"} | facts
    return facts_table(facts)


def _parties(report: EvaluationReport) -> tuple[str, str]:
    """The active and the passive one."""
    both = report.party, report.peer
    return both if report.role == "active" else (both[1], both[0])
