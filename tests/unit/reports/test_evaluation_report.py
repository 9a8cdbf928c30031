"""The HTML and JSON reports of an evaluation."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from florist.common.evaluation.importance import ColumnImportance
from florist.common.evaluation.metric_estimates import Evaluation
from florist.common.evaluation.paired_estimates import Difference, Gain
from florist.common.evaluation.private_estimate import CurveEstimate, Estimate
from florist.common.evaluation.worth import Comparison, Importance, Worth
from florist.common.reports.evaluation_report import EvaluationReport, render
from florist.common.session.union_sizes import UnionSizes

CURVE = CurveEstimate(
    confidence=np.array([0.1, 0.3, 0.6]),
    rate=np.array([0.12, 0.28, -0.01]),
    standard_error=np.array([0.01, 0.02, 0.03]),
    count=np.array([300, 4, 300]),
)
REPORT = EvaluationReport(
    party="bank",
    peer="<telco>",
    role="active",
    release="0.1.0",
    finished_at="2026-01-01T00:00:00+00:00",
    run="ab" * 32,
    model=("12" * 32, "34" * 32),
    agreement={"table": True, "stand_ins": "once", "passive_learns": "figures"},
    table_rows=900,
    sizes=UnionSizes(604, 1200, 1500),
    privacy=None,
    found=Evaluation(
        Estimate(0.71, 0.04), Estimate(0.02, 0.01), Estimate(0.5, 0.01), CURVE, 604, 304
    ),
    own_features=False,
    bytes_sent=1_000_000,
    bytes_received=2_000_000,
)


class Page(HTMLParser):
    """Parses a page; unbalanced tags are an error."""

    VOID = frozenset({"meta", "br", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(report: EvaluationReport) -> str:
    page = Page()
    text = render(report)
    assert "<telco>" not in text
    assert render(report) == text
    page.feed(text)
    page.close()
    assert page.open == []
    return " ".join(page.text.split())


def test_the_active_report() -> None:
    text = read(REPORT)
    assert "0.7100 ± 0.0784" in text
    assert "Warning: the estimate is too imprecise" in text
    assert "0.2800" not in text  # of 4 rows only
    assert "do not depend on the label" in text
    assert "embeddings with each other" in read(replace(REPORT, own_features=True))


@pytest.mark.parametrize("own_features", [True, False])
def test_the_reports_of_both_sides_do_not_contradict_each_other(*, own_features: bool) -> None:
    """The passive party is not told whether the active party has features, and says so."""
    active = read(replace(REPORT, own_features=own_features))
    passive = read(replace(REPORT, role="passive", own_features=None))
    assert "is not told which of the two applies" in passive
    assert "The model uses no features" not in passive
    assert ("The model uses no features of bank" in active) is not own_features


def test_the_passive_report() -> None:
    assert REPORT.found is not None
    told = replace(REPORT, role="passive", found=replace(REPORT.found, curve=None))
    text = read(told)
    assert "0.7100 ± 0.0784" in text
    assert "predicted" not in text.split("Method")[0]
    silent = replace(told, found=None, agreement=REPORT.agreement | {"passive_learns": "nothing"})
    text = read(silent)
    assert "only the active party knows" in text
    assert "that it ended" in text


def test_the_json_report() -> None:
    facts = json.loads(json.dumps(REPORT.to_json(), allow_nan=False))
    assert facts["estimates"]["auc"] == {
        "value": 0.71,
        "standard_error": 0.04,
        "low": pytest.approx(0.6316, abs=1e-5),
        "high": pytest.approx(0.7884, abs=1e-5),
    }
    assert [found["rows"] for found in facts["curve"]] == [300, 300]
    assert facts["scored"] == 604
    assert facts["warning"]
    assert facts["model"] == ["12" * 32, "34" * 32]
    passive = replace(REPORT, role="passive", found=None).to_json()
    assert passive["estimates"] is passive["curve"] is None
    assert "scored" not in passive


# --- was it worth it? ---


def compared(*, auc: Difference, columns: int = 3) -> Worth:
    gain = Gain(Estimate(0.65, 0.01), Estimate(0.55, 0.01), auc, Difference(0.05, 0.01))
    importance = Importance(
        "auc",
        604,
        tuple(
            ColumnImportance(name, Difference(value, 0.004))
            for name, value in (("<income>", 0.03), ("age", 0.01), ("town " * 9, -0.001))
        ),
        Difference(0.06, 0.02),
    )
    found = Comparison(800, columns, 604, Estimate(0.71, 0.04), Estimate(0.5, 0.01), gain)
    return Worth(found, importance)


@pytest.mark.parametrize(
    ("gain", "answer", "first"),
    [
        (
            Difference(0.06, 0.02),
            "Yes. On its own data alone, bank reaches an AUC of 0.650",
            "It was worth it: the AUC is 0.060 higher",
        ),
        (
            Difference(0.01, 0.02),
            "These people cannot tell.",
            "Whether it was worth it cannot be told: the AUC differs by +0.010",
        ),
        (Difference(-0.06, 0.02), "No.", "It was not worth it: the AUC is 0.060 lower"),
    ],
)
def test_the_answer_depends_on_the_interval(gain: Difference, answer: str, first: str) -> None:
    text = read(replace(REPORT, worth=compared(auc=gain)))
    assert "Was it worth it?" in text
    assert answer in text
    assert 0 < text.find(first) < text.find(answer), "the conclusion comes first"
    assert f"{gain.low:+.3f} and {gain.high:+.3f}" in text
    assert "<income>" in text  # as text, escaped in the markup
    assert "nothing was sent for it" in text


def test_without_own_columns_the_report_says_what_the_baseline_is() -> None:
    worth = replace(compared(auc=Difference(0.21, 0.04), columns=0), importance=None)
    text = read(replace(REPORT, worth=replace(worth, missing=("There are no own columns.",))))
    assert "can only predict the same for everybody, with an AUC of 0.5" in text
    assert "There are no own columns." in text


def test_the_passive_report_shows_which_columns_matter() -> None:
    columns = tuple(
        ColumnImportance(f"column {number}", Difference(1 / (number + 1), 0.01))
        for number in range(40)
    )
    worth = Worth(importance=Importance("share", 900, columns))
    text = read(replace(REPORT, role="passive", found=None, worth=worth))
    assert "depends on labels, which only <telco> has" in text
    assert "25 less important columns are in the table" in text
    assert "column 39" in text
    facts = json.loads(json.dumps(replace(REPORT, worth=worth).to_json(), allow_nan=False))
    assert facts["worth"]["importance"]["columns"][0] == {
        "column": "column 0",
        "value": 1.0,
        "standard_error": 0.01,
        "low": pytest.approx(0.9804, abs=1e-4),
        "high": pytest.approx(1.0196, abs=1e-4),
    }
