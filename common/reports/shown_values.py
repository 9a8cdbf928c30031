"""Numbers, durations, byte counts and settings as texts for reports."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def number(value: float | None) -> str:
    """Show a count or a figure; a dash for None."""
    match value:
        case None:
            return "\N{EN DASH}"
        case int():
            return f"{value:,}"
        case _ if not math.isfinite(value):
            return "not finite"
        case _ if value and not 1e-3 <= abs(value) < 1e4:
            return f"{value:.3g}"
        case _:
            return f"{value:.4f}"


def duration(seconds: float) -> str:
    """Show seconds in the largest fitting units."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def byte_count(count: float) -> str:
    """Show a number of bytes in decimal units."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.2f} TB"


def dotted_facts(values: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted key and the shown value of each entry of nested sections."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from dotted_facts(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", _shown(value)


def _shown(value: object) -> str:
    match value:
        case str():
            return value
        case list() | tuple():
            return ", ".join(_shown(item) for item in value) or "none"
        case int() if not isinstance(value, bool):
            return f"{value:,}"
        case _:
            return json.dumps(value, ensure_ascii=False, default=str)
