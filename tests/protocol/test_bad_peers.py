"""Bad vectors: each violates a protocol in one way, and names the check that must detect it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from threading import Timer
from typing import TYPE_CHECKING

import numpy as np
import pytest

from florist.common.core.errors import PeerLost, ProtocolViolation
from florist.common.groups import make_group
from florist.common.psu import set_stream
from florist.common.psu.keys import Keys
from florist.common.psu.merged import exchanges as merged
from florist.common.psu.uid_hashes import UID_BYTES
from florist.common.psu.union_view import UnionView
from florist.common.storage.element_sets import sorted_set
from florist.common.storage.id_column import IdColumn
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import Goodbye, SetChunk, SetHeader, Step, UnionDigest
from florist.common.transport.recording import Direction, RecordingLink
from tests.support.parties import other
from tests.support.psu import run_pair
from tests.support.steps import sender
from tests.support.tampering import TamperingLink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from florist.common.core.roles import RoleName
    from florist.common.storage.elements import Elements
    from florist.common.transport.channel import Link
    from florist.common.transport.messages import Message
    from tests.support.tampering import Tamper

GROUP = make_group("x25519")
WIDTH = 32
ROWS = 8
P = 2**255 - 19

OURS = [f"a{i}".encode() for i in range(20)] + [b"bob", b"eve"]
THEIRS = [f"p{i}".encode() for i in range(30)] + [b"bob", b"eve"]

ALGORITHM_1 = tuple(step for step in Step if step < Step.ANCHORS or 100 < step < 120)
MERGED = (
    Step.MERGING_SET,
    Step.MERGING_SET_BACK,
    Step.COMPLETING_SET,
    Step.COMPLETING_SET_BACK,
    Step.MERGE,
    Step.REMAINDER,
    Step.UNION,
)
#: Steps whose sets have an order of their own.
IN_ORDER = frozenset(
    {
        *(step for step in ALGORITHM_1 if "HASHING" in step.name),
        Step.MERGING_SET,
        Step.MERGING_SET_BACK,
        Step.COMPLETING_SET_BACK,
    }
)
SHUFFLED = frozenset({*ALGORITHM_1, *MERGED}) - IN_ORDER
#: Steps of exchanges in which the originator waits for the answer's header before it sends chunks.
WAITING = IN_ORDER | {Step.COMPLETING_SET}
PROTOCOLS: tuple[RoleName | None, ...] = (None, "active", "passive")


def width_of(step: Step) -> int:
    return UID_BYTES if step is Step.UNION else WIDTH


@dataclass(frozen=True)
class Bad:
    """How the peer changes the messages of one step, and part of the error that this must cause."""

    name: str
    tamper: Callable[[Step], Tamper]
    says: str
    #: Steps at which both parties are left waiting, until the session's timeout.
    stalls: frozenset[Step] = frozenset()


def on_header(change: Callable[[SetHeader], Iterable[Message]]) -> Callable[[Step], Tamper]:
    return lambda step: (
        lambda message: (
            change(message)
            if isinstance(message, SetHeader) and message.step is step
            else [message]
        )
    )


def on_chunk(
    change: Callable[[SetChunk], Iterable[Message]], start: int = 0
) -> Callable[[Step], Tamper]:
    """Change the chunk of the step that starts there."""
    return lambda step: (
        lambda message: (
            change(message)
            if isinstance(message, SetChunk) and message.step is step and message.start == start
            else [message]
        )
    )


def on_set(change: Callable[[Elements], Elements]) -> Callable[[Step], Tamper]:
    """Change the whole set of the step, which keeps its size."""

    def tampering(step: Step) -> Tamper:
        width, counts, chunks = width_of(step), list[int](), list[bytes]()

        def tamper(message: Message) -> Iterable[Message]:
            if isinstance(message, SetHeader) and message.step is step:
                counts.append(message.count)
            if not isinstance(message, SetChunk) or message.step is not step:
                return [message]
            chunks.append(message.elements)
            whole = np.frombuffer(b"".join(chunks), np.uint8).reshape(-1, width)
            return in_messages(step, change(whole)) if len(whole) == counts[0] else []

        return tamper

    return tampering


def in_messages(step: Step, rows: Elements) -> Iterator[SetChunk]:
    """Yield the chunks of a set as an honest party sends them."""
    size = set_stream.rows_per_chunk(width_of(step))
    for start in range(0, len(rows), size):
        yield SetChunk(step, start, rows[start : start + size].tobytes())


def with_element(position: int, element: bytes) -> Callable[[SetChunk], Iterable[Message]]:
    def change(chunk: SetChunk) -> Iterable[Message]:
        width = width_of(chunk.step)
        elements = bytearray(chunk.elements)
        elements[position * width : (position + 1) * width] = element
        return [replace(chunk, elements=bytes(elements))]

    return change


def repeating_the_first(chunk: SetChunk) -> Iterable[Message]:
    return with_element(1, chunk.elements[: width_of(chunk.step)])(chunk)


def swapped(chunk: SetChunk) -> Iterable[Message]:
    rows = np.frombuffer(chunk.elements, np.uint8).reshape(-1, width_of(chunk.step))
    return [replace(chunk, elements=rows[::-1].tobytes())]


def raised_to_something_else(rows: Elements) -> Elements:
    return GROUP.power(rows, GROUP.random_exponent())


def a_twist_point() -> bytes:
    """Return a u that is not on the curve, and that comes first in a sorted set."""
    u = next(
        u
        for u in (k << 64 for k in range(1, 100))
        if pow(u**3 + 486662 * u * u + u, (P - 1) // 2, P) != 1
    )
    return u.to_bytes(WIDTH, "little")


def other_step(step: Step) -> Step:
    return next(other for other in Step if other is not step)


HEADERS = [
    Bad("header-omitted", on_header(lambda h: []), "SetHeader", stalls=WAITING),
    Bad("header-repeated", on_header(lambda h: [h, h]), "SetChunk"),
    Bad(
        "header-of-another-step",
        on_header(lambda h: [replace(h, step=other_step(h.step))]),
        "was expected",
    ),
    Bad("count-absurd", on_header(lambda h: [replace(h, count=2**62)]), "announces"),
]
COUNTS = [
    Bad("count-too-high", on_header(lambda h: [replace(h, count=h.count + 1)]), "announces"),
    Bad("count-too-low", on_header(lambda h: [replace(h, count=h.count - 1)]), "announces"),
]
#: Only the merging party knows how many elements are shared, so another remainder is possible.
COUNTS_OF_THE_REMAINDER = [
    Bad("count-too-high", on_header(lambda h: [replace(h, count=h.count + 1)]), "sent 4 elements"),
    Bad("count-too-low", on_header(lambda h: [replace(h, count=h.count - 1)]), "sent 4 elements"),
    Bad(
        "more-than-were-sent",
        on_header(lambda h: [replace(h, count=len(OURS) + 1)]),
        f"announces {len(OURS) + 1} elements, which is not between 0 and {len(OURS)}",
    ),
]
CHUNKS = [
    Bad("chunk-repeated", on_chunk(lambda c: [c, c]), "repeated"),
    Bad("chunk-omitted", on_chunk(lambda c: []), "left out"),
    Bad("chunk-moved", on_chunk(lambda c: [replace(c, start=ROWS)]), "out of order"),
    Bad("chunk-of-another-step", on_chunk(lambda c: [replace(c, step=other_step(c.step))]), "was"),
    Bad("chunk-cut-short", on_chunk(lambda c: [replace(c, elements=c.elements[:-1])]), "whole"),
    Bad("chunk-empty", on_chunk(lambda c: [replace(c, elements=b"")]), "whole"),
    Bad("chunk-lost-a-row", on_chunk(lambda c: [replace(c, elements=c.elements[:-32])]), "sent"),
    Bad("not-a-chunk", on_chunk(lambda c: [Goodbye()]), "SetChunk"),
    Bad("digest-instead-of-chunk", on_chunk(lambda c: [UnionDigest(1, b"x" * 32)]), "SetChunk"),
]
#: Each comes first in a sorted set, so that the order is right.
ELEMENTS = [
    Bad("off-the-curve", on_chunk(with_element(0, a_twist_point())), "not on the curve"),
    Bad("small-order", on_chunk(with_element(0, bytes(32))), "of low order"),
    Bad("not-canonical", on_chunk(with_element(0, bytes(31) + b"\x80")), "not reduced modulo p"),
]
ORDER = [
    Bad("not-shuffled", on_chunk(swapped), "shuffled"),
    Bad("duplicated-element", on_chunk(repeating_the_first), "distinct"),
]


def bad_vectors(step: Step) -> list[Bad]:
    """Return what a step's receiver must detect as it arrives."""
    counts = COUNTS_OF_THE_REMAINDER if step is Step.REMAINDER else COUNTS
    return [
        *HEADERS,
        *counts,
        *CHUNKS,
        *(ELEMENTS if step is not Step.UNION else ()),
        *(ORDER if step in SHUFFLED else ()),
    ]


