"""Dashboard, alerts and scrape configuration speak of metrics that a party really has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from florist.common.observability.metrics import Metrics
from tests.support.observability import busy_status

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


def test_the_dashboard_asks_for_metrics_that_are_there(dashboard: dict[str, Any]) -> None:
    expressions = [query["expr"] for panel in dashboard["panels"] for query in panel["targets"]]
    asked = metrics_in(expressions)
    assert asked <= known_metrics()
    assert len(asked) > 15


def test_the_alerts_ask_for_metrics_that_are_there() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))
    expressions = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    assert metrics_in(expressions) <= known_metrics()
    assert len(expressions) == 4


def test_the_data_source_is_the_one_that_is_provisioned(dashboard: dict[str, Any]) -> None:
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
        place = panel["gridPos"]
        cells = {
            (place["x"] + across, place["y"] + down)
            for across in range(place["w"])
            for down in range(place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_the_docs_list_every_metric() -> None:
    text = (DEPLOY.parent / "docs" / "how-to" / "monitor.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `florist_")]
    listed = metrics_in([row.split("|")[1] for row in rows])
    assert listed == {name for name in known_metrics() if name.startswith("florist_")}
