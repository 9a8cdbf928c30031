"""Both parties of a union, each with several branches, in one process."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from florist.common.cluster.worker_group import Mailbox, WorkerGroup
from florist.common.core.errors import FloristError, as_florist_error
from florist.common.psu.executor import LocalExecutor
from florist.common.psu.journal import Journal
from florist.common.psu.keys import Keys
from florist.common.psu.partitions import blocks_dealt
from florist.common.psu.planted_pairs import PlantedPairs
from florist.common.psu.union_view import UnionView
from florist.common.psu.union_work import UnionWork
from florist.common.storage.id_column import IdColumn
from florist.common.transport.in_memory import linked_pair
from tests.support.memory_storage import MemoryStorage
from tests.support.psu import UNLIMITED, run_side

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from florist.common.core.roles import RoleName
    from florist.common.groups.group import Group
    from florist.common.session.union_sizes import UnionSizes
    from florist.common.storage.files import Storage
    from florist.common.transport.channel import Link


@dataclass(frozen=True)
class JoinedView:
    """The results of a party's branches, joined as those of a single process."""

    rank_of_own: npt.NDArray[np.int64]
    digest: bytes
    sizes: UnionSizes


def joined(outcomes: Sequence[UnionView | FloristError]) -> JoinedView:
    """Join the views of all branches, which must have succeeded."""
    for outcome in outcomes:
        if isinstance(outcome, FloristError):
            raise outcome
    views = [outcome for outcome in outcomes if isinstance(outcome, UnionView)]
    (sizes,) = {view.sizes for view in views}
    parts = [view.rank_of_own.tolist() for view in views]
    ranks: list[int] = []
    for branch, rows in blocks_dealt(sizes.own, len(views)):
        ranks += parts[branch][:rows]
        del parts[branch][:rows]
    assert not any(parts)
    digest = b"".join(view.digest for view in views)
    return JoinedView(np.array(ranks, dtype=np.int64), digest, sizes)


def dealt(ids: Sequence[bytes], count: int) -> list[list[bytes]]:
    """Return the IDs of each branch."""
    parts: list[list[bytes]] = [[] for _ in range(count)]
    start = 0
    for branch, rows in blocks_dealt(len(ids), count):
        parts[branch] += ids[start : start + rows]
        start += rows
    return parts


def run_branches(
    group: Group,
    ids: tuple[Sequence[bytes], Sequence[bytes]],
    count: int,
    *,
    memory: int = UNLIMITED,
    make_storage: Callable[[], Storage] = MemoryStorage,
    links: list[tuple[Link, Link]] | None = None,
    planted: int = 0,
    merging: RoleName | None = None,
) -> tuple[list[UnionView | FloristError], list[UnionView | FloristError]]:
    """Return how each branch of the active and of the passive party ended."""
    pairs = links or [linked_pair() for _ in range(count)]
    planted_pairs = PlantedPairs(planted, secrets.token_bytes(32))

    def start(pool: ThreadPoolExecutor, side: int) -> list[Callable[[], UnionView | FloristError]]:
        roles: tuple[RoleName, RoleName] = ("active", "passive")
        keys, peer_size = Keys.fresh(group), len(ids[1 - side])
        mailboxes = [Mailbox() for _ in range(count)]

        def branch(number: int, own: list[bytes]) -> UnionView | FloristError:
            link = pairs[number][side]

            def check() -> None:
                if link.failure is not None:
                    raise link.failure

            executor = LocalExecutor(group)
            journal = Journal(make_storage(), group.width, b"")
            journal.begin_part(b"", peer_size)
            workers = WorkerGroup(number, mailboxes[number], mailboxes, check)
            work = UnionWork(
                executor,
                keys,
                journal,
                frozenset(),
                memory,
                workers,
                planted=planted_pairs,
                merging=merging,
            )
            work.store_ids(executor.hashed([IdColumn.from_bytes(own)]))
            try:
                return run_side(roles[side], link, work)
            except FloristError as error:
                for mailbox in mailboxes:
                    mailbox.fail(as_florist_error(error))
                return error

        parts = dealt(ids[side], count)
        futures = [pool.submit(branch, number, part) for number, part in enumerate(parts)]
        return [lambda future=future: future.result(timeout=100) for future in futures]  # type: ignore[misc]

    with ThreadPoolExecutor(2 * count) as pool:
        active, passive = start(pool, 0), start(pool, 1)
        outcomes = [wait() for wait in active], [wait() for wait in passive]
    for pair in pairs:
        for link in pair:
            link.close()
    return outcomes
