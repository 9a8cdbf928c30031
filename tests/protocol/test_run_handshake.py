"""The handshake of a run: both parties get one schedule that neither chose, or one error."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Timer
from typing import TYPE_CHECKING, Any

import pytest

from florist.common.core.errors import (
    ConfigurationError,
    FloristError,
    PeerLost,
    ProtocolViolation,
)
from florist.common.session.nonces import commitment
from florist.common.training.run_handshake import (
    TRAINING,
    OpenedRun,
    ResumableRun,
    open_run,
    run_id,
)
from florist.common.training.schedule import joint_seed
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import Goodbye, NonceReveal, TrainingOpening
from florist.common.transport.recording import Direction, RecordingLink
from tests.support.tampering import TamperingLink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from florist.common.core.roles import RoleName
    from florist.common.transport.channel import Link
    from florist.common.transport.messages import Message
    from tests.support.tampering import Tamper

UNION = bytes(range(32))
SEED, ANOTHER_SEED = b"s" * 32, b"t" * 32

Outcome = OpenedRun | FloristError


@dataclass(frozen=True)
class Side:
    """What one party brings to the handshake."""

    have: ResumableRun | None = None
    union: bytes = UNION
    nonce: bytes | None = None


def resuming(*steps: int, seed: bytes = SEED) -> Side:
    return Side(have=ResumableRun(seed, steps) if steps else None)


def open_both(
    active: Side,
    passive: Side,
    links: tuple[Link, Link] | None = None,
) -> tuple[Outcome, Outcome]:
    def run(role: RoleName, link: Link, side: Side) -> Outcome:
        try:
            return open_run(
                link.channel(TRAINING),
                role,
                side.union,
                have=side.have,
                nonce=side.nonce,
            )
        except FloristError as error:
            link.fail(error)
            return error

    ours, theirs = links or linked_pair(grace=0.05)
    with ThreadPoolExecutor(2) as both:
        first = both.submit(run, "active", ours, active)
        second = both.submit(run, "passive", theirs, passive)
        return first.result(timeout=30), second.result(timeout=30)


# --- new runs ---


def test_both_parties_get_the_seed_from_both_nonces() -> None:
    ours, theirs = b"a" * 32, b"p" * 32
    first, second = open_both(Side(nonce=ours), Side(nonce=theirs))
    assert first == second == OpenedRun(joint_seed(ours, theirs, UNION), 0, resumed=False)


def test_nonces_are_fresh_unless_given() -> None:
    seeds = set()
    for _ in range(3):
        first, second = open_both(Side(), Side())
        assert isinstance(first, OpenedRun)
        assert first == second
        seeds.add(first.seed)
    assert len(seeds) == 3


def test_a_nonce_is_revealed_only_after_the_peers_commitment() -> None:
    """A party that saw the other's nonce first could choose the schedule."""
    ours, theirs = linked_pair()
    recorded = RecordingLink(ours), RecordingLink(theirs)
    open_both(Side(), Side(), recorded)
    for link in recorded:
        kinds = [(record.direction, type(record.message)) for record in link.records]
        assert kinds == [
            (Direction.SENT, TrainingOpening),
            (Direction.RECEIVED, TrainingOpening),
            (Direction.SENT, NonceReveal),
            (Direction.RECEIVED, NonceReveal),
        ]
        sent = [r.message for r in link.records if r.direction is Direction.SENT]
        assert isinstance(sent[0], TrainingOpening)
        assert isinstance(sent[1], NonceReveal)
        assert sent[0].commitment == commitment(sent[1].nonce)


def test_the_run_id_is_sent_and_the_seed_is_not() -> None:
    ours, theirs = linked_pair()
    recorded = RecordingLink(ours)
    open_both(resuming(0, 3), resuming(0, 3), (recorded, theirs))
    message = recorded.records[0].message
    assert isinstance(message, TrainingOpening)
    assert (message.run, message.steps) == (run_id(SEED), (0, 3))
    assert SEED not in run_id(SEED)


# --- resuming ---


@pytest.mark.parametrize(
    ("ours", "theirs", "step"),
    [
        ((0, 3, 6), (0, 3, 6), 6),
        ((0, 3, 6), (0, 3), 3),  # one was stopped before it wrote
        ((3,), (0, 3, 6), 3),
        ((6, 9), (3, 6), 6),
        ((0,), (0,), 0),
    ],
)
def test_both_resume_from_the_newest_common_step(
    ours: tuple[int, ...], theirs: tuple[int, ...], step: int
) -> None:
    expected = OpenedRun(SEED, step, resumed=True)
    assert open_both(resuming(*ours), resuming(*theirs)) == (expected, expected)