#: Both parties can merge by the same code, so one vector of each kind will do for the second.
CASES: list[tuple[RoleName | None, Step, Bad]] = [
    *((None, step, bad) for step in ALGORITHM_1 for bad in bad_vectors(step)),
    *(("active", step, bad) for step in MERGED for bad in bad_vectors(step)),
    *(
        ("passive", step, bad)
        for step in MERGED
        for bad in bad_vectors(step)
        if bad.name in {"count-absurd", "chunk-omitted", "small-order", "duplicated-element"}
    ),
]


def named(case: tuple[RoleName | None, Step, Bad]) -> str:
    merging, step, bad = case
    return f"{bad.name}-in-{step.name.lower()}" + (f"-{merging}-merges" if merging else "")


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_stream, "CHUNK_BYTES", ROWS * WIDTH)


@dataclass(frozen=True)
class Outcome:
    """How the honest party ended, and what it has sent."""

    result: object
    sent: tuple[object, ...]

    def reason(self) -> str:
        """Return why it refused its peer, which it must have done."""
        assert isinstance(self.result, ProtocolViolation), "a wrong alignment was accepted"
        return str(self.result)

    def has_sent(self, step: Step) -> bool:
        return any(getattr(message, "step", None) is step for message in self.sent)


def outcome_of_honest_party(
    tamper: Tamper,
    bad: RoleName,
    merging: RoleName | None = None,
    *,
    planted: int = 0,
    keys: tuple[Keys, Keys] | None = None,
    timeout: float = 60.0,
    grace: float = 0.05,
) -> Outcome:
    """Run one honest and one tampering party; return how the honest one ends.

    After `timeout` seconds the honest link fails, as the session's would. If the other party fails
    first, the honest one notices it after `grace` seconds.
    """
    active, passive = linked_pair(grace=grace)
    honest = RecordingLink(passive if bad == "active" else active)
    tampering = TamperingLink(active if bad == "active" else passive, tamper)
    links: tuple[Link, Link] = (tampering, honest) if bad == "active" else (honest, tampering)
    watchdog = Timer(timeout, lambda: honest.fail(PeerLost("no progress")))
    watchdog.start()
    try:
        pair = run_pair(GROUP, OURS, THEIRS, links, keys, planted=planted, merging=merging)
    finally:
        watchdog.cancel()
    sent = (each.message for each in honest.records if each.direction is Direction.SENT)
    return Outcome(pair.passive if bad == "active" else pair.active, tuple(sent))


