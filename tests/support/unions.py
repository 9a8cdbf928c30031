"""One party's side of a union that can be attempted again, after an interruption or a kill."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from florist.common.core.errors import FloristError
from florist.common.core.progress import NoProgress
from florist.common.psu.executor import LocalExecutor
from florist.common.psu.hashed_ids import hashed_ids
from florist.common.psu.journal import Journal
from florist.common.psu.padded_set import PaddedSet
from florist.common.psu.planted_pairs import PlantedPairs
from florist.common.psu.union_handshake import AnnouncedSet, open_union
from florist.common.psu.union_protocol import EXCHANGES
from florist.common.psu.union_work import UnionWork
from florist.common.storage.id_column import IdColumn
from florist.common.transport.in_memory import linked_pair
from tests.support.psu import UNLIMITED, Outcome, Pair, run_side

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from florist.common.core.roles import RoleName
    from florist.common.groups.group import Exponent, Group
    from florist.common.privacy.count_noise import CountNoise
    from florist.common.psu.exchanges import Exchange
    from florist.common.psu.keys import OwnSecrets
    from florist.common.psu.sealed_keys import UnionSecrets
    from florist.common.storage.elements import Elements
    from florist.common.storage.files import Storage
    from florist.common.transport.channel import Link
    from florist.common.transport.messages import Step


@dataclass
class CountingGroup:
    """A group that counts the elements it raises."""

    inner: Group
    raised: int = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of the group
        return getattr(self.inner, name)

    def power(self, elements: Elements, exponent: Exponent) -> Elements:
        self.raised += len(elements)
        return self.inner.power(elements, exponent)


@dataclass
class Side:
    """A party with its storage and the secrets in its memory."""

    role: RoleName
    group: CountingGroup
    ids: Sequence[bytes]
    storage: Storage
    secrets: UnionSecrets | None = None
    memory: int = UNLIMITED
    noise: CountNoise | None = None
    planted: int = 0
    #: The party that merges, by the merged protocol; None runs Algorithm 1.
    merging: RoleName | None = None
    #: Exchanges that the last attempt skipped.
    done: frozenset[Step] = field(default_factory=frozenset)
    #: What was announced, for each new union.
    announced: list[AnnouncedSet] = field(default_factory=list)

    def attempt(self, link: Link) -> Outcome:
        """Open the union and run it from where both parties can resume."""
        self.group.raised = 0
        try:
            journal = self.journal()
            self.secrets, self.done = open_union(
                link.channel("opening"), self.group, journal, self.secrets, self, self.exchanges
            )
            executor = LocalExecutor(self.group)
            work = UnionWork(
                executor,
                self.secrets.keys,
                journal,
                self.done,
                self.memory,
                planted=PlantedPairs(self.planted, self.secrets.token),
                merging=self.merging,
            )
            if journal.ids is None:
                ids = self.padded.ids(self.secrets.token, self.secrets.own)
                work.store_ids(hashed_ids(executor, ids, NoProgress()))
            return run_side(self.role, link, work)
        except FloristError as error:
            link.fail(error)
            return error

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        return EXCHANGES["algorithm-1" if self.merging is None else "merged"]

    @property
    def padded(self) -> PaddedSet:
        return PaddedSet(IdColumn.from_bytes(self.ids), self.role, noise=self.noise)

    def draw_secrets(self, group: Group) -> OwnSecrets:
        return self.padded.draw_secrets(group)

    def announce(self, token: bytes, own: OwnSecrets) -> AnnouncedSet:
        ids = self.padded.ids(token, own)
        self.announced.append(AnnouncedSet(len(ids), ids.commit(own.commitment_key)))
        return self.announced[-1]

    def journal(self) -> Journal:
        identity = hashlib.sha256(b"\0".join(self.ids)).digest()
        return Journal(self.storage, self.group.width, identity)

    def die(self) -> None:
        """Lose what is in memory, as a killed process does."""
        self.secrets = None


def attempt_both(
    active: Side,
    passive: Side,
    wrap: Callable[[Link, Link], tuple[Link, Link]] = lambda a, p: (a, p),
) -> Pair:
    """Run one attempt of both parties, over a new link."""
    links = wrap(*linked_pair(grace=0.05))
    with ThreadPoolExecutor(2) as both:
        runs = [
            both.submit(side.attempt, link)
            for side, link in zip((active, passive), links, strict=True)
        ]
        pair = Pair(runs[0].result(timeout=100), runs[1].result(timeout=100))
    for link in links:
        link.close()
    return pair
