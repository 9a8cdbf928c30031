"""The state of one union on our side: keys, journal, storage and limits for its exchanges."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.psu.journal import IDS, set_name
from florist.common.psu.partitions import SINGLE, share, value_cuts
from florist.common.psu.planted_pairs import NO_PAIRS
from florist.common.psu.shared_sorting import sorting_together
from florist.common.psu.sorted_streams import AscendingCheck
from florist.common.psu.stored_sets import SetFacts, StoredSet, writing_set
from florist.common.storage.external_sorter import sorting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

    from florist.common.core.roles import RoleName
    from florist.common.groups.group import Group
    from florist.common.psu.executor import Executor
    from florist.common.psu.journal import Journal
    from florist.common.psu.keys import Keys
    from florist.common.psu.partitions import Cuts, Partitions
    from florist.common.psu.planted_pairs import PlantedPairs
    from florist.common.psu.shared_sorting import SetSorter
    from florist.common.psu.stored_sets import ArrivingSet, ReadableSet, SetWriter
    from florist.common.storage.elements import Elements
    from florist.common.storage.external_sorter import Sorter
    from florist.common.transport.messages import Step


@dataclass(frozen=True, slots=True, eq=False)
class UnionWork:
    """One party's side of one union, or one partition of it."""

    executor: Executor
    keys: Keys
    journal: Journal
    #: The exchanges, by their first steps, that both parties have completed.
    done: frozenset[Step]
    #: Bytes of memory for each sorter; two may be in use at once.
    sorter_memory: int
    #: The processes among which the union is split.
    partitions: Partitions = SINGLE
    #: Our hashed IDs, if they are not completely stored yet.
    arriving: ArrivingSet | None = None
    planted: PlantedPairs = NO_PAIRS
    #: The party that merges, by the merged protocol; None for Algorithm 1.
    merging: RoleName | None = None

    @property
    def group(self) -> Group:
        return self.executor.group

    @property
    def ids(self) -> ReadableSet:
        """Our hashed IDs, dummies included, in row order."""
        ids = self.arriving or self.journal.ids
        assert ids is not None
        return ids

    @property
    def peer_size(self) -> int:
        """The size of the peer's whole set, as it announced."""
        return self.journal.peer_size

    @property
    def peer_share(self) -> int:
        """How many of the peer's elements in row order our partition receives."""
        return share(self.peer_size, self.partitions.number, self.partitions.count)

    def anchors(self) -> Elements:
        """Return the hashed anchors of planted pairs; the first partition handles all of them."""
        pairs = NO_PAIRS if self.partitions.number else self.planted
        return pairs.anchors(self.group)

    def blinded(self, anchors: Elements) -> Elements:
        """Raise anchors, ours or as the peer has raised them, so that the peer cannot know them."""
        return self.group.power(anchors, self.keys.planting)

    def total(self, label: str, number: int) -> int:
        """Return the sum of `number` over all partitions; use each label once."""
        return sum(self.partitions.all_to_all(label, [number] * self.partitions.count))

    def store_ids(self, chunks: Iterable[Elements]) -> None:
        """Store our hashed IDs."""
        with writing_set(self.journal.storage, IDS) as writer:
            for chunk in chunks:
                writer.append(chunk)
        self.journal.keep_ids(writer.tally.facts)

    def sorting(
        self, label: str, expected: int, width: int | None = None, cuts: Cuts | None = None
    ) -> AbstractContextManager[SetSorter]:
        """Return a sorter of about `expected` rows; by default of elements, by their values.

        With several partitions it sorts the rows of all of them, and yields those of our range.
        """
        storage, row = self.journal.storage, width or self.group.width

        def make(rows: int) -> AbstractContextManager[Sorter]:
            return sorting(storage, row, self.sorter_memory, rows, self.executor.sorted)

        if self.partitions.count == 1:
            return make(expected)
        ranges = value_cuts(self.partitions.count) if cuts is None else cuts
        return sorting_together(self.partitions, label, storage, row, ranges, make)

    def ascending_check(self) -> AscendingCheck:
        """Return a check that elements are sorted, distinct, and in our range."""
        ends = [0, *value_cuts(self.partitions.count).tolist(), 1 << 64]
        return AscendingCheck(ends[self.partitions.number], ends[self.partitions.number + 1])

    @contextmanager
    def storing(self, step: Step) -> Iterator[SetWriter]:
        """Write the set that the exchange starting with `step` stores, before it is finished."""
        with writing_set(self.journal.storage, set_name(step)) as writer:
            yield writer

    def finish(self, step: Step, facts: SetFacts, width: int | None = None) -> StoredSet:
        """Record that the exchange starting with `step` is finished; return its stored set.

        Its rows have `width` bytes; by default they are elements.
        """
        self.journal.finish(step, facts, width)
        return self.stored(step, facts, width)

    def stored(self, step: Step, facts: SetFacts, width: int | None = None) -> StoredSet:
        """Return the set that `storing` has written."""
        return StoredSet(self.journal.storage, set_name(step), width or self.group.width, facts)
