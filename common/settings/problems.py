"""Error messages for invalid configurations: each names the key and the fix."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from florist.common.core.text import abbreviated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic_core import ErrorDetails

    from florist.common.settings.keys import Key


def describe_problem(  # noqa: PLR0911 - one per kind of problem
    error: ErrorDetails, known: dict[tuple[str, ...], Key]
) -> str:
    """Describe one validation error on one line: the key, the problem and the fix."""
    value = error["input"]
    where = ".".join(part if part.isprintable() else ascii(part) for part in map(str, error["loc"]))
    # All items of a list have the same keys: drop the indices.
    path = tuple(part for part in error["loc"] if isinstance(part, str))
    match error["type"]:
        case "extra_forbidden":
            return f"{where}: unknown key; {_suggestion(path, list(known))}"
        case "missing":
            return f"{where}: missing; add it. {known[path].meaning}"
        case "invalid_key":
            return f"{where}: keys must be text; put it in quotes"
        case "model_type":
            keys = listed(key[-1] for key in known if key[:-1] == path)
            return f"{where}: {'is empty' if value is None else 'has no keys'}; expected {keys}"
        case "literal_error":
            return f"{where}: must be one of {listed(known[path].choices)}, {_not(value)}"
        case "string_type" | "path_type":
            fix = "" if value is None else "; put it in quotes"
            return f"{where}: must be text, {_not(value)}{fix}"
        case "int_type":
            return f"{where}: must be a whole number without quotes, {_not(value)}"
        case "float_type":
            return f"{where}: must be a number without quotes, {_not(value)}"
        case "value_error":
            found = "" if isinstance(value, list | dict) else f", {_not(value)}"
            return f"{where}: {error['ctx']['error']}{found}"
        case _:
            must = re.sub(r"^\w+ should", "must", error["msg"])
            return f"{where}: {must}, {_not(value)}"


def _suggestion(path: tuple[str, ...], known: list[tuple[str, ...]]) -> str:
    siblings = [key[-1] for key in known if key[:-1] == path[:-1]]
    if near := difflib.get_close_matches(path[-1], siblings, n=1):
        return f"did you mean `{near[0]}`?"
    if elsewhere := [".".join(key) for key in known if key[-1] == path[-1]]:
        return f"did you mean `{elsewhere[0]}`?"
    return f"expected one of {listed(siblings)}"


def _not(value: object) -> str:
    """Say what was found instead, short and printable; never show a pasted key or password."""
    if isinstance(value, dict | list):
        return "not a group of keys" if isinstance(value, dict) else "not a list"
    if isinstance(value, str) and any(character < " " for character in value):
        return "not text with line breaks or control characters"
    if isinstance(value, str) and re.search(r"://[^/]*@", value):
        return "not an address with a user or password"
    return "not empty" if value is None else f"not {abbreviated(value)}"


def listed(names: Iterable[str]) -> str:
    """Join names with commas, each in backticks."""
    return ", ".join(f"`{name}`" for name in names)
