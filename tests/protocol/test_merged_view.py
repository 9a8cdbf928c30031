"""The views of both parties by the merged protocol, against their simulators.

By the simulators, all that a party receives looks like random elements, except for the sizes and
for one thing: raised to its own exponent, the completing party's set tells the merging party which
elements of the merge are shared, without names. Where no set is sorted, it is in the order of
another set, and its elements cannot be told from random ones.

The merging party `a, c` sends `u`, `w` and the remainder; the completing party `b, d` sends `u'`,
`v`, `e` and the hashes of the union.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pytest

from florist.common.groups import make_group
from florist.common.psu import set_stream
from florist.common.psu.uid_hashes import UID_BYTES, uid_hashes
from florist.common.storage.element_sets import find_rows, sorted_set
from florist.common.transport.messages import Step
from tests.protocol.test_view import (
    OURS,
    SHARED,
    THEIRS,
    Transcript,
    common_elements,
    correlation,
    raised,
    record_run,
)

if TYPE_CHECKING:
    from florist.common.core.roles import RoleName
    from florist.common.groups.group import Exponent
    from florist.common.psu.keys import Keys
    from florist.common.storage.elements import Elements

GROUP = make_group("x25519")
ROWS = 128
UNION = len({*OURS, *THEIRS})
SORTED = (Step.COMPLETING_SET, Step.MERGE, Step.REMAINDER, Step.UNION)
#: The sets that a party receives; it knows all about those that it sends.
RECEIVED_BY_MERGING = (Step.MERGING_SET_BACK, Step.COMPLETING_SET, Step.MERGE)
RECEIVED_BY_COMPLETING = (Step.MERGING_SET, Step.COMPLETING_SET_BACK, Step.REMAINDER)


@dataclass(frozen=True)
class Run:
    """A recorded run, with names for who did what."""

    transcript: Transcript
    merging: RoleName
    planted: int

    @property
    def sets(self) -> dict[Step, Elements]:
        """All sets but the hashes, which have another width."""
        return {step: rows for step, rows in self.transcript.sets.items() if step is not Step.UNION}

    @property
    def hashes(self) -> Elements:
        return self.transcript.sets[Step.UNION]

    @property
    def keys(self) -> tuple[Keys, Keys]:
        """The keys of the merging and of the completing party."""
        active, passive = self.transcript.active, self.transcript.passive
        return (active, passive) if self.merging == "active" else (passive, active)

    @property
    def own(self) -> list[bytes]:
        """The IDs of the merging party."""
        return OURS if self.merging == "active" else THEIRS

    @property
    def peer(self) -> list[bytes]:
        return THEIRS if self.merging == "active" else OURS

    def exponents(self, step: Step) -> tuple[Exponent, ...]:
        """Return those of the elements of a set; of the union, before they are hashed."""
        (a, c), (b, d) = ((keys.first, keys.second) for keys in self.keys)
        return {
            Step.ANCHORS: (a,),
            Step.MERGING_SET: (a,),
            Step.MERGING_SET_BACK: (a, b, d),
            Step.COMPLETING_SET: (b,),
            Step.COMPLETING_SET_BACK: (b, a, c),
            Step.MERGE: (a, b),
            Step.REMAINDER: (a, b, c),
            Step.UNION: (a, b, c, d),
        }[step]

    def path(self, step: Step, ids: list[bytes]) -> Elements:
        """Return `ids` as they appear in the set of that step, if they are in it."""
        elements = raised(ids, *self.exponents(step))
        return uid_hashes(elements) if step is Step.UNION else elements

    def sizes(self) -> dict[Step, int]:
        """Return the expected sizes."""
        own, peer, k = len(self.own), len(self.peer), self.planted
        return {
            Step.MERGING_SET: own,
            Step.MERGING_SET_BACK: own,
            Step.COMPLETING_SET: peer + k,
            Step.COMPLETING_SET_BACK: peer + k,
            Step.MERGE: own + 2 * k,
            Step.REMAINDER: own + k - len(SHARED),
            Step.UNION: UNION + 2 * k,
        }


RUNS: list[tuple[RoleName, int]] = [("active", 0), ("active", 40), ("passive", 40)]


@pytest.fixture(scope="module", params=RUNS, ids=[f"{m}-merges-{k}-planted" for m, k in RUNS])
def run(request: pytest.FixtureRequest) -> Run:
    merging, planted = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(set_stream, "CHUNK_BYTES", ROWS * GROUP.width)
        return Run(record_run(merging, planted), merging, planted)


def test_every_set_is_sent_with_its_announced_size(run: Run) -> None:
    sizes = run.sizes()
    assert run.transcript.headers == sizes
    if run.planted:
        sizes[Step.ANCHORS] = run.planted
    assert {step: len(rows) for step, rows in run.transcript.sets.items()} == sizes


def test_elements_of_a_set_are_distinct(run: Run) -> None:
    for step, rows in run.transcript.sets.items():
        assert len(np.unique(rows, axis=0)) == len(rows), step


def test_no_element_is_in_two_sets(run: Run) -> None:
    for first, second in combinations(run.sets, 2):
        assert common_elements(run.sets[first], run.sets[second]) == 0, (first, second)


def test_the_merging_party_finds_the_shared_elements_and_nothing_else(run: Run) -> None:
    """With its keys it can compare the merge with the completing party's elements, raised to `a`.

    Those are the shared ones and the anchors: the size is revealed by design. No product of its
    exponents makes an element of any other set that it receives one of another.
    """
    merging, _ = run.keys
    merge, theirs = run.sets[Step.MERGE], run.sets[Step.COMPLETING_SET]
    found = GROUP.power(theirs, merging.first)
    in_both = found[find_rows(merge, found) >= 0]
    assert len(in_both) == len(SHARED) + run.planted
    shared = run.path(Step.MERGE, SHARED)
    assert common_elements(in_both, shared) == len(SHARED)
    remainder = run.sets[Step.REMAINDER]
    assert common_elements(remainder, GROUP.power(in_both, merging.second)) == 0
    left = merge[find_rows(sorted_set(in_both), merge) < 0]
    assert np.array_equal(sorted_set(GROUP.power(left, merging.second)), remainder)

    allowed = {(Step.COMPLETING_SET, Step.MERGE): len(in_both)}
    assert matches(run, RECEIVED_BY_MERGING, merging) == allowed


def test_the_completing_party_finds_its_planted_pairs_and_nothing_else(run: Run) -> None:
    _, completing = run.keys
    pairs = {(Step.COMPLETING_SET_BACK, Step.REMAINDER): run.planted} if run.planted else {}
    assert matches(run, RECEIVED_BY_COMPLETING, completing) == pairs


def matches(run: Run, steps: tuple[Step, ...], keys: Keys) -> dict[tuple[Step, Step], int]:
    """Return how many elements of one set are in another if raised by someone with these keys."""
    exponents = [(keys.first,), (keys.second,), (keys.first, keys.second)]
    found: dict[tuple[Step, Step], int] = {}
    for power in (GROUP.product(*each) for each in exponents):
        for first in steps:
            elements = GROUP.power(run.sets[first], power)
            for second in steps:
                if count := common_elements(run.sets[second], elements):
                    found[first, second] = found.get((first, second), 0) + count
    return found


def test_chunk_boundaries_depend_on_the_count_alone(run: Run) -> None:
    for step, rows in run.transcript.chunk_rows.items():
        size = ROWS * GROUP.width // UID_BYTES if step is Step.UNION else ROWS
        full, rest = divmod(sum(rows), size)
        assert rows == [size] * full + ([rest] if rest else [])


@pytest.mark.parametrize("whose", ["merging", "completing"])
def test_no_order_survives_sorting(run: Run, whose: str) -> None:
    """The index of each ID in each sorted set, against its row and against every other set."""
    ids = run.own if whose == "merging" else run.peer
    orders = {"rows": np.arange(len(ids))}
    for step in SORTED:
        rows = run.transcript.sets[step]
        assert np.array_equal(sorted_set(rows), rows), "the set is not sorted as a whole"
        found = find_rows(rows, run.path(step, ids))
        if np.all(found >= 0):
            orders[step.name] = found
    expected = {Step.MERGE, Step.UNION} if whose == "merging" else {Step.COMPLETING_SET, Step.UNION}
    assert set(orders) == {"rows", *(step.name for step in expected)}
    for (_, first), (_, second) in combinations(orders.items(), 2):
        assert abs(correlation(first, second)) < 5 / np.sqrt(len(ids))


def test_no_order_survives_sorting_in_the_remainder(run: Run) -> None:
    ids = [each for each in run.own if each not in set(SHARED)]
    orders = [np.arange(len(ids))]
    for step in (Step.MERGE, Step.REMAINDER, Step.UNION):
        found = find_rows(run.transcript.sets[step], run.path(step, ids))
        assert np.all(found >= 0)
        orders.append(found)
    for first, second in combinations(orders, 2):
        assert abs(correlation(first, second)) < 5 / np.sqrt(len(ids))


def test_the_merging_partys_set_is_in_row_order_and_returns_in_it(run: Run) -> None:
    for step in (Step.MERGING_SET, Step.MERGING_SET_BACK):
        assert np.array_equal(run.sets[step], run.path(step, run.own)), step


def test_the_completing_partys_set_returns_in_the_order_in_which_it_was_sent(run: Run) -> None:
    """That order is not the one of its rows, which would show which rows are shared."""
    (a, c) = run.keys[0].first, run.keys[0].second
    sent, returned = run.sets[Step.COMPLETING_SET], run.sets[Step.COMPLETING_SET_BACK]
    assert np.array_equal(GROUP.power(sent, GROUP.product(a, c)), returned)
    assert common_elements(sent, run.path(Step.COMPLETING_SET, run.peer)) == len(run.peer)


def test_the_union_is_sent_as_hashes_of_its_elements(run: Run) -> None:
    expected = run.path(Step.UNION, sorted({*run.own, *run.peer}))
    planted = run.hashes[find_rows(sorted_set(expected), run.hashes) < 0]
    assert common_elements(run.hashes, expected) == UNION
    assert len(planted) == 2 * run.planted


def test_the_merging_partys_elements_cannot_be_matched_to_the_union_without_its_key(
    run: Run,
) -> None:
    """The completing party sees `v`, in row order, and the union: hashes of `v^c`."""
    (_, c), (_, d) = ((keys.first, keys.second) for keys in run.keys)
    v = run.sets[Step.MERGING_SET_BACK]
    assert common_elements(run.hashes, uid_hashes(GROUP.power(v, c))) == len(run.own)
    for elements in (v, GROUP.power(v, d), run.sets[Step.MERGING_SET]):
        assert common_elements(run.hashes, uid_hashes(elements)) == 0


def test_the_anchors_are_raised_as_the_merging_partys_own(run: Run) -> None:
    """They are sent by name, and look like no element of any set, the merge included."""
    if not run.planted:
        assert Step.ANCHORS not in run.sets
        return
    (a, _), (b, d) = ((keys.first, keys.second) for keys in run.keys)
    # The completing party blinds them before it uses them.
    anchors = GROUP.power(run.sets[Step.ANCHORS], run.keys[1].planting)
    for exponents in ((b,), (b, d)):
        planted = GROUP.power(anchors, GROUP.product(*exponents))
        assert common_elements(run.sets[Step.MERGE], planted) == run.planted
    sent = GROUP.power(run.sets[Step.COMPLETING_SET], a)
    assert common_elements(sent, GROUP.power(anchors, b)) == run.planted


def test_two_runs_have_nothing_in_common(run: Run) -> None:
    again = Run(record_run(run.merging, run.planted), run.merging, run.planted)
    assert common_elements(run.hashes, again.hashes) == 0
    for first in run.sets.values():
        for second in again.sets.values():
            assert common_elements(first, second) == 0


def test_no_id_is_sent_in_the_clear(run: Run) -> None:
    for rows in run.transcript.sets.values():
        sent = rows.tobytes()
        for identifier in (*OURS[:50], *SHARED[:50], *THEIRS[-50:]):
            assert identifier not in sent
