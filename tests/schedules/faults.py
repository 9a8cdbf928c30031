"""The faults of a schedule, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tests.schedules.network import Conditions

if TYPE_CHECKING:
    from random import Random

    from florist.common.core.roles import RoleName

FaultKind = Literal[
    "cut",
    "half-open",
    "hold",
    "kill",
    "power-failure",
    "kill-both",
    "freeze",
    "clock-jump",
    "disk-full",
    "slow-disk",
    "lost-fsync",
    "bit-rot",
]

#: The kinds with their weights.
WEIGHTS: dict[FaultKind, float] = {
    "cut": 3,
    "half-open": 2,
    "hold": 2,
    "kill": 4,
    "power-failure": 5,
    "kill-both": 1,
    "freeze": 1,
    "clock-jump": 1,
    "disk-full": 2,
    "slow-disk": 1,
    "lost-fsync": 0.5,
    "bit-rot": 1,
}

#: After these, a named rejection on both sides is right: no program can mend such a disk.
IRREPARABLE: frozenset[FaultKind] = frozenset({"lost-fsync", "bit-rot"})


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong at a point of a schedule."""

    kind: FaultKind
    #: The number of the point: an operation of a disk or of the network.
    point: int
    #: The party that it concerns.
    role: RoleName
    #: How long it lasts, in virtual seconds.
    seconds: float
    #: Further choices, by each kind of fault.
    draw: int


@dataclass(frozen=True)
class Plan:
    """All that goes wrong in a schedule."""

    conditions: Conditions
    preemption: float
    faults: tuple[Fault, ...]

    @property
    def is_reparable(self) -> bool:
        """Whether the run must end as if nothing had happened."""
        return not any(fault.kind in IRREPARABLE for fault in self.faults)

    @classmethod
    def none(cls) -> Plan:
        return cls(Conditions(), 0.0, ())

    @classmethod
    def drawn(cls, random: Random, points: int) -> Plan:
        """Draw a plan for a run that has about this many points."""
        conditions = Conditions(
            delay=random.choice([0.0005, 0.01, 0.2]),
            loss=random.choice([0.0, 0.0, 0.05, 0.3]),
        )
        kinds = list(WEIGHTS)
        count = random.choice([1, 1, 2, 2, 3, 4])
        faults = []
        for _ in range(count):
            kind = random.choices(kinds, list(WEIGHTS.values()))[0]
            faults.append(
                Fault(
                    kind,
                    random.randint(1, round(1.2 * points)),
                    random.choice(["active", "passive"]),
                    random.choice([0.0, 0.5, 3.0, 15.0, 40.0]) * (0.5 + random.random()),
                    random.getrandbits(64),
                )
            )
        preemption = random.choice([0.01, 0.05, 0.2])
        return cls(conditions, preemption, tuple(sorted(faults, key=lambda each: each.point)))
