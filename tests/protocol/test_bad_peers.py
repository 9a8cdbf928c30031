"""Bad vectors: each violates Algorithm 1 in one way, and names the check that must detect it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import Timer
from typing import TYPE_CHECKING

import numpy as np
import pytest

from florist.common.core.errors import PeerLost, ProtocolViolation
from florist.common.groups import make_group
from florist.common.psu import set_stream
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import Goodbye, SetChunk, SetHeader, Step, UnionDigest
from tests.support.psu import run_pair
from tests.support.tampering import TamperingLink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from florist.common.transport.messages import Message
    from tests.support.tampering import Tamper

GROUP = make_group("x25519")
WIDTH = 32
ROWS = 8
P = 2**255 - 19

OURS = [f"a{i}".encode() for i in range(20)] + [b"bob", b"eve"]
THEIRS = [f"p{i}".encode() for i in range(30)] + [b"bob", b"eve"]

FROM_PASSIVE = (
    Step.ACTIVE_FIRST_ROUND_BACK,
    Step.PASSIVE_FIRST_ROUND,
    Step.SECOND_ROUND_BACK,
    Step.ACTIVE_HASHING_BACK,
    Step.PASSIVE_HASHING,
)
FROM_ACTIVE = (
    Step.ACTIVE_FIRST_ROUND,
    Step.PASSIVE_FIRST_ROUND_BACK,
    Step.SECOND_ROUND,
    Step.ACTIVE_HASHING,
    Step.PASSIVE_HASHING_BACK,
)
SHUFFLED = frozenset(step for step in Step if "HASHING" not in step.name)
IN_ORDER = frozenset(Step) - SHUFFLED
OUT = frozenset(step for step in Step if not step.name.endswith("BACK"))


@dataclass(frozen=True)
class Bad:
    """How the peer changes the messages of one step, and part of the error that this must cause."""

    name: str
    tamper: Callable[[Step], Tamper]
    says: str
    #: Steps at which both parties are left waiting, until the session's timeout.
    stalls: frozenset[Step] = frozenset()
    #: Steps at which the peer's own code may fail first.
    trips: frozenset[Step] = frozenset()


def on_header(change: Callable[[SetHeader], Iterable[Message]]) -> Callable[[Step], Tamper]:
    return lambda step: (
        lambda message: (
            change(message)
            if isinstance(message, SetHeader) and message.step is step
            else [message]
        )
    )


def on_chunk(
    change: Callable[[SetChunk], Iterable[Message]], which: int = 0
) -> Callable[[Step], Tamper]:
    """Change chunk number `which` of the step."""
    return lambda step: (
        lambda message: (
            change(message)
            if isinstance(message, SetChunk)
            and message.step is step
            and message.start == which * ROWS
            else [message]
        )
    )


def with_element(position: int, element: bytes) -> Callable[[SetChunk], Iterable[Message]]:
    def change(chunk: SetChunk) -> Iterable[Message]:
        elements = bytearray(chunk.elements)
        elements[position * WIDTH : (position + 1) * WIDTH] = element
        return [replace(chunk, elements=bytes(elements))]

    return change


def swapped(chunk: SetChunk) -> Iterable[Message]:
    rows = np.frombuffer(chunk.elements, np.uint8).reshape(-1, WIDTH)
    return [replace(chunk, elements=rows[::-1].tobytes())]


def a_twist_point() -> bytes:
    """Return the smallest u that is not on the curve."""
    u = next(u for u in range(2, 100) if pow(u**3 + 486662 * u * u + u, (P - 1) // 2, P) != 1)
    return u.to_bytes(WIDTH, "little")


def other_step(step: Step) -> Step:
    return next(other for other in Step if other is not step)


ANY_STEP = [
    Bad(
        "count-too-high",
        on_header(lambda h: [replace(h, count=h.count + 1)]),
        "announces",
        trips=IN_ORDER & OUT,
    ),
    Bad(
        "count-too-low",
        on_header(lambda h: [replace(h, count=h.count - 1)]),
        "announce",
        trips=IN_ORDER & OUT,
    ),
    Bad(
        "count-absurd",
        on_header(lambda h: [replace(h, count=2**62)]),
        "announces",
        trips=IN_ORDER & OUT,
    ),
    Bad("header-omitted", on_header(lambda h: []), "SetHeader", stalls=IN_ORDER),
    Bad("header-repeated", on_header(lambda h: [h, h]), "SetChunk"),
    Bad(
        "header-of-another-step",
        on_header(lambda h: [replace(h, step=other_step(h.step))]),
        "was expected",
    ),
    Bad("chunk-repeated", on_chunk(lambda c: [c, c]), "repeated"),
    Bad("chunk-omitted", on_chunk(lambda c: []), "left out"),
    Bad("chunk-moved", on_chunk(lambda c: [replace(c, start=ROWS)]), "out of order"),
    Bad("chunk-of-another-step", on_chunk(lambda c: [replace(c, step=other_step(c.step))]), "was"),
    Bad("chunk-cut-short", on_chunk(lambda c: [replace(c, elements=c.elements[:-1])]), "whole"),
    Bad("chunk-empty", on_chunk(lambda c: [replace(c, elements=b"")]), "whole"),
    Bad("chunk-lost-a-row", on_chunk(lambda c: [replace(c, elements=c.elements[:-32])]), ""),
    Bad("not-a-chunk", on_chunk(lambda c: [Goodbye()]), "SetChunk"),
    Bad("digest-instead-of-chunk", on_chunk(lambda c: [UnionDigest(1, b"x" * 32)]), "SetChunk"),
    Bad("off-the-curve", on_chunk(with_element(0, a_twist_point())), ""),
    Bad("small-order", on_chunk(with_element(0, bytes(32))), ""),
    Bad("not-canonical", on_chunk(with_element(7, (P + 9).to_bytes(32, "little")), 0), ""),
]
SHUFFLED_ONLY = [
    Bad("not-shuffled", on_chunk(swapped), "shuffled"),
    Bad(
        "duplicated-element",
        on_chunk(lambda c: with_element(1, c.elements[:WIDTH])(c)),
        "distinct",
    ),
]

CASES = [(bad, step) for bad in ANY_STEP for step in (*FROM_ACTIVE, *FROM_PASSIVE)] + [
    (bad, step)
    for bad in SHUFFLED_ONLY
    for step in (*FROM_ACTIVE, *FROM_PASSIVE)
    if step in SHUFFLED
]


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_stream, "CHUNK_BYTES", ROWS * WIDTH)


def outcome_of_honest_party(
    tamper: Tamper, *, bad_is_active: bool, timeout: float = 60.0
) -> object:
    """Run one honest and one tampering party; return how the honest one ends.

    After `timeout` seconds the honest link fails, as the session's would.
    """
    active_link, passive_link = linked_pair(grace=0.05)
    honest = passive_link if bad_is_active else active_link
    watchdog = Timer(timeout, lambda: honest.fail(PeerLost("no progress")))
    watchdog.start()
    try:
        if bad_is_active:
            pair = run_pair(GROUP, OURS, THEIRS, (TamperingLink(active_link, tamper), passive_link))
            return pair.passive
        pair = run_pair(GROUP, OURS, THEIRS, (active_link, TamperingLink(passive_link, tamper)))
        return pair.active
    finally:
        watchdog.cancel()


@pytest.mark.parametrize(
    ("bad", "step"), CASES, ids=[f"{bad.name}-in-{step.name.lower()}" for bad, step in CASES]
)
def test_a_bad_peer_is_detected_and_no_alignment_results(bad: Bad, step: Step) -> None:
    outcome = outcome_of_honest_party(
        bad.tamper(step),
        bad_is_active=step in FROM_ACTIVE,
        timeout=0.5 if step in bad.stalls else 60.0,
    )
    if step in bad.stalls:
        assert isinstance(outcome, PeerLost)
    elif step in bad.trips:
        assert isinstance(outcome, ProtocolViolation | PeerLost)
    else:
        assert isinstance(outcome, ProtocolViolation), "a wrong alignment was accepted"
        assert bad.says in str(outcome)


def test_a_different_union_at_the_peer_is_refused() -> None:
    def tamper(message: Message) -> Iterable[Message]:
        if isinstance(message, UnionDigest):
            return [replace(message, sha256=bytes(32))]
        return [message]

    outcome = outcome_of_honest_party(tamper, bad_is_active=False)
    assert isinstance(outcome, ProtocolViolation)
    assert "the parties have different unions" in str(outcome)


@pytest.mark.parametrize("step", [Step.ACTIVE_HASHING_BACK, Step.PASSIVE_HASHING_BACK])
def test_uids_outside_the_union_are_refused(step: Step) -> None:
    """Valid elements with a wrong exponent: only the last check detects them."""
    exponent = GROUP.random_exponent()

    def change(chunk: SetChunk) -> Iterable[Message]:
        rows = np.frombuffer(chunk.elements, np.uint8).reshape(-1, WIDTH)
        return [replace(chunk, elements=GROUP.power(rows, exponent).tobytes())]

    outcome = outcome_of_honest_party(on_chunk(change)(step), bad_is_active=step in FROM_ACTIVE)
    assert isinstance(outcome, ProtocolViolation)
    assert "an ID has no UID in the union" in str(outcome)


@pytest.mark.parametrize("step", [Step.ACTIVE_HASHING_BACK, Step.PASSIVE_HASHING_BACK])
def test_one_uid_for_two_ids_is_refused(step: Step) -> None:
    outcome = outcome_of_honest_party(
        on_chunk(lambda c: with_element(1, c.elements[:WIDTH])(c))(step),
        bad_is_active=step in FROM_ACTIVE,
    )
    assert isinstance(outcome, ProtocolViolation)
    assert "same UID" in str(outcome)