@pytest.mark.parametrize(("merging", "step", "bad"), CASES, ids=list(map(named, CASES)))
def test_a_bad_peer_is_detected_and_no_alignment_results(
    merging: RoleName | None, step: Step, bad: Bad
) -> None:
    outcome = outcome_of_honest_party(
        bad.tamper(step),
        sender(step, merging),
        merging,
        timeout=0.5 if step in bad.stalls else 60.0,
    )
    if step in bad.stalls:
        assert isinstance(outcome.result, PeerLost)
    else:
        assert bad.says in outcome.reason()


@pytest.mark.parametrize("merging", PROTOCOLS)
def test_a_different_union_at_the_peer_is_refused(merging: RoleName | None) -> None:
    def tamper(message: Message) -> Iterable[Message]:
        if isinstance(message, UnionDigest):
            return [replace(message, sha256=bytes(32))]
        return [message]

    outcome = outcome_of_honest_party(tamper, "passive", merging)
    assert "the parties have different unions" in outcome.reason()


# -- what is detected only at the end, or at another step ------------------------------------------


@pytest.mark.parametrize(
    ("merging", "step"),
    [
        (None, Step.ACTIVE_HASHING_BACK),
        (None, Step.PASSIVE_HASHING_BACK),
        ("active", Step.MERGING_SET_BACK),
        ("passive", Step.MERGING_SET_BACK),
        ("active", Step.MERGE),
        ("passive", Step.MERGE),
    ],
)
def test_uids_outside_the_union_are_refused(merging: RoleName | None, step: Step) -> None:
    """Valid elements with a wrong exponent: only the last check detects them."""

    def change(rows: Elements) -> Elements:
        raised = raised_to_something_else(rows)
        return sorted_set(raised) if step in SHUFFLED else raised

    outcome = outcome_of_honest_party(on_set(change)(step), sender(step, merging), merging)
    assert "an ID has no UID in the union" in outcome.reason()


