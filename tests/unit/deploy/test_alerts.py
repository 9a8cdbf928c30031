"""The alert rules: every metric exists, and promtool accepts them if it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from florist.common.observability.metric_table import METRICS
from florist.common.observability.textfile import TEXTFILE_METRICS

FOLDER = Path(__file__).parents[3] / "deploy" / "prometheus"


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_every_metric_of_the_alerts_exists() -> None:
    known = {metric.sample_name for metric in METRICS} | TEXTFILE_METRICS.keys()
    for rule in rules():
        used = set(re.findall(r"florist_\w+", rule["expr"]))
        assert used, rule["alert"]
        assert used <= known, rule["alert"]


def test_what_operators_must_know_has_an_alert() -> None:
    used = " ".join(rule["expr"] for rule in rules())
    for metric in (
        "florist_failed",
        "florist_peer_up",
        "florist_rows_total",
        "florist_certificate_days_left",
        "florist_privacy_budget_left",
        "florist_audit_verdict",
    ):
        assert metric in used
    assert all(rule["labels"]["severity"] in {"warning", "critical"} for rule in rules())


def test_promtool_accepts_the_rules_and_they_fire_as_intended() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    for arguments in (("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")):
        found = subprocess.run(
            [promtool, *arguments], cwd=FOLDER, capture_output=True, text=True, check=False
        )
        assert found.returncode == 0, found.stdout + found.stderr
