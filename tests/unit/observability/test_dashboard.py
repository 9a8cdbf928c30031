"""Dashboard, alerts and documentation match the metrics that a party has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from florist.common.observability.metrics import Metrics
from tests.support.observability import busy_status
from tools.metrics_page import page

DEPLOY = Path(__file__).parents[3] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "dashboards" / "florist.json"


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return facts


def known_metrics() -> set[str]:
    with busy_status() as status:
        text = Metrics(status).write()[0].decode()
    return set(re.findall(r"^(\w+)[{ ]", text, re.MULTILINE))


def metrics_in(expressions: list[str]) -> set[str]:
    return set(re.findall(r"\b(?:florist|process)_\w+", " ".join(expressions)))


def test_the_dashboard_uses_existing_metrics(dashboard: dict[str, Any]) -> None:
    expressions = [query["expr"] for panel in dashboard["panels"] for query in panel["targets"]]
    used = metrics_in(expressions)
    assert used <= known_metrics()
    assert len(used) > 15


def test_the_dashboard_uses_the_provisioned_data_source(dashboard: dict[str, Any]) -> None:
    provisioned = yaml.safe_load(
        (DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text(encoding="utf-8")
    )
    (source,) = provisioned["datasources"]
    used = set(re.findall(r'"uid": "(florist-[^"]+)"', DASHBOARD.read_text(encoding="utf-8")))
    assert used == {source["uid"]}
    assert dashboard["uid"] == "florist"


def test_panels_do_not_overlap(dashboard: dict[str, Any]) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        position = panel["gridPos"]
        cells = {
            (position["x"] + across, position["y"] + down)
            for across in range(position["w"])
            for down in range(position["h"])
        }
        assert not cells & taken
        assert position["x"] + position["w"] <= 24
        taken |= cells


def test_the_reference_page_is_current() -> None:
    committed = (DEPLOY.parent / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert committed == page(), "run: make reference"
