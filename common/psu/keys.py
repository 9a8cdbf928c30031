"""The secrets of a party in one union: three exponents and the key of its dummy IDs."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from florist.common.groups.group import Exponent, Group

#: Bytes of the key of the dummy IDs.
DUMMY_KEY_BYTES = 32


@dataclass(frozen=True, slots=True, repr=False)
class Keys:
    """`s1, s2, s3` of the active party, or `t1, t2, t3` of the passive: steps 1 and 2.

    They exist in memory for one alignment, are never logged or printed, and are stored only
    encrypted under a key that is not on the same machine (`sealed_keys.py`).
    """

    first: Exponent
    second: Exponent
    third: Exponent

    @classmethod
    def fresh(cls, group: Group) -> Self:
        """Return three random exponents, as in steps 1 and 2."""
        return cls(group.random_exponent(), group.random_exponent(), group.random_exponent())

    def __repr__(self) -> str:
        return "Keys(…)"


@dataclass(frozen=True, slots=True, repr=False)
class OwnSecrets:
    """The secrets that a party draws for one union; stored and shown as little as `Keys`."""

    keys: Keys
    #: Determines the dummy IDs (`hashed_ids.py`): the same in every attempt at one union, so that
    #: an element that changes does not tell the peer that it is a dummy.
    dummy_key: bytes

    @classmethod
    def fresh(cls, group: Group) -> Self:
        """Return random secrets."""
        return cls(Keys.fresh(group), secrets.token_bytes(DUMMY_KEY_BYTES))

    def __repr__(self) -> str:
        return "OwnSecrets(…)"
