"""Compare the agreements of both parties. The peer's text is untrusted input."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NoReturn

from florist.common.core.errors import ProtocolViolation

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Limits on the peer's agreement, far above what any release writes.
MAX_TEXT = 64 * 1024
MAX_FIELDS = 256
MAX_DEPTH = 8

_SHOWN = 60
_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
#: A JSON string that is still recognisable as a string without its quotes.
_PLAIN = re.compile(r'"(?!(?:true|false|null)")[A-Za-z][A-Za-z0-9_.-]*"')


def differences(ours: str, theirs: str) -> list[str]:
    """Compare two canonical agreements and return one line per field that differs, sorted by field.

    Lists are compared as a whole, and so is a section that is null at one party. `theirs` is
    untrusted: what the lines show of it is short, printable ASCII.

    Raises:
        ProtocolViolation: the peer's text is not a valid agreement.
    """
    here, there = _fields(ours), _fields(theirs)
    here, there = _joined(here, there), _joined(there, here)
    return [
        f"agreement.{key}: {_shown(here.get(key))} here, {_shown(there.get(key))} at the peer"
        for key in sorted(here.keys() | there.keys())
        if here.get(key) != there.get(key)
    ]


def _fields(text: str) -> dict[str, str]:
    """Map dotted keys to JSON text, which distinguishes 1, 1.0 and true where Python does not."""
    if len(text) > MAX_TEXT:
        raise ProtocolViolation(f"the peer's agreement is longer than {MAX_TEXT} characters")
    try:
        values = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
        if not isinstance(values, dict):
            raise ProtocolViolation("the peer's agreement is not a JSON object")
        fields = dict(_leaves(values, ()))
    except (ValueError, RecursionError):
        # The parser's own message quotes the peer's text; ours does not.
        raise ProtocolViolation("the peer's agreement is not valid JSON") from None
    if len(fields) > MAX_FIELDS:
        raise ProtocolViolation(f"the peer's agreement has more than {MAX_FIELDS} fields")
    return fields


def _leaves(values: dict[str, object], above: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if len(above) >= MAX_DEPTH:
        raise ProtocolViolation(f"the peer's agreement is nested deeper than {MAX_DEPTH} levels")
    for key, value in values.items():
        path = (*above, key)
        if isinstance(value, dict) and value:
            yield from _leaves(value, path)
        else:
            yield ".".join(path), json.dumps(value, sort_keys=True, separators=(",", ":"))


def _joined(fields: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    """Join the keys of each section that is a single value, such as null, in the other agreement.

    The joined text is not JSON, so it never equals that value.
    """
    joined: dict[str, str] = {}
    for key, value in fields.items():
        parts = key.split(".")
        sections = (".".join(parts[:end]) for end in range(1, len(parts)))
        section = next((name for name in sections if name in other), None)
        if section is None:
            joined[key] = value
        else:
            inner = f"{key.removeprefix(section)[1:]}: {value}"
            before = f"{joined[section][:-1]}, " if section in joined else "{"
            joined[section] = f"{before}{inner}}}"
    return joined


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ProtocolViolation("the peer's agreement contains a key twice")
    if not all(_KEY.fullmatch(key) for key in values):
        raise ProtocolViolation("the peer's agreement contains an invalid key")
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _shown(value: str | None) -> str:
    """Shorten a JSON text (ASCII, control characters escaped) and unquote simple strings."""
    if value is None:
        return "not set"
    text = value[1:-1] if _PLAIN.fullmatch(value) else value
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