@pytest.mark.parametrize(
    ("active", "passive"),
    [
        (resuming(), resuming()),
        (resuming(0), resuming()),  # stopped between the two parties' first writes
        (resuming(), resuming(0)),
    ],
)
def test_both_start_over_if_no_step_was_made(active: Side, passive: Side) -> None:
    first, second = open_both(active, passive)
    assert isinstance(first, OpenedRun)
    assert first == second
    assert (first.first_step, first.resumed) == (0, False)
    assert first.seed not in (SEED, ANOTHER_SEED)


@pytest.mark.parametrize(
    ("active", "passive", "message"),
    [
        (resuming(3, 6), resuming(), "checkpoints"),
        (resuming(), resuming(3, 6), "checkpoints"),
        (resuming(6), resuming(3), "checkpoints"),
        (resuming(3, 6), resuming(3, 6, seed=ANOTHER_SEED), "checkpoints"),
        (resuming(0), resuming(3, 6, seed=ANOTHER_SEED), "checkpoints"),
        (resuming(0), resuming(0, seed=ANOTHER_SEED), "checkpoints"),
        (Side(), Side(union=bytes(32)), "alignments are of different runs"),
        (resuming(3), replace(resuming(3), union=bytes(32)), "alignments are of different runs"),
    ],
)
def test_incompatible_runs_are_refused_on_both_sides(
    active: Side, passive: Side, message: str
) -> None:
    """Starting over silently would delete the checkpoints of one of them."""
    for outcome in open_both(active, passive):
        assert isinstance(outcome, ConfigurationError)
        assert message in str(outcome)


# --- misbehaving peers ---


def on(kind: type[Message], change: Callable[[Any], Iterable[Message]]) -> Tamper:
    return lambda message: change(message) if isinstance(message, kind) else [message]


STALLS = "stalls"

BAD: dict[str, tuple[Tamper, str]] = {
    "another-nonce": (on(NonceReveal, lambda _: [NonceReveal(b"x" * 32)]), "committed"),
    "short-nonce": (on(NonceReveal, lambda _: [NonceReveal(b"x" * 31)]), "31 bytes"),
    "no-nonce": (on(NonceReveal, lambda _: [NonceReveal(b"")]), "0 bytes"),
    "no-commitment": (
        on(TrainingOpening, lambda m: [replace(m, commitment=b"")]),
        "committed",
    ),
    "nonce-first": (on(TrainingOpening, lambda _: [NonceReveal(bytes(32))]), "TrainingOpening"),
    "opening-twice": (on(TrainingOpening, lambda m: [m, m]), "NonceReveal"),
    "farewell-instead": (on(TrainingOpening, lambda _: [Goodbye()]), "Goodbye"),
    "opening-omitted": (on(TrainingOpening, lambda _: []), "TrainingOpening"),
    "nonce-omitted": (on(NonceReveal, lambda _: []), STALLS),
}


@pytest.mark.parametrize("bad_is_active", [True, False], ids=["active", "passive"])
@pytest.mark.parametrize("bad", BAD)
def test_a_misbehaving_peer_is_refused(bad: str, *, bad_is_active: bool) -> None:
    tamper, message = BAD[bad]
    ours, theirs = linked_pair(grace=0.05)
    honest = theirs if bad_is_active else ours
    watchdog = Timer(
        0.5 if message == STALLS else 20, lambda: honest.fail(PeerLost("the peer is silent"))
    )
    watchdog.start()
    links: tuple[Link, Link] = (
        (TamperingLink(ours, tamper), theirs)
        if bad_is_active
        else (ours, TamperingLink(theirs, tamper))
    )
    outcome = open_both(Side(), Side(), links)[int(bad_is_active)]
    watchdog.cancel()
    if message == STALLS:
        assert isinstance(outcome, PeerLost)
    else:
        assert isinstance(outcome, ProtocolViolation)
        assert message in str(outcome)


def test_a_peer_with_another_union_is_refused() -> None:
    ours, theirs = linked_pair(grace=0.05)
    lie = on(TrainingOpening, lambda m: [replace(m, union_sha256=bytes(32))])
    outcome, _ = open_both(Side(), Side(), (ours, TamperingLink(theirs, lie)))
    assert isinstance(outcome, ConfigurationError)
    assert "align again" in str(outcome)
