"""The view of a party, against the paper's simulators S_a and S_p, as far as it can be checked.

By the simulators, everything that a party receives looks like random elements, except for the sizes
and the intersection between steps 4 and 6. So: elements are distinct, no element is in two sets
except there, no order survives a shuffle, and two runs have nothing in common.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest

from florist.common.groups import make_group
from florist.common.psu import set_stream
from florist.common.psu.keys import Keys
from florist.common.storage.element_sets import find_rows, sorted_set
from florist.common.storage.id_column import IdColumn
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import SetChunk, SetHeader, Step
from florist.common.transport.recording import RecordingLink
from tests.support.psu import run_pair

if TYPE_CHECKING:
    from florist.common.groups.group import Exponent
    from florist.common.storage.elements import Elements

GROUP = make_group("x25519")
SHARED = [f"both-{i}".encode() for i in range(400)]
OURS = [f"active-{i}".encode() for i in range(600)] + SHARED
THEIRS = SHARED + [f"passive-{i}".encode() for i in range(900)]
SETS = {
    Step.ACTIVE_FIRST_ROUND: len(OURS),
    Step.ACTIVE_FIRST_ROUND_BACK: len(OURS),
    Step.PASSIVE_FIRST_ROUND: len(THEIRS),
    Step.PASSIVE_FIRST_ROUND_BACK: len(THEIRS),
    Step.SECOND_ROUND: 1900,
    Step.SECOND_ROUND_BACK: 1900,
    Step.ACTIVE_HASHING: len(OURS),
    Step.ACTIVE_HASHING_BACK: len(OURS),
    Step.PASSIVE_HASHING: len(THEIRS),
    Step.PASSIVE_HASHING_BACK: len(THEIRS),
}


@dataclass(frozen=True)
class Transcript:
    """Every set as it was sent, and the secrets behind it."""

    sets: dict[Step, Elements]
    headers: dict[Step, int]
    chunk_rows: dict[Step, list[int]]
    active: Keys
    passive: Keys

    def path(self, step: Step, ids: list[bytes]) -> Elements:
        """Return `ids` as they appear in the set of that step."""
        s, t = self.active, self.passive
        exponents: dict[Step, tuple[Exponent, ...]] = {
            Step.ACTIVE_FIRST_ROUND: (s.first,),
            Step.ACTIVE_FIRST_ROUND_BACK: (s.first, t.first),
            Step.PASSIVE_FIRST_ROUND: (t.first,),
            Step.PASSIVE_FIRST_ROUND_BACK: (t.first, s.first),
            Step.SECOND_ROUND: (s.first, t.first, s.second, s.third),
            Step.SECOND_ROUND_BACK: (s.first, t.first, s.second, s.third, t.second, t.third),
            Step.ACTIVE_HASHING: (s.second,),
            Step.ACTIVE_HASHING_BACK: (s.second, t.first, t.second, t.third),
            Step.PASSIVE_HASHING: (t.second,),
            Step.PASSIVE_HASHING_BACK: (t.second, s.first, s.second, s.third),
        }
        return GROUP.power(
            GROUP.hash_ids(IdColumn.from_bytes(ids)), GROUP.product(*exponents[step])
        )


def record_run() -> Transcript:
    keys = Keys.fresh(GROUP), Keys.fresh(GROUP)
    active_link, passive_link = linked_pair()
    recorded = RecordingLink(active_link)
    run_pair(GROUP, OURS, THEIRS, (recorded, passive_link), keys).views()
    chunks: dict[Step, list[bytes]] = {step: [] for step in Step}
    headers: dict[Step, int] = {}
    for record in recorded.records:
        match record.message:
            case SetHeader(step, count):
                headers[step] = count
            case SetChunk(step, _, elements):
                chunks[step].append(elements)
    return Transcript(
        {
            step: np.frombuffer(b"".join(parts), np.uint8).reshape(-1, GROUP.width)
            for step, parts in chunks.items()
        },
        headers,
        {step: [len(part) // GROUP.width for part in parts] for step, parts in chunks.items()},
        *keys,
    )


@pytest.fixture(scope="module")
def transcript() -> Transcript:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(set_stream, "CHUNK_BYTES", 128 * GROUP.width)
        return record_run()


def common_elements(a: Elements, b: Elements) -> int:
    return int(np.sum(find_rows(sorted_set(a), b) >= 0))


def correlation(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> float:
    """Spearman's correlation: Pearson's of the ranks."""
    return float(np.corrcoef(np.argsort(np.argsort(a)), np.argsort(np.argsort(b)))[0, 1])


def test_every_set_is_sent_with_its_announced_size(transcript: Transcript) -> None:
    assert transcript.headers == SETS
    assert {step: len(elements) for step, elements in transcript.sets.items()} == SETS


def test_elements_of_a_set_are_distinct(transcript: Transcript) -> None:
    for step, elements in transcript.sets.items():
        assert len(np.unique(elements, axis=0)) == len(elements), step


def test_no_element_is_in_two_sets_except_where_algorithm_1_says_so(transcript: Transcript) -> None:
    for first, second in combinations(Step, 2):
        in_common = common_elements(transcript.sets[first], transcript.sets[second])
        if (first, second) == (Step.ACTIVE_FIRST_ROUND_BACK, Step.PASSIVE_FIRST_ROUND_BACK):
            assert in_common == len(SHARED)  # the size is revealed by design
        else:
            assert in_common == 0, (first, second)


def test_chunk_boundaries_depend_on_the_count_alone(transcript: Transcript) -> None:
    for step, rows in transcript.chunk_rows.items():
        full, rest = divmod(SETS[step], 128)
        assert rows == [128] * full + ([rest] if rest else [])


@pytest.mark.parametrize("ids", [OURS, THEIRS], ids=["active", "passive"])
def test_no_order_survives_a_shuffle(transcript: Transcript, ids: list[bytes]) -> None:
    """The index of each ID in each set, against its row and against every other set."""
    orders = {"rows": np.arange(len(ids))}
    for step, elements in transcript.sets.items():
        if "HASHING" in step.name:
            continue  # in order by design; a party sees its own IDs here, or random elements
        order = sorted_set(elements)
        assert np.array_equal(order, elements), "the set is not shuffled as a whole"
        found = find_rows(order, transcript.path(step, ids))
        if np.all(found >= 0):
            orders[step.name] = found
    assert len(orders) == 5
    for (_, a), (_, b) in combinations(orders.items(), 2):
        assert abs(correlation(a, b)) < 5 / np.sqrt(len(ids))


def test_in_order_sets_cannot_be_matched_to_the_union(transcript: Transcript) -> None:
    """What the peer sees of steps 11 and 12 is in row order, but cannot be linked to the union."""
    for out in (Step.ACTIVE_HASHING, Step.PASSIVE_HASHING):
        for other in (Step.SECOND_ROUND, Step.SECOND_ROUND_BACK):
            assert common_elements(transcript.sets[out], transcript.sets[other]) == 0


def test_two_runs_have_nothing_in_common(transcript: Transcript) -> None:
    again = record_run()
    for first in Step:
        for second in Step:
            assert common_elements(transcript.sets[first], again.sets[second]) == 0


def test_no_id_is_sent_in_the_clear(transcript: Transcript) -> None:
    for elements in transcript.sets.values():
        sent = elements.tobytes()
        for identifier in (*OURS[:50], *SHARED[:50]):
            assert identifier not in sent
