"""Text from files and from the peer, made safe for a terminal and a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def printable(text: str, limit: int) -> str:
    """The first `limit` characters, with a space for each that cannot be printed."""
    return "".join(c if c.isprintable() else " " for c in text[:limit]).strip()


def quoted(text: str, limit: int = 40) -> str:
    """In quotes, on one line, cut short: safe on a terminal whatever the file holds."""
    return repr(text) if len(text) <= limit else f"{text[:limit]!r}..."


def quoted_few(texts: Sequence[object], limit: int) -> str:
    """The first `limit`, and how many more there are."""
    shown = ", ".join(quoted(str(text)) for text in texts[:limit])
    return shown if len(texts) <= limit else f"{shown} and {len(texts) - limit:,} more"


def abbreviated(value: object, limit: int = 60) -> str:
    """The `repr` of a value, cut after `limit` characters."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."
