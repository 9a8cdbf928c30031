"""The HTML and JSON reports of an evaluation."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from florist.common.evaluation.metric_estimates import Evaluation
from florist.common.evaluation.private_estimate import CurveEstimate, Estimate
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
    passive = replace(REPORT, role="passive", found=None).to_json()
    assert passive["estimates"] is passive["curve"] is None
    assert "scored" not in passive
