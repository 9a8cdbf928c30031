"""The set that a party brings to a union: its people, and padding that hides how many they are.

The padding has three parts:

dummies         random IDs that match nothing: as many as configured, and `W` more
the peer's pool all its IDs
our own pool    `Z` of its IDs, chosen at random; the peer has all of them

A pool is a list of `2t` IDs that both parties know and that are nobody's. `W` and `Z` are random
draws with mean `t`; the peer sees the sizes only with them. See docs/concepts/private-counts.md.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from florist.common.privacy.commitment import BATCH, commit
from florist.common.privacy.count_noise import CountNoise
from florist.common.psu.hashed_ids import DummyIds
from florist.common.psu.keys import OwnSecrets
from florist.common.storage.id_column import IdColumn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.core.roles import RoleName
    from florist.common.groups.group import Group
    from florist.common.privacy.commitment import SetCommitment
    from florist.common.settings.party_config import PartyConfig
    from florist.common.settings.union import CountPrivacy
    from florist.common.storage.id_column import Ids


@dataclass(frozen=True, slots=True, repr=False)
class PaddedIds:
    """A party's IDs and its padding in one union: always the same under the same secrets."""

    people: Ids
    dummies: DummyIds
    #: The IDs of both pools that are in our set.
    pool: IdColumn

    def __len__(self) -> int:
        return len(self.people) + self.padding

    @property
    def padding(self) -> int:
        """The number of IDs that are not people."""
        return self.dummies.count + len(self.pool)

    def batches(self, rows: int) -> Iterator[IdColumn]:
        """Yield all IDs, `rows` at a time: nothing shows where the people end."""
        used = 0
        for batch in self.people.batches(rows):
            block = batch
            if missing := min(rows - len(batch), self.padding - used):
                block = IdColumn.joined([batch, self._padding_rows(used, missing)])
                used += missing
            yield block
        for start in range(used, self.padding, rows):
            yield self._padding_rows(start, min(rows, self.padding - start))

    def commit(self, key: bytes) -> SetCommitment:
        """Return our commitment to this set under a secret key."""
        people, dummies = self.people.batches(BATCH), self.dummies.batches(BATCH)
        return commit(people, dummies, [self.pool], key)

    def _padding_rows(self, start: int, count: int) -> IdColumn:
        """Return `count` IDs of the padding from number `start` on."""
        dummies = min(count, max(0, self.dummies.count - start))
        if dummies == count:
            return self.dummies.rows(start, count)
        first = start + dummies - self.dummies.count
        pool = self.pool.slice(first, first + count - dummies)
        return IdColumn.joined([self.dummies.rows(start, dummies), pool]) if dummies else pool


@dataclass(frozen=True, slots=True, repr=False)
class PaddedSet:
    """How a party's people are padded in a union whose secrets are not drawn yet."""

    people: Ids
    role: RoleName
    #: The number of dummies that the party has configured.
    dummies: int = 0
    #: Hides the counts; None leaves them exact.
    noise: CountNoise | None = None

    def draw_secrets(self, group: Group) -> OwnSecrets:
        """Return fresh secrets for a union."""
        return OwnSecrets.fresh(group, self.noise)

    def ids(self, token: bytes, own: OwnSecrets) -> PaddedIds:
        """Return the IDs of the union `token`."""
        dummies = DummyIds(own.dummy_key, self.dummies + own.draws.dummies)
        if self.noise is None:
            return PaddedIds(self.people, dummies, IdColumn.from_bytes(()))
        peer: RoleName = "passive" if self.role == "active" else "active"
        ours = pool_ids(token, self.role, self.noise.pool_size)
        theirs = pool_ids(token, peer, self.noise.pool_size)
        chosen = ours.take(np.array(own.draws.chosen, dtype=np.int64))
        return PaddedIds(self.people, dummies, IdColumn.joined([theirs, chosen]))


@cache
def noise_of(privacy: CountPrivacy | None) -> CountNoise | None:
    """Return the noise that gives the agreed guarantee; None if the counts are exact."""
    if privacy is None:
        return None
    return CountNoise.for_guarantee(privacy.epsilon, privacy.delta)


def most_padding(config: PartyConfig) -> int:
    """Return the largest number of IDs that a party's set has besides its people."""
    noise = noise_of(config.agreement.union.privacy)
    # The peer's pool, and two draws of at most its size: of our own pool, and of dummies.
    return config.alignment.dummies + (0 if noise is None else 3 * noise.pool_size)


def pool_ids(token: bytes, owner: RoleName, count: int) -> IdColumn:
    """Return the pool from which `owner` inserts a secret number of IDs; the other inserts all.

    Both parties have contributed to the random token, so neither can choose the IDs, for example
    such that they are somebody's.
    """
    key = hashlib.sha256(b"florist/pool/1" + owner.encode() + token).digest()
    return DummyIds(key, count).rows(0, count)