@pytest.mark.parametrize(
    ("merging", "step", "says"),
    [
        (None, Step.ACTIVE_HASHING_BACK, "two IDs have the same UID"),
        (None, Step.PASSIVE_HASHING_BACK, "two IDs have the same UID"),
        ("active", Step.MERGING_SET, "'merging set': the peer's elements collide"),
        ("active", Step.MERGING_SET_BACK, "two IDs have the same UID"),
        ("active", Step.COMPLETING_SET_BACK, "elements of the union collide"),
        ("passive", Step.MERGING_SET, "'merging set': the peer's elements collide"),
        ("passive", Step.MERGING_SET_BACK, "two IDs have the same UID"),
        ("passive", Step.COMPLETING_SET_BACK, "elements of the union collide"),
    ],
)
def test_one_element_for_two_ids_is_refused(
    merging: RoleName | None, step: Step, says: str
) -> None:
    """Sets in order are not checked for repeats as they arrive, but before they are used."""
    tamper = on_chunk(repeating_the_first)(step)
    outcome = outcome_of_honest_party(tamper, sender(step, merging), merging)
    assert says in outcome.reason()


@pytest.mark.parametrize("merging", ["active", "passive"])
def test_hashes_that_are_not_those_of_the_union_are_refused(merging: RoleName) -> None:
    """Even if the completing party claims the same in its digest."""
    hashes = sorted_set(np.random.default_rng(1).integers(0, 256, (52, UID_BYTES), dtype=np.uint8))
    change_union = on_set(lambda rows: hashes[: len(rows)])(Step.UNION)

    def tamper(message: Message) -> Iterable[Message]:
        if isinstance(message, UnionDigest):
            return [replace(message, sha256=hashlib.sha256(hashes.tobytes()).digest())]
        return change_union(message)

    # The code of the completing party itself refuses the answer to its digest.
    outcome = outcome_of_honest_party(tamper, other(merging), merging, grace=60.0)
    assert "an ID has no UID in the union" in outcome.reason()


def test_a_remainder_that_is_too_small_is_refused() -> None:
    """The merging party sent 32 elements, and at most the 22 of the other can be shared."""
    for count, says in ((9, "announces 9 elements, which is not between 10 and 32"), (10, "sent")):
        tamper = on_header(lambda h, count=count: [replace(h, count=count)])(Step.REMAINDER)  # type: ignore[misc]
        outcome = outcome_of_honest_party(tamper, "passive", "passive")
        assert says in outcome.reason()


