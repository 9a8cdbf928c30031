"""The status as JSON: all fields of the snapshot, and the cards of the status page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from florist.common.observability.metric_table import METRICS
from florist.common.observability.snapshot import finite, json_fields

if TYPE_CHECKING:
    from florist.common.observability.snapshot import Snapshot


def status_json(now: Snapshot) -> str:
    """Return the content of `/status.json`; NaN and infinity are null."""
    cards = [
        {
            "title": metric.card.title,
            "format": metric.card.format,
            "section": metric.card.section,
            "values": [
                {"label": ", ".join(labels), "value": finite(value)}
                for labels, value in metric.values(now).items()
            ],
        }
        for metric in METRICS
        if metric.card is not None
    ]
    return json.dumps({**json_fields(now), "cards": cards}, default=json_fields, allow_nan=False)
