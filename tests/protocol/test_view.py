"""The view of a party, against the paper's simulators S_a and S_p, as far as it can be checked.

By the simulators, everything that a party receives looks like random elements, except for the sizes
and the intersection between steps 4 and 6. So: elements are distinct, no element is in two sets
except there, no order survives a shuffle, and two runs have nothing in common.

`test_merged_view.py` has the same for the merged protocol.
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
from florist.common.psu.uid_hashes import UID_BYTES
from florist.common.storage.element_sets import find_rows, sorted_set
from florist.common.storage.id_column import IdColumn
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import SetChunk, SetHeader, Step
from florist.common.transport.recording import RecordingLink
from tests.support.psu import run_pair

if TYPE_CHECKING:
    from florist.common.core.roles import RoleName
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


def path(transcript: Transcript, step: Step, ids: list[bytes]) -> Elements:
    """Return `ids` as they appear in the set of that step."""
    s, t = transcript.active, transcript.passive
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
    return raised(ids, *exponents[step])


def raised(ids: list[bytes], *exponents: Exponent) -> Elements:
    """Return the hashed IDs, raised to these exponents."""
    hashed = GROUP.hash_ids(IdColumn.from_bytes(ids))
    return GROUP.power(hashed, GROUP.product(*exponents))


def record_run(merging: RoleName | None = None, planted: int = 0) -> Transcript:
    """Run a union and record all sets; those of hashes have shorter rows."""
    keys = Keys.fresh(GROUP), Keys.fresh(GROUP)
    active_link, passive_link = linked_pair()
    recorded = RecordingLink(active_link)
    links = recorded, passive_link
    run_pair(GROUP, OURS, THEIRS, links, keys, planted=planted, merging=merging).views()
    chunks: dict[Step, list[Elements]] = {}
    headers: dict[Step, int] = {}
    for record in recorded.records:
        match record.message:
            case SetHeader(step, count):
                headers[step] = count
            case SetChunk(step, _, elements):
                width = UID_BYTES if step is Step.UNION else GROUP.width
                rows = np.frombuffer(elements, np.uint8).reshape(-1, width)
                chunks.setdefault(step, []).append(rows)
    return Transcript(
        {step: np.concatenate(parts) for step, parts in chunks.items()},
        headers,
        {step: [len(part) for part in parts] for step, parts in chunks.items()},
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
    for first, second in combinations(SETS, 2):
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
        found = find_rows(order, path(transcript, step, ids))
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
    for first in SETS:
        for second in SETS:
            assert common_elements(transcript.sets[first], again.sets[second]) == 0


def test_no_id_is_sent_in_the_clear(transcript: Transcript) -> None:
    for elements in transcript.sets.values():
        sent = elements.tobytes()
        for identifier in (*OURS[:50], *SHARED[:50]):
            assert identifier not in sent
