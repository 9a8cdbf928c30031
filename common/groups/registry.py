"""Groups and engines by the names that the configuration uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError
from florist.common.groups.engines import X25519_ENGINES
from florist.common.groups.modp import MODP_ENGINES, PRIMES, ModpGroup
from florist.common.groups.x25519 import X25519Group

if TYPE_CHECKING:
    from florist.common.groups.group import Group

GROUP_NAMES = ("x25519", *PRIMES)
ENGINE_NAMES = ("auto", *X25519_ENGINES, *MODP_ENGINES)


def make_group(name: str, engine: str = "auto", threads: int = 0) -> Group:
    """Create a group with its workers; the caller closes it.

    Args:
        name: one of `GROUP_NAMES`.
        engine: one of `ENGINE_NAMES` that supports the group; `auto` selects the fastest.
        threads: number of threads; 0 means all cores.

    Raises:
        ConfigurationError: the group or engine is unknown, or the engine cannot run here.
    """
    if name == "x25519":
        return X25519Group(engine, threads)
    if name in PRIMES:
        return ModpGroup(name, engine, threads)
    raise ConfigurationError(f"unknown group {name!r}; choose one of: {', '.join(GROUP_NAMES)}")
