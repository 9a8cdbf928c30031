"""Both parties of a union in one process, by either protocol, over any pair of links."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.active_party import psu_role as active_role
from florist.common.core.errors import FloristError
from florist.common.core.progress import NoProgress
from florist.common.psu.executor import LocalExecutor
from florist.common.psu.journal import Journal
from florist.common.psu.keys import Keys
from florist.common.psu.planted_pairs import NO_PAIRS, PlantedPairs
from florist.common.psu.union_protocol import run_union
from florist.common.psu.union_view import UnionView
from florist.common.psu.union_work import UnionWork
from florist.common.storage.id_column import IdColumn
from florist.common.transport.in_memory import linked_pair
from florist.passive_party import psu_role as passive_role
from tests.support.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from florist.common.core.roles import RoleName
    from florist.common.groups.group import Group
    from florist.common.psu.executor import Executor
    from florist.common.transport.channel import Link

Outcome = UnionView | FloristError

#: Bytes of memory for a sorter without a limit.
UNLIMITED = 1 << 40


@dataclass(frozen=True)
class Pair:
    """How a run ended on each side."""

    active: Outcome
    passive: Outcome

    def views(self) -> tuple[UnionView, UnionView]:
        """Return both views of a run that must have succeeded."""
        for outcome in (self.active, self.passive):
            if isinstance(outcome, FloristError):
                raise outcome
        assert isinstance(self.active, UnionView)
        assert isinstance(self.passive, UnionView)
        return self.active, self.passive


def run_pair(
    group: Group,
    active_ids: Sequence[bytes],
    passive_ids: Sequence[bytes],
    links: tuple[Link, Link] | None = None,
    keys: tuple[Keys, Keys] | None = None,
    *,
    executors: tuple[Executor, Executor] | None = None,
    planted: int | PlantedPairs = 0,
    merging: RoleName | None = None,
) -> Pair:
    """Run both roles to the end, with these planted pairs, or this many.

    `merging` is the party that merges, by the merged protocol; None runs Algorithm 1.
    """
    active_link, passive_link = links or linked_pair()
    active_keys, passive_keys = keys or (Keys.fresh(group), Keys.fresh(group))
    active_executor, passive_executor = executors or (LocalExecutor(group), LocalExecutor(group))

    pairs = planted if isinstance(planted, PlantedPairs) else _fresh_pairs(planted)

    def active() -> Outcome:
        work = work_on(active_executor, active_ids, active_keys, len(passive_ids), pairs, merging)
        try:
            return run_side("active", active_link, work)
        except FloristError as error:
            return error

    def passive() -> Outcome:
        work = work_on(passive_executor, passive_ids, passive_keys, len(active_ids), pairs, merging)
        try:
            return run_side("passive", passive_link, work)
        except FloristError as error:
            return error

    with ThreadPoolExecutor(2) as both:
        first, second = both.submit(active), both.submit(passive)
        pair = Pair(first.result(timeout=100), second.result(timeout=100))
    active_link.close()
    passive_link.close()
    return pair


def _fresh_pairs(count: int) -> PlantedPairs:
    return PlantedPairs(count, secrets.token_bytes(32))


def run_side(role: RoleName, link: Link, work: UnionWork) -> UnionView:
    """Run one party's side, by the protocol that `work` names."""
    algorithm_1 = active_role.run_psu if role == "active" else passive_role.run_psu
    return run_union(role, algorithm_1, link, work, NoProgress(), "train")


def work_on(
    executor: Executor,
    ids: Sequence[bytes],
    keys: Keys,
    peer_size: int,
    pairs: PlantedPairs = NO_PAIRS,
    merging: RoleName | None = None,
) -> UnionWork:
    """Return a party's side of a union, in memory."""
    journal = Journal(MemoryStorage(), executor.group.width, b"")
    journal.begin_part(b"", peer_size)
    work = UnionWork(
        executor, keys, journal, frozenset(), UNLIMITED, planted=pairs, merging=merging
    )
    work.store_ids(executor.hashed([IdColumn.from_bytes(ids)]))
    return work
