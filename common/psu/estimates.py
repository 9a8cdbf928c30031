"""What a union will cost a party: computing time, traffic and disk space, before it starts."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.psu.hashed_ids import DummyIds
from florist.common.psu.limits import disk_needed
from florist.common.psu.union_protocol import (
    Sizes,
    merging_party,
    own_exponentiations,
    traffic,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.core.roles import RoleName
    from florist.common.groups.group import Group
    from florist.common.settings.party_config import PartyConfig

#: The time of a union divided by that of its exponentiations, as benchmarks/psu.py measures it.
_OVERHEAD = 1.25
#: Seconds for measuring the speed of exponentiations.
_SAMPLE_SECONDS = 0.1
_SAMPLE_ELEMENTS = 64


@dataclass(frozen=True, slots=True)
class UnionCost:
    """The cost of a union with a peer that has as many IDs, of which half are shared."""

    #: Of computing, with all threads of this party; the network may take longer.
    seconds: float
    #: Bytes that both parties send.
    traffic: int
    #: The most bytes on this party's disk, whatever is shared.
    disk: int

    def __add__(self, other: UnionCost) -> UnionCost:
        return UnionCost(
            self.seconds + other.seconds,
            self.traffic + other.traffic,
            self.disk + other.disk,
        )


def estimate_union(config: PartyConfig, size: int, width: int, speed: float) -> UnionCost:
    """Estimate the cost of a union of `size` IDs, padding included, with as many of the peer.

    Args:
        config: this party's configuration.
        size: the number of IDs.
        width: bytes of an element.
        speed: exponentiations per second.
    """
    roles: tuple[RoleName, RoleName] = ("active", "passive")
    sizes, shared, alignment = Sizes(size, size), size // 2, config.alignment
    merging = merging_party(config.agreement.union.protocol, sizes)
    # Which party merges sets of about the same size is not known before.
    merges = (None,) if merging is None else (True, False)
    return UnionCost(
        _OVERHEAD * max(own_exponentiations(merging, r, sizes, shared) for r in roles) / speed,
        traffic(merging, sizes, shared, width),
        max(
            disk_needed(width, size, size, alignment.memory_bytes, each, config.agreement.branches)
            for each in merges
        ),
    )


def measure_speed(group: Group, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the exponentiations per second that a group's threads compute."""
    count, seconds = _SAMPLE_ELEMENTS, 0.0
    while seconds < _SAMPLE_SECONDS:
        elements = group.hash_ids(DummyIds(bytes(32), count).rows(0, count))
        start = clock()
        group.power(elements, group.random_exponent())
        seconds = clock() - start
        count *= 4
    return len(elements) / seconds
