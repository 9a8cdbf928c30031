"""Generates `docs/reference/metrics.md` from the table of metrics.

`python -m florist.cli.metrics_reference > docs/reference/metrics.md`
"""

from __future__ import annotations

import sys

from florist.common.observability.metric_table import METRICS, Metric

_BEFORE = """\
# Metrics

A party with an `observability.address` provides these at `/metrics`
([how to monitor a run](../how-to/monitor.md)). Process metrics such as
`process_resident_memory_bytes` and `process_cpu_seconds_total` are included.

<!-- This page is generated: python -m florist.cli.metrics_reference > docs/reference/metrics.md -->

| metric | labels | meaning |
|---|---|---|
"""


def page() -> str:
    """Return the text of the page."""
    return _BEFORE + "".join(map(_row, METRICS))


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.sample_name}` | {labels} | {metric.help} |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
