"""Words from outside, made safe for a terminal and a log."""

from __future__ import annotations


def printable(text: str, limit: int) -> str:
    """The first `limit` characters, with a space for each that cannot be printed."""
    return "".join(c if c.isprintable() else " " for c in text[:limit]).strip()
