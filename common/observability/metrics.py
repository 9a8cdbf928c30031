"""The metrics in the formats of Prometheus, from a registry that nothing else writes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from florist.common.observability.metric_table import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric as MetricFamily

    from florist.common.observability.status import Status


class Metrics:
    """Writes the status as metrics on request."""

    def __init__(self, status: Status) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_StatusCollector(status))
        ProcessCollector(registry=self._registry)

    def write(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics and the content type that fits the request's `Accept` header."""
        encode, kind = choose_encoder(accept)
        return encode(self._registry), kind


class _StatusCollector(Collector):
    def __init__(self, status: Status) -> None:
        self._status = status

    def describe(self) -> list[MetricFamily]:
        """Return nothing: which metrics have values depends on the run."""
        return []

    def collect(self) -> Iterator[MetricFamily]:
        now = self._status.snapshot()
        for metric in METRICS:
            family = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
            samples = family(metric.name, metric.help, labels=metric.labels)
            for labels, value in metric.values(now).items():
                samples.add_metric(labels, value)
            if samples.samples:
                yield samples
