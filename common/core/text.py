"""Make untrusted text safe for a terminal and a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def printable(text: str, limit: int) -> str:
    """Return the first `limit` characters, with unprintable ones replaced by spaces."""
    return "".join(c if c.isprintable() else " " for c in text[:limit]).strip()


def quoted(text: str, limit: int = 40) -> str:
    """Return the text in quotes, escaped, on one line and shortened to `limit` characters."""
    return repr(text) if len(text) <= limit else f"{text[:limit]!r}..."


def quoted_few(texts: Sequence[object], limit: int) -> str:
    """Quote the first `limit` texts and say how many more there are."""
    shown = ", ".join(quoted(str(text)) for text in texts[:limit])
    return shown if len(texts) <= limit else f"{shown} and {len(texts) - limit:,} more"


def abbreviated(value: object, limit: int = 60) -> str:
    """Return the `repr` of a value, shortened to `limit` characters."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun, such as `1 step` or `2,000 steps`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


#: The attribute of a log record that only the owner's terminal shows.
FOR_OWNER = "for_owner"


def for_owner(text: str) -> dict[str, str]:
    """Return the `extra` of a log call, with a text for the owner's terminal only.

    Logs may be shared with the peer. Exact numbers of our people are for us alone: the sizes that
    we announce are padded to hide them.
    """
    return {FOR_OWNER: text}
