"""An interrupted union resumes from what both parties have, under the same secrets."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from florist.common.core.errors import ConfigurationError, FloristError, PeerLost, ProtocolViolation
from florist.common.groups import make_group
from florist.common.psu import set_stream
from florist.common.psu.hashed_ids import DummyIds
from florist.common.psu.journal import set_name
from florist.common.psu.keys import CountDraws, Keys, OwnSecrets
from florist.common.psu.sealed_keys import (
    SecretsInMemory,
    UnionSecrets,
    new_sealing_key,
    seal,
    unseal,
)
from florist.common.psu.uid_hashes import UID_BYTES
from florist.common.psu.union_protocol import EXCHANGES
from florist.common.storage.element_sets import sorted_set
from florist.common.storage.files import FolderStorage
from florist.common.storage.id_column import IdColumn
from florist.common.transport.messages import (
    SetChunk,
    SetHeader,
    Step,
    UnionDigest,
    UnionOpening,
    UnionTerms,
)
from florist.common.transport.recording import Direction, RecordingLink
from tests.support.ideal_union import is_ideal
from tests.support.parties import other
from tests.support.steps import sender
from tests.support.tampering import TamperingLink
from tests.support.unions import CountingGroup, Side, attempt_both
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from florist.common.core.roles import RoleName
    from florist.common.transport.channel import Link
    from florist.common.transport.messages import Message
    from tests.support.tampering import Tamper

GROUP = make_group("x25519")
ROWS = 8
ACTIVE = [f"a{i}".encode() for i in range(20)] + [b"bob", b"eve"]
PASSIVE = [f"p{i}".encode() for i in range(30)] + [b"bob", b"eve"]
UNION = len({*ACTIVE, *PASSIVE})
SHARED = len(ACTIVE) + len(PASSIVE) - UNION
ROLES: tuple[RoleName, RoleName] = ("active", "passive")
#: Who merges, by the merged protocol; None is Algorithm 1.
PROTOCOLS: tuple[RoleName | None, ...] = (None, *ROLES)
by_every_protocol = pytest.mark.parametrize("merging", PROTOCOLS)

FIRST_ROUNDS = (Step.ACTIVE_FIRST_ROUND, Step.PASSIVE_FIRST_ROUND)
#: The exchanges of the merged protocol that others need, and that need no other.
BOTH_SETS = (Step.MERGING_SET, Step.COMPLETING_SET)


def steps_of(merging: RoleName | None) -> list[Step]:
    """Return the steps of a protocol, apart from the anchors."""
    exchanges = EXCHANGES["algorithm-1" if merging is None else "merged"]
    return [step for each in exchanges for step in (each.out, each.back) if step is not None]


def exchanges_of(merging: RoleName | None) -> set[Step]:
    """Return the first steps of all exchanges of a protocol."""
    return {each.out for each in EXCHANGES["algorithm-1" if merging is None else "merged"]}


def last_exchange(merging: RoleName | None) -> tuple[Step, tuple[Step, ...]]:
    """Return the first step of the last exchange, and the exchanges that it needs."""
    if merging is None:
        return Step.SECOND_ROUND, FIRST_ROUNDS
    return Step.UNION, (*BOTH_SETS, Step.MERGE)


def cost(merging: RoleName | None, planted: int = 0) -> dict[Step, int]:
    """Return the exponentiations of each exchange, summed over both parties."""
    if merging is None:
        assert not planted
        return {
            Step.ACTIVE_FIRST_ROUND: 2 * len(ACTIVE),
            Step.PASSIVE_FIRST_ROUND: 2 * len(PASSIVE),
            Step.SECOND_ROUND: 2 * UNION,
            Step.ACTIVE_HASHING: 3 * len(ACTIVE),
            Step.PASSIVE_HASHING: 3 * len(PASSIVE),
        }
    own, peer = len(ACTIVE), len(PASSIVE)
    if merging == "passive":
        own, peer = peer, own
    return {
        # The completing party also blinds the anchors: those that it receives, and its own.
        Step.MERGING_SET: 4 * own + 4 * planted,
        Step.COMPLETING_SET: 4 * peer + 5 * planted,
        Step.MERGE: 2 * (own - SHARED + planted),
        Step.UNION: planted,
    }


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_stream, "CHUNK_BYTES", ROWS * GROUP.width)


@dataclass
class Both:
    active: Side
    passive: Side

    def side(self, role: RoleName) -> Side:
        return self.active if role == "active" else self.passive

    def have_finished(self, *steps: Step) -> bool:
        """Whether both have recorded these exchanges as finished."""
        return all({*steps} <= {*side.journal().finished} for side in (self.active, self.passive))

    @property
    def raised(self) -> int:
        return self.active.group.raised + self.passive.group.raised


@pytest.fixture
def merging() -> RoleName | None:
    """Algorithm 1, where a test is not parametrised."""
    return None


@pytest.fixture
def both(tmp_path: Path, merging: RoleName | None) -> Both:
    active, passive = (
        Side(role, CountingGroup(GROUP), ids, FolderStorage(tmp_path / role), merging=merging)
        for role, ids in zip(ROLES, (ACTIVE, PASSIVE), strict=True)
    )
    return Both(active, passive)


def lost_at(
    message: type[Message],
    step: Step | None,
    start: int = 0,
    is_ready: Callable[[], bool] = lambda: True,
) -> Tamper:
    """Break the connection when this message is sent, once `is_ready`."""

    def tamper(sent: Message) -> Iterable[Message]:
        is_it = isinstance(sent, message) and step in (None, getattr(sent, "step", None))
        if is_it and getattr(sent, "start", start) == start:
            wait_until(is_ready, within=60)
            raise PeerLost("interrupted by the test")
        return [sent]

    return tamper


def interrupt(both: Both, tamper: Tamper, by: RoleName) -> None:
    """Run an attempt that `tamper` interrupts, on both sides."""

    def wrap(active: Link, passive: Link) -> tuple[Link, Link]:
        if by == "active":
            return TamperingLink(active, tamper), passive
        return active, TamperingLink(passive, tamper)

    pair = attempt_both(both.active, both.passive, wrap)
    assert isinstance(pair.active, FloristError)
    assert isinstance(pair.passive, FloristError)


def finish(both: Both, damaged: frozenset[Step] = frozenset()) -> frozenset[Step]:
    """Run an attempt that succeeds without redundant work; return the exchanges that it skipped.

    The stored sets of the `damaged` exchanges cannot be used.
    """
    before = [side.journal() for side in (both.active, both.passive)]
    pair = attempt_both(both.active, both.passive)
    active, passive = pair.views()
    assert is_ideal(ACTIVE, PASSIVE, active, passive)
    assert both.active.done == both.passive.done
    if both.active.done:
        assert both.active.done == {*before[0].finished} & {*before[1].finished} - damaged
    costs = cost(both.active.merging, both.active.planted)
    assert both.raised == sum(n for step, n in costs.items() if step not in both.active.done)
    return both.active.done


Moment = tuple["RoleName | None", "type[Message]", "Step | None", int]


def moments(merging: RoleName | None) -> list[Moment]:
    """Return the start and the middle of each step, and the end."""
    far = {Step.SECOND_ROUND: 5 * ROWS, Step.SECOND_ROUND_BACK: 5 * ROWS, Step.UNION: 4 * ROWS}
    return [
        *((merging, SetHeader, step, 0) for step in steps_of(merging)),
        *((merging, SetChunk, step, far.get(step, 2 * ROWS)) for step in steps_of(merging)),
        (merging, UnionDigest, None, 0),
    ]


MOMENTS = [moment for merging in PROTOCOLS for moment in moments(merging)]


def name_of(moment: Moment) -> str:
    merging, message, step, _ = moment
    name = f"{message.__name__}-{step.name.lower() if step else 'end'}"
    return name if merging is None else f"{name}-{merging}-merges"


def exchanges_before(merging: RoleName | None, step: Step | None) -> tuple[Step, ...]:
    """Return the exchanges that both parties complete before a step; None is the end."""
    if merging is None:
        if step is None:
            return (*FIRST_ROUNDS, Step.SECOND_ROUND)
        return FIRST_ROUNDS if "SECOND" in step.name else ()
    needed: dict[Step | None, tuple[Step, ...]] = {
        Step.MERGE: (Step.MERGING_SET,),
        Step.REMAINDER: BOTH_SETS,
        Step.UNION: (*BOTH_SETS, Step.MERGE),
        None: (*BOTH_SETS, Step.MERGE, Step.UNION),
    }
    return needed.get(step, ())


@pytest.mark.parametrize("death", ["nobody", "active", "passive"])
@pytest.mark.parametrize(
    ("merging", "message", "step", "start"), MOMENTS, ids=list(map(name_of, MOMENTS))
)
def test_both_resume_after_an_interruption(
    both: Both,
    merging: RoleName | None,
    message: type[Message],
    step: Step | None,
    start: int,
    death: str,
) -> None:
    """The connection is lost, or a party killed, at each exchange: at its start or mid-set."""
    by: RoleName = "active" if step is None else sender(step, merging)
    # One party may still be recording an exchange when the other starts the next.
    before = exchanges_before(merging, step)
    interrupt(both, lost_at(message, step, start, lambda: both.have_finished(*before)), by)
    token = both.active.secrets and both.active.secrets.token
    for role in ROLES:
        if role == death:
            both.side(role).die()
    done = finish(both)
    assert both.active.secrets is not None
    assert both.active.secrets.token == token, "it was started over"
    assert {*before} <= done
    if step is not None:
        (exchange,) = (each for each in both.active.exchanges if step in (each.out, each.back))
        assert exchange.out not in done, "an exchange that was not complete was skipped"


@by_every_protocol
def test_finished_exchanges_are_not_sent_again(both: Both, merging: RoleName | None) -> None:
    last, before = last_exchange(merging)
    is_ready = partial(both.have_finished, *before)
    interrupt(both, lost_at(SetHeader, last, is_ready=is_ready), sender(last, merging))
    links: list[RecordingLink] = []

    def wrap(active: Link, passive: Link) -> tuple[Link, Link]:
        links.append(RecordingLink(active))
        return links[0], passive

    attempt_both(both.active, both.passive, wrap).views()
    sets = (SetHeader, SetChunk)
    sent = {r.message.step for r in links[0].records if isinstance(r.message, sets)}
    assert {*before} <= both.active.done
    for exchange in both.active.exchanges:
        if exchange.out in both.active.done:
            assert not {exchange.out, exchange.back} & sent
    assert last in sent


INTERRUPTED_OFTEN: list[tuple[RoleName | None, tuple[Step, ...]]] = [
    (None, (Step.ACTIVE_FIRST_ROUND, Step.SECOND_ROUND, Step.SECOND_ROUND_BACK)),
    ("active", (Step.MERGING_SET, Step.COMPLETING_SET, Step.MERGE, Step.REMAINDER, Step.UNION)),
    ("passive", (Step.MERGING_SET_BACK, Step.REMAINDER, Step.UNION)),
]


@pytest.mark.parametrize(("merging", "steps"), INTERRUPTED_OFTEN)
def test_repeated_interruptions(
    both: Both, merging: RoleName | None, steps: tuple[Step, ...]
) -> None:
    for number, step in enumerate(steps):
        interrupt(both, lost_at(SetHeader, step), sender(step, merging))
        both.side(ROLES[(number + 1) % 2]).die()
    finish(both)


@by_every_protocol
def test_a_finished_party_lets_the_other_finish(both: Both, merging: RoleName | None) -> None:
    """One party has its result, and the other was killed before it saved its own."""
    for role in ROLES:
        attempt_both(both.active, both.passive).views()
        both.side(role).die()
        assert finish(both) == exchanges_of(merging)
        assert both.raised == 0


@by_every_protocol
def test_many_runs_on_disk_give_the_same_union(both: Both) -> None:
    """With memory for only a few rows, all sorting uses runs and merges."""
    for side in (both.active, both.passive):
        side.memory = 500
    finish(both)


@pytest.mark.parametrize("merging", ROLES)
@pytest.mark.parametrize("step", [*steps_of("active"), Step.ANCHORS, None])
def test_a_union_with_planted_pairs_resumes(
    both: Both, merging: RoleName, step: Step | None
) -> None:
    """The anchors are those of the token, and so the same in every attempt."""
    for side in (both.active, both.passive):
        side.planted = 3
    message = SetChunk if step is Step.ANCHORS else SetHeader if step else UnionDigest
    by = "active" if step is None else sender(step, merging)
    interrupt(both, lost_at(message, step), by)
    both.side(merging).die()
    finish(both)
    active, passive = attempt_both(both.active, both.passive).views()
    assert active.sizes.planted == passive.sizes.planted == 6


DAMAGED: list[tuple[RoleName | None, RoleName, Step]] = [
    (None, "active", Step.ACTIVE_FIRST_ROUND),
    (None, "passive", Step.ACTIVE_FIRST_ROUND),
    (None, "active", Step.SECOND_ROUND),
    (None, "passive", Step.PASSIVE_HASHING),
    # The merging party stores nothing of the merge.
    *(
        (merging, role, step)
        for merging in ROLES
        for role in ROLES
        for step in sorted(exchanges_of(merging))
        if (role, step) != (merging, Step.MERGE)
    ),
]


@pytest.mark.parametrize(("merging", "role", "step"), DAMAGED)
@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_an_exchange_whose_stored_set_is_damaged_is_repeated(
    both: Both, merging: RoleName | None, role: RoleName, step: Step, damage: str
) -> None:
    attempt_both(both.active, both.passive).views()
    storage = both.side(role).storage
    assert isinstance(storage, FolderStorage)
    path = storage.folder / set_name(step)
    content = path.read_bytes()
    match damage:
        case "changed":
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        case "cut":
            path.write_bytes(content[:-1])
        case "gone":
            path.unlink()
    assert finish(both, frozenset({step})) == exchanges_of(merging) - {step}
    assert path.read_bytes() == content


class FullOnce(FolderStorage):
    """A disk that is full when this file is first written."""

    name: str | None = None

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        if name == self.name:
            self.name = None
            with self.disk_errors(), open("/dev/full", "wb", buffering=0) as file:  # noqa: PTH123
                yield file
            return
        with super().writing(name) as file:
            yield file


#: The files that a party writes, and in which protocol.
FILES: list[tuple[RoleName | None, RoleName, str]] = [
    *(
        (None, role, name)
        for role in ROLES
        for name in ("ids", "step-3", "step-5", "step-8", "ranks")
    ),
    (None, "active", "step-11"),
    (None, "passive", "step-12"),
    *(
        (merging, role, name)
        for merging in ROLES
        for role in ROLES
        for name in ("ids", "step-21", "step-22", "step-23", "step-24", "ranks")
        if (role, name) != (merging, "step-23")  # it stores nothing of the merge
    ),
]


@pytest.mark.parametrize(("merging", "role", "name"), FILES)
def test_a_union_resumes_after_a_full_disk(
    both: Both, role: RoleName, name: str, tmp_path: Path
) -> None:
    storage = FullOnce(tmp_path / role)
    storage.name = name
    both.side(role).storage = storage
    pair = attempt_both(both.active, both.passive)
    outcome = pair.active if role == "active" else pair.passive
    assert isinstance(outcome, ConfigurationError)
    assert str(tmp_path / role) in str(outcome)
    assert "No space left" in str(outcome)
    assert both.active.secrets is not None
    token = both.active.secrets.token
    both.side(role).die()
    finish(both)
    assert both.active.secrets.token == token, "it was started over"


@by_every_protocol
@pytest.mark.parametrize("lost", ["both died", "journal", "ids", "sealed", "wrong key", "identity"])
def test_a_union_that_cannot_be_resumed_starts_over(
    both: Both, merging: RoleName | None, lost: str
) -> None:
    last, _ = last_exchange(merging)
    interrupt(both, lost_at(SetHeader, last), sender(last, merging))
    assert both.active.secrets is not None
    assert both.passive.secrets is not None
    old = both.active.secrets
    both.passive.die()
    storage = both.passive.storage
    assert isinstance(storage, FolderStorage)
    journal = storage.folder / "journal.json"
    match lost:
        case "both died":
            both.active.die()
        case "journal":
            journal.unlink()
        case "ids":
            (storage.folder / "ids").write_bytes(b"")
        case "sealed":
            sealed = both.passive.journal().sealed
            tampered = sealed[:-1] + bytes([sealed[-1] ^ 1])
            journal.write_text(journal.read_text().replace(sealed.hex(), tampered.hex()))
        case "wrong key":
            both.active.secrets = replace(old, peer_key=new_sealing_key())
        case "identity":
            text = journal.read_text()
            journal.write_text(re.sub('"identity":"..', '"identity":"00', text))
    assert finish(both) == frozenset()
    assert both.active.secrets.token != old.token
    for name in ("first", "second", "third"):
        assert getattr(both.active.secrets.keys, name) != getattr(old.keys, name)
    assert both.active.secrets.own.dummy_key != old.own.dummy_key


# --- a malicious peer ---


#: Valid elements that nobody has, sorted.
OTHERS = sorted_set(GROUP.hash_ids(IdColumn.from_bytes([b"other-%d" % i for i in range(80)])))


def replies_of(link: RecordingLink, step: Step) -> list[Message]:
    return [
        record.message
        for record in link.records
        if record.direction is Direction.SENT
        and isinstance(record.message, SetChunk)
        and record.message.step is step
    ]


#: The exchange that is repeated, and the party that sends different elements in it.
OTHER_ELEMENTS: list[tuple[RoleName | None, Step, RoleName]] = [
    (None, Step.ACTIVE_FIRST_ROUND, "active"),
    (None, Step.PASSIVE_FIRST_ROUND, "passive"),
    (None, Step.SECOND_ROUND, "active"),
    (None, Step.ACTIVE_HASHING, "active"),
    (None, Step.PASSIVE_HASHING, "passive"),
    # These change what comes back, which is raised again in a later step.
    (None, Step.ACTIVE_FIRST_ROUND, "passive"),
    (None, Step.PASSIVE_FIRST_ROUND, "active"),
    (None, Step.SECOND_ROUND, "passive"),
    *(
        (merging, step, liar)
        for merging in ROLES
        for liar in ROLES
        for step in (Step.MERGING_SET, Step.COMPLETING_SET, Step.MERGE)
    ),
    # A union in which another person is missing would tell by the outcome whether they are shared.
    ("active", Step.UNION, "passive"),
    ("passive", Step.UNION, "active"),
]


@pytest.mark.parametrize(("merging", "step", "liar"), OTHER_ELEMENTS)
def test_nothing_but_the_same_set_is_answered_again(both: Both, step: Step, liar: RoleName) -> None:
    """A peer that claims to have lost an exchange cannot get different elements raised."""
    attempt_both(both.active, both.passive).views()
    lie(both, step, liar)


@pytest.mark.parametrize("merging", ROLES)
def test_nothing_but_the_same_anchors_are_answered_again(both: Both, merging: RoleName) -> None:
    for side in (both.active, both.passive):
        side.planted = 3
    attempt_both(both.active, both.passive).views()
    assert "'anchors'" in lie(both, Step.MERGING_SET, merging)


@by_every_protocol
def test_nothing_counts_as_received_before_anything_was(both: Both) -> None:
    """Starting over is limited only after the peer has sent a set."""
    interrupt(both, lost_at(SetHeader, None), "active")
    received = both.passive.journal()._record.received  # type: ignore[union-attr]
    assert all(facts.count for facts in received.values())


def lie(both: Both, step: Step, liar: RoleName) -> str:
    """Repeat a complete exchange, in which a party sends other elements; return the refusal."""
    bad = both.side(liar)
    assert bad.secrets is not None
    bad.secrets = replace(bad.secrets, own=OwnSecrets.fresh(GROUP))  # same token, other elements
    links: list[RecordingLink] = []

    def tamper(sent: Message) -> Iterable[Message]:
        if isinstance(sent, UnionOpening):
            sent = replace(sent, finished=tuple(s for s in sent.finished if s != step))
        if isinstance(sent, SetChunk) and sent.step in (Step.MERGE, Step.UNION):
            # These are sent as they were stored.
            width = GROUP.width if sent.step is Step.MERGE else UID_BYTES
            rows = OTHERS[sent.start : sent.start + len(sent.elements) // width, :width]
            sent = replace(sent, elements=rows.tobytes())
        return [sent]

    def wrap(active: Link, passive: Link) -> tuple[Link, Link]:
        if liar == "active":
            links.append(RecordingLink(passive))
            return TamperingLink(active, tamper), links[0]
        links.append(RecordingLink(active))
        return links[0], TamperingLink(passive, tamper)

    _forget(bad.journal(), step)
    pair = attempt_both(both.active, both.passive, wrap)
    outcome = pair.passive if liar == "active" else pair.active
    assert isinstance(outcome, ProtocolViolation)
    assert "different elements before" in str(outcome)
    (exchange,) = (each for each in both.active.exchanges if each.out is step)
    if exchange.back is not None and sender(step, both.active.merging) == liar:
        assert replies_of(links[0], exchange.back) == [], "it was answered"
    return str(outcome)


def _forget(journal: object, step: Step) -> None:
    """Remove the record of an exchange, and of what was received, from a journal."""
    record = journal._record  # type: ignore[attr-defined]
    kept = {s: f for s, f in record.finished.items() if s != step}
    journal._save(record.model_copy(update={"finished": kept, "received": {}}))  # type: ignore[attr-defined]


#: Bytes that the journal keeps of each chunk: its digest, and a checksum of the record.
CHUNK_RECORD = 32 + 4

#: An exchange that is answered chunk by chunk, and the size of its set.
ANSWERED_AT_ONCE: list[tuple[RoleName | None, Step, int]] = [
    (None, Step.ACTIVE_HASHING, len(ACTIVE)),
    ("active", Step.MERGING_SET, len(ACTIVE)),
    ("active", Step.COMPLETING_SET, len(PASSIVE)),
    ("passive", Step.MERGING_SET, len(PASSIVE)),
    ("passive", Step.COMPLETING_SET, len(ACTIVE)),
]


@pytest.mark.parametrize(("merging", "step", "size"), ANSWERED_AT_ONCE)
def test_a_second_chunk_may_follow_the_first_but_not_change_it(
    both: Both, merging: RoleName | None, step: Step, size: int
) -> None:
    """After an interruption mid-set, what was answered cannot change; the rest can be sent."""
    by = sender(step, merging)
    interrupt(both, lost_at(SetChunk, step, 2 * ROWS), by)
    storage, name = both.side(other(by)).storage, f"{set_name(step)}.received"
    assert (storage.size(name) or 0) <= 2 * CHUNK_RECORD
    finish(both)
    assert storage.size(name) == -(-size // ROWS) * CHUNK_RECORD


@by_every_protocol
def test_a_changed_size_starts_over(both: Both, merging: RoleName | None) -> None:
    """A peer that now has more IDs gets no answers under the secrets of the old union."""
    last, _ = last_exchange(merging)
    interrupt(both, lost_at(SetHeader, last), sender(last, merging))
    assert both.active.secrets is not None
    old = both.active.secrets.token
    both.passive.ids = [*PASSIVE, b"more"]
    attempt_both(both.active, both.passive)
    assert both.active.secrets.token != old


@pytest.mark.parametrize(
    "change",
    [
        lambda o: replace(o, token=b"short"),
        lambda o: replace(o, kept_key=b"short"),
        lambda o: replace(o, finished=(3,)),
        lambda o: replace(o, token=b"x" * 32, finished=(4,)),
        lambda o: replace(o, token=b"x" * 32, finished=(3, 3)),
        lambda o: replace(o, token=b"x" * 32, finished=(21,)),
    ],
)
def test_an_inconsistent_opening_is_refused(both: Both, change: Tamper) -> None:
    def tamper(sent: Message) -> Iterable[Message]:
        return [change(sent) if isinstance(sent, UnionOpening) else sent]  # type: ignore[list-item]

    pair = attempt_both(both.active, both.passive, lambda a, p: (a, TamperingLink(p, tamper)))
    assert isinstance(pair.active, ProtocolViolation)
    assert "opening" in str(pair.active)


@pytest.mark.parametrize("merging", ROLES)
@pytest.mark.parametrize("finished", [(3,), (20,), (121,), (21, 21), (21, 22, 23, 24, 25)])
def test_an_opening_with_an_exchange_of_another_protocol_is_refused(
    both: Both, finished: tuple[int, ...]
) -> None:
    def tamper(sent: Message) -> Iterable[Message]:
        if isinstance(sent, UnionOpening):
            sent = replace(sent, token=b"x" * 32, finished=finished)
        return [sent]

    pair = attempt_both(both.active, both.passive, lambda a, p: (a, TamperingLink(p, tamper)))
    assert isinstance(pair.active, ProtocolViolation)
    assert "opening" in str(pair.active)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: replace(t, commitment=b""),
        lambda t: replace(t, sealing_key=b"short"),
        lambda t: replace(t, resume=True),
    ],
)
def test_inconsistent_terms_are_refused(both: Both, change: Tamper) -> None:
    def tamper(sent: Message) -> Iterable[Message]:
        return [change(sent) if isinstance(sent, UnionTerms) else sent]  # type: ignore[list-item]

    pair = attempt_both(both.active, both.passive, lambda a, p: (a, TamperingLink(p, tamper)))
    assert isinstance(pair.active, ProtocolViolation)
    assert "terms" in str(pair.active)


# --- the secrets ---


def test_only_the_key_opens_sealed_secrets() -> None:
    own, key, token = OwnSecrets.fresh(GROUP), new_sealing_key(), b"t" * 32
    sealed = seal(own, key, token)
    assert unseal(sealed, key, token) == own
    assert unseal(sealed, new_sealing_key(), token) is None
    assert unseal(sealed, key, b"u" * 32) is None
    assert unseal(sealed, b"", token) is None
    assert unseal(b"", key, token) is None
    for index in range(len(sealed)):
        changed = bytearray(sealed)
        changed[index] ^= 1
        assert unseal(bytes(changed), key, token) is None
    assert seal(own, key, token) != sealed


def test_secrets_sealed_by_an_earlier_release_are_not_unsealed() -> None:
    """Format 1 had no key of dummies, and the token alone was authenticated."""
    keys, key, token, nonce = Keys.fresh(GROUP), new_sealing_key(), b"t" * 32, b"n" * 12
    text = json.dumps([f"{int(each):x}" for each in (keys.first, keys.second, keys.third)])
    sealed = nonce + ChaCha20Poly1305(key).encrypt(nonce, text.encode(), token)
    assert unseal(sealed, key, token) is None


@by_every_protocol
def test_no_secret_is_on_disk(both: Both, tmp_path: Path, merging: RoleName | None) -> None:
    """Neither the exponents nor a key that decrypts them."""
    last, _ = last_exchange(merging)
    interrupt(both, lost_at(SetHeader, last), sender(last, merging))
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert len(written) > 1000
    for kept in (both.active.secrets, both.passive.secrets):
        assert kept is not None
        for exponent in map(int, (kept.keys.first, kept.keys.second, kept.keys.third)):
            for raw in (exponent.to_bytes(32, "little"), exponent.to_bytes(32, "big")):
                assert raw not in written
                assert raw.hex().encode() not in written
            assert str(exponent).encode() not in written
            assert f"{exponent:x}".encode() not in written
        for key in (kept.own_key, kept.peer_key, kept.own.dummy_key):
            assert key not in written
            assert key.hex().encode() not in written


def test_the_repr_of_secrets_has_none() -> None:
    memory = SecretsInMemory()
    own = OwnSecrets(Keys.fresh(GROUP), b"dummies", b"dummies", CountDraws(98765, (4321,)))
    kept = UnionSecrets(b"t" * 32, own, b"own-key", b"peers")
    memory.by_table["train"] = kept
    shown_dummies = repr(DummyIds(b"dummies", 98765))
    for shown in (repr(memory), repr(kept), str(kept), repr(own), repr(own.draws), shown_dummies):
        assert "4321" not in shown
        assert "own-key" not in shown
        assert "dummies" not in shown
        assert "98765" not in shown
        assert str(int(kept.keys.first)) not in shown
