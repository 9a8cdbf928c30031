"""The secrets of a party in one union: exponents, and what determines its padding."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from florist.common.privacy.commitment import KEY_BYTES as COMMITMENT_KEY_BYTES

if TYPE_CHECKING:
    from florist.common.groups.group import Exponent, Group
    from florist.common.privacy.count_noise import CountNoise

#: Bytes of the key of the dummy IDs.
DUMMY_KEY_BYTES = 32


@dataclass(frozen=True, slots=True, repr=False)
class Keys:
    """`s1, s2, s3` of the active party, or `t1, t2, t3` of the passive: steps 1 and 2.

    In the merged protocol, the first two are `a, c` of the merging party, or `b, d` of the other.
    They exist in memory for one alignment, are never logged or printed, and are stored only
    encrypted under a key that is not on the same machine (`sealed_keys.py`).
    """

    first: Exponent
    second: Exponent
    third: Exponent
    #: Blinds the anchors of planted pairs, and nothing else.
    planting: Exponent

    @classmethod
    def fresh(cls, group: Group) -> Self:
        """Return random exponents."""
        return cls(*(group.random_exponent() for _ in range(4)))

    def __repr__(self) -> str:
        return "Keys(…)"


@dataclass(frozen=True, slots=True, repr=False)
class CountDraws:
    """The random draws that hide the counts of one union; see docs/concepts/private-counts.md.

    Drawn once per union: who sees the counts under several draws can average them.
    """

    #: `W`: the number of dummies that we add.
    dummies: int
    #: The indices of the `Z` IDs of our own pool that we add, in ascending order.
    chosen: tuple[int, ...]

    @classmethod
    def fresh(cls, noise: CountNoise | None) -> Self:
        """Draw from the operating system's randomness; without noise, nothing is added."""
        if noise is None:
            return cls(0, ())
        pool = range(noise.pool_size)
        chosen = secrets.SystemRandom().sample(pool, noise.draw())
        return cls(noise.draw(), tuple(sorted(chosen)))

    def __repr__(self) -> str:
        return "CountDraws(…)"


@dataclass(frozen=True, slots=True, repr=False)
class OwnSecrets:
    """The secrets that a party draws for one union; stored and shown as little as `Keys`."""

    keys: Keys
    #: Determines the dummy IDs (`hashed_ids.py`): the same in every attempt at one union, so that
    #: an element that changes does not tell the peer that it is a dummy.
    dummy_key: bytes
    #: The key of our commitment to our set (`privacy/commitment.py`).
    commitment_key: bytes
    draws: CountDraws

    @classmethod
    def fresh(cls, group: Group, noise: CountNoise | None = None) -> Self:
        """Return random secrets."""
        return cls(
            Keys.fresh(group),
            secrets.token_bytes(DUMMY_KEY_BYTES),
            secrets.token_bytes(COMMITMENT_KEY_BYTES),
            CountDraws.fresh(noise),
        )

    def __repr__(self) -> str:
        return "OwnSecrets(…)"
