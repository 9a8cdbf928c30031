"""The report of an evaluation, as HTML and as JSON. It contains aggregates only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from florist.common.evaluation.metric_names import METRICS
from florist.common.reports.conclusions import TRAINING_REPORT, conclusion_box, report_link
from florist.common.reports.html import (
    card,
    facts_table,
    figures_table,
    markup,
    page,
    tag,
    titled_section,
)
from florist.common.reports.plots import COLOUR, svg_plot
from florist.common.reports.size_statements import guarantee, known_sizes
from florist.common.reports.worth_section import WORTH, Parties, short_conclusion, worth_section
from florist.common.training.history import MIN_BIN_ROWS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from florist.common.core.roles import RoleName
    from florist.common.evaluation.metric_estimates import Evaluation
    from florist.common.evaluation.private_estimate import CurveEstimate, Estimate
    from florist.common.evaluation.worth import Worth
    from florist.common.reports.html import Html
    from florist.common.session.union_sizes import UnionSizes

#: Increased when an older reader would misread the JSON.
FORMAT = 1


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """What a party may report of an evaluation."""

    party: str
    peer: str
    role: RoleName
    release: str
    finished_at: str
    #: Identifies the training run.
    run: str
    #: Digests of the halves of the evaluated model, ours first, in hexadecimal digits.
    model: tuple[str, str]
    agreement: dict[str, Any]
    #: Rows of our own table.
    table_rows: int
    #: Sizes of the padded sets.
    sizes: UnionSizes
    #: `epsilon` and `delta` of the guarantee for the sizes; None if they are exact.
    privacy: dict[str, float] | None
    #: None if the agreement keeps it from us. Only the active party has a curve.
    found: Evaluation | None
    #: Whether predictions use the active party's own features; None: the passive party is not
    #: told.
    own_features: bool | None
    bytes_sent: int
    bytes_received: int
    #: A sentence on who has signed the evidence of the stage.
    evidence: str = ""
    #: None until it is computed, after the last message, and if `training.worth` is off.
    worth: Worth | None = None

    @property
    def warning(self) -> str:
        """A sentence on why the estimate is unreliable, or an empty text."""
        return "" if self.found is None else self.found.warning

    def to_json(self) -> dict[str, Any]:
        """Return the content of `evaluation.json`."""
        facts: dict[str, Any] = {
            "format": FORMAT,
            "party": self.party,
            "peer": self.peer,
            "role": self.role,
            "release": self.release,
            "finished_at": self.finished_at,
            "run": self.run,
            "model": list(self.model),
            "agreement": self.agreement,
            "sizes": {
                "table": self.table_rows,
                "own": self.sizes.own,
                "peer": self.sizes.peer,
                "union": self.sizes.union,
                "shared_estimate": self.sizes.shared_estimate,
                "shared_deviation": self.sizes.shared_deviation,
            },
            "privacy": self.privacy,
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
            "warning": self.warning,
            "estimates": None,
            "curve": None,
            "worth": None if self.worth is None else self.worth.to_json(),
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
    """Return the bins that have enough rows."""
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
    return [found for found in bins if found["rows"] >= MIN_BIN_ROWS]


# --- the page ---


def render(report: EvaluationReport) -> str:
    """Return the whole page; the same report gives the same text."""
    title = f"Evaluation of the model of {report.party} and {report.peer}"
    finished = tag("time", report.finished_at.replace("T", " "), datetime=report.finished_at)
    source = f"Seen from {report.party}, the {report.role} party · FLORIST {report.release} · "
    sections = [
        tag("header", tag("h1", title), tag("p", source, finished, class_="muted")),
        _conclusion(report),
        titled_section("Estimates", _estimates(report)),
    ]
    if report.worth is not None:
        parties = Parties(report.party, report.peer, report.role)
        sections.append(titled_section(WORTH, worth_section(report.worth, parties)))
    curve = _curve_json(report.found.curve) if report.found else None
    if curve:
        sections.append(titled_section("Calibration", _calibration(curve)))
    sections += [
        titled_section("Method", _method(report)),
        titled_section("What each side learned", _learned(report)),
        titled_section("Facts", _facts(report)),
    ]
    return page(title, *sections)


def _conclusion(report: EvaluationReport) -> Html:
    link = report_link(
        "Training report", TRAINING_REPORT, "(how the model was trained, and what it reveals)"
    )
    return conclusion_box(conclusions(report), link)


def conclusions(report: EvaluationReport) -> list[str]:
    """Return what the evaluation shows, in plain language."""
    if report.found is None:
        return [
            "The evaluation has finished. By agreement, only the active party knows its result."
        ]
    auc = report.found.auc
    found = (
        f"For people who are in both tables, the AUC of the model is estimated at {auc.value:.3f}; "
        f"with 95% confidence it is between {auc.low:.3f} and {auc.high:.3f}. 0.5 is chance, 1 is "
        "perfect."
    )
    warning = [f"Warning: {report.warning}."] if report.warning else []
    return [found, *warning, *short_conclusion(report.worth, report.peer)]


def _estimates(report: EvaluationReport) -> Html:
    if report.found is None:
        return tag("p", "By agreement, only the active party knows the estimates.")
    cards = [
        card(name, str(getattr(report.found, key)), meaning)
        for key, (name, meaning) in METRICS.items()
    ]
    warning = tag("p", tag("strong", "Warning:"), f" {report.warning}.") if report.warning else ""
    note = tag("p", "Value ± half of the 95% interval.", class_="muted")
    return markup(warning, tag("dl", *cards, class_="cards"), note)


def _calibration(bins: list[dict[str, float]]) -> Html:
    curve = svg_plot(
        "calibration-curve",
        "Estimated rate over the prediction, with 95% intervals; on the dashed line both are "
        "equal.",
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
    return markup(curve, tag("details", tag("summary", "Show the numbers"), table))


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
    axes.set_xlabel("predicted probability")
    axes.set_ylabel("estimated rate")


def _method(report: EvaluationReport) -> Html:
    active, passive = _parties(report)
    solved = (
        f"{active} scored its own people. A known share of them was scored with their real "
        f"features, the others with the features of other people of {passive}, and nobody knows "
        "who. The figures for real features only follow from the observed figures, the share, and "
        "the quality of predictions from another person's features. "
    )
    if report.own_features is None:
        measured = (
            f"If the model also uses features of {active}, that quality was measured by exchanging "
            "people's embeddings with each other; otherwise such predictions do not depend on the "
            f"label. {passive} is not told which of the two applies."
        )
    elif report.own_features:
        measured = (
            f"The model also uses features of {active}, so that quality was measured by exchanging "
            "people's embeddings with each other."
        )
    else:
        measured = (
            f"The model uses no features of {active}, so such predictions do not depend on the "
            "label."
        )
    assumed = (
        "The estimate is valid if who is shared depends neither on labels nor on features. These "
        "data cannot show whether that is the case."
    )
    return markup(tag("p", solved + measured), tag("p", assumed))


def _learned(report: EvaluationReport) -> Html:
    active, passive = _parties(report)
    learned = (
        "the estimates" if report.agreement["passive_learns"] == "figures" else "that it ended"
    )
    own, peer = report.sizes.own, report.sizes.peer
    if report.role == "passive":
        own, peer = peer, own
    return markup(
        tag("p", known_sizes({active: own, passive: peer}, report.sizes)),
        tag("p", guarantee(report.privacy)),
        tag(
            "p",
            f"{active} also saw an embedding for each UID of the union, made from real features or "
            f"another person's, without learning which. {passive} also learned {learned}.",
        ),
        tag(
            "p",
            "A good model predicts people better from their own features than from another "
            f"person's, so {active} can guess who is shared; the better the model, the better the "
            "guess. No evaluation of a model can avoid this.",
        ),
        tag("p", report.evidence) if report.evidence else "",
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
    """Return the names of the active and the passive party."""
    both = report.party, report.peer
    return both if report.role == "active" else (both[1], both[0])
