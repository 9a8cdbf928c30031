"""Old names of configuration keys: they still work, with a warning that names the new key."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger("florist.settings")


def apply_renames(
    values: dict[object, object], renamed: Mapping[str, str], source: str
) -> dict[object, object]:
    """Return the values of a configuration file with every old key moved to its new place.

    Logs one warning per call that names each old key found and its new key.

    Args:
        values: what the file contains; it is not changed.
        renamed: dotted path of each old key or section -> dotted path of the new one.
        source: name of the file, for messages.

    Raises:
        ConfigurationError: the file has both the old and the new key.
    """
    found = {old: new for old, new in renamed.items() if _has(values, old.split("."))}
    both = [(old, new) for old, new in found.items() if _has(values, new.split("."))]
    if both:
        pairs = "; ".join(f"`{old}` and `{new}`" for old, new in both)
        raise ConfigurationError(
            f"{source}: old and new names of the same key: {pairs}; keep the new one only"
        )
    for old, new in found.items():
        values, value = _without(values, old.split("."))
        values = _with(values, new.split("."), value)
    if found:
        pairs = ", ".join(f"`{old}` is now `{new}`" for old, new in found.items())
        log.warning("%s: renamed keys: %s; the next release rejects the old names", source, pairs)
    return values


def _has(values: object, path: list[str]) -> bool:
    for part in path:
        if not isinstance(values, dict) or part not in values:
            return False
        values = values[part]
    return True


def _without(values: dict[object, object], path: list[str]) -> tuple[dict[object, object], object]:
    """Copy `values` without the key at `path`; also return its value. Empty sections go too."""
    first, *rest = path
    others = {key: value for key, value in values.items() if key != first}
    inner = values[first]
    if not rest or not isinstance(inner, dict):
        return others, inner
    left, value = _without(inner, rest)
    return (others | {first: left} if left else others), value


def _with(values: dict[object, object], path: list[str], value: object) -> dict[object, object]:
    """Copy `values` with the key at `path` added."""
    first, *rest = path
    if not rest:
        return values | {first: value}
    inner = values.get(first)
    if inner is not None and not isinstance(inner, dict):
        return values  # Not a section: validation reports it.
    return values | {first: _with(inner or {}, rest, value)}