@pytest.mark.parametrize("merging", ["active", "passive"])
def test_a_remainder_with_shared_elements_is_refused(
    merging: RoleName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are also among the completing party's own."""
    monkeypatch.setattr(merged, "difference_of", lambda first, _second, _width: first)
    outcome = outcome_of_honest_party(lambda message: [message], merging, merging)
    assert "elements of the union collide" in outcome.reason()


@pytest.mark.parametrize("merging", ["active", "passive"])
@pytest.mark.parametrize("step", [Step.COMPLETING_SET_BACK, Step.REMAINDER])
def test_elements_of_one_kind_with_a_wrong_exponent_are_refused(
    merging: RoleName, step: Step
) -> None:
    """Only planted pairs detect this, before the union is sent."""

    def change(rows: Elements) -> Elements:
        raised = raised_to_something_else(rows)
        return sorted_set(raised) if step in SHUFFLED else raised

    outcome = outcome_of_honest_party(on_set(change)(step), merging, merging, planted=1)
    assert "the check of planted pairs failed" in outcome.reason()
    assert not outcome.has_sent(Step.UNION)


# -- the anchors of planted pairs ------------------------------------------------------------------

ANCHORS = 20
A_VALID_ELEMENT = GROUP.power(
    GROUP.hash_ids(IdColumn.from_bytes([b"nobody"])), GROUP.random_exponent()
).tobytes()

BAD_ANCHORS = [
    *CHUNKS,
    *ELEMENTS,
    Bad("none", lambda _step: without_anchors, "SetChunk"),
    Bad("too-few", on_chunk(lambda c: [], 2 * ROWS), "SetChunk"),
    Bad(
        "too-many",
        on_chunk(lambda c: [c, replace(c, start=ANCHORS)], 2 * ROWS),
        "SetHeader",
    ),
    Bad("repeated", on_chunk(repeating_the_first), "the peer's elements collide"),
    Bad("something-else", on_chunk(with_element(0, A_VALID_ELEMENT)), "check of planted pairs"),
]


def without_anchors(message: Message) -> Iterable[Message]:
    is_one = isinstance(message, SetChunk) and message.step is Step.ANCHORS
    return [] if is_one else [message]


@pytest.mark.parametrize("merging", PROTOCOLS)
@pytest.mark.parametrize("bad", BAD_ANCHORS, ids=lambda bad: bad.name)
def test_bad_anchors_are_refused(merging: RoleName | None, bad: Bad) -> None:
    tamper = bad.tamper(Step.ANCHORS)
    bad_role = sender(Step.ANCHORS, merging)
    outcome = outcome_of_honest_party(tamper, bad_role, merging, planted=ANCHORS)
    assert bad.says in outcome.reason()
    assert not outcome.has_sent(Step.UNION)
    assert not outcome.has_sent(Step.SECOND_ROUND_BACK)


@pytest.mark.parametrize("merging", PROTOCOLS)
def test_an_anchor_that_is_one_of_the_peers_own_is_refused(merging: RoleName | None) -> None:
    """Its own elements are related to each other, but not by the secret that blinds anchors."""
    keys = Keys.fresh(GROUP), Keys.fresh(GROUP)
    ids, exponent = (THEIRS, keys[1].first) if merging == "passive" else (OURS, keys[0].first)
    own = GROUP.power(GROUP.hash_ids(IdColumn.from_bytes(ids[:1])), exponent).tobytes()
    tamper = on_chunk(with_element(0, own))(Step.ANCHORS)
    outcome = outcome_of_honest_party(
        tamper, merging or "active", merging, planted=ANCHORS, keys=keys
    )
    assert "check of planted pairs" in outcome.reason()


def test_an_honest_party_is_accepted() -> None:
    """The same runs without a change succeed, so that the errors above are those of the change."""
    for merging in PROTOCOLS:
        for planted in (0, ANCHORS):
            same = outcome_of_honest_party(lambda m: [m], "active", merging, planted=planted)
            assert isinstance(same.result, UnionView)
