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
from florist.common.psu.keys import CountDraws, Keys, OwnSecrets
from florist.common.psu.sealed_keys import (
    SecretsInMemory,
    UnionSecrets,
    new_sealing_key,
    seal,
    unseal,
)
from florist.common.storage.files import FolderStorage
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
from tests.support.tampering import TamperingLink
from tests.support.unions import EXCHANGES, CountingGroup, Side, attempt_both
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
#: Exponentiations of each exchange, summed over both parties.
COST = {
    Step.ACTIVE_FIRST_ROUND: 2 * len(ACTIVE),
    Step.PASSIVE_FIRST_ROUND: 2 * len(PASSIVE),
    Step.SECOND_ROUND: 2 * UNION,
    Step.ACTIVE_HASHING: 3 * len(ACTIVE),
    Step.PASSIVE_HASHING: 3 * len(PASSIVE),
}
ROLES: tuple[RoleName, RoleName] = ("active", "passive")
FROM_ACTIVE = {3, 6, 8, 11, 112}
FIRST_ROUNDS = (Step.ACTIVE_FIRST_ROUND, Step.PASSIVE_FIRST_ROUND)


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
def both(tmp_path: Path) -> Both:
    return Both(
        Side("active", CountingGroup(GROUP), ACTIVE, FolderStorage(tmp_path / "active")),
        Side("passive", CountingGroup(GROUP), PASSIVE, FolderStorage(tmp_path / "passive")),
    )


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


def finish(both: Both) -> frozenset[Step]:
    """Run an attempt that succeeds without redundant work; return the exchanges that it skipped."""
    before = [side.journal() for side in (both.active, both.passive)]
    pair = attempt_both(both.active, both.passive)
    active, passive = pair.views()
    assert is_ideal(ACTIVE, PASSIVE, active, passive)
    assert both.active.done == both.passive.done
    if both.active.done:
        assert both.active.done == {*before[0].finished} & {*before[1].finished}
    assert both.raised == sum(COST[step] for step in EXCHANGES if step not in both.active.done)
    return both.active.done


MOMENTS = [
    *((SetHeader, step, 0) for step in Step),
    *(
        (SetChunk, step, 2 * ROWS if "SECOND" not in step.name else 5 * ROWS)
        for step in Step
        if step
    ),
    (UnionDigest, None, 0),
]


@pytest.mark.parametrize("death", ["nobody", "active", "passive"])
@pytest.mark.parametrize(
    ("message", "step", "start"),
    MOMENTS,
    ids=[f"{m.__name__}-{s.name.lower() if s else 'end'}" for m, s, _ in MOMENTS],
)
def test_both_resume_after_an_interruption(
    both: Both, message: type[Message], step: Step | None, start: int, death: str
) -> None:
    """The connection is lost, or a party killed, at each exchange: at its start or mid-set."""
    by: RoleName = "active" if step is None or step in FROM_ACTIVE else "passive"
    # One party may still be recording an exchange when the other starts the next.
    before: tuple[Step, ...] = ()
    if step is not None and "SECOND" in step.name:
        before = FIRST_ROUNDS
    elif message is UnionDigest:
        before = (*FIRST_ROUNDS, Step.SECOND_ROUND)
    interrupt(both, lost_at(message, step, start, lambda: both.have_finished(*before)), by)
    token = both.active.secrets and both.active.secrets.token
    for role in ROLES:
        if role == death:
            both.side(role).die()
    done = finish(both)
    assert both.active.secrets is not None
    assert both.active.secrets.token == token, "it was started over"
    assert {*before} <= done


def test_finished_exchanges_are_not_sent_again(both: Both) -> None:
    is_ready = partial(both.have_finished, *FIRST_ROUNDS)
    interrupt(both, lost_at(SetHeader, Step.SECOND_ROUND, is_ready=is_ready), "active")
    links: list[RecordingLink] = []

    def wrap(active: Link, passive: Link) -> tuple[Link, Link]:
        links.append(RecordingLink(active))
        return links[0], passive

    attempt_both(both.active, both.passive, wrap).views()
    sent = {r.message.step for r in links[0].records if isinstance(r.message, SetHeader)}
    assert {*FIRST_ROUNDS} <= both.active.done
    for step in both.active.done:
        assert step not in sent
    assert Step.SECOND_ROUND in sent


def test_repeated_interruptions(both: Both) -> None:
    for step in (Step.ACTIVE_FIRST_ROUND, Step.SECOND_ROUND, Step.SECOND_ROUND_BACK):
        interrupt(both, lost_at(SetHeader, step), "active" if step in FROM_ACTIVE else "passive")
        both.side("active" if step is Step.SECOND_ROUND else "passive").die()
    finish(both)


def test_a_finished_party_lets_the_other_finish(both: Both) -> None:
    """One party has its result, and the other was killed before it saved its own."""
    attempt_both(both.active, both.passive).views()
    both.passive.die()
    assert finish(both) == set(EXCHANGES)
    assert both.raised == 0


def test_many_runs_on_disk_give_the_same_union(both: Both) -> None:
    """With memory for only a few rows, all sorting uses runs and merges."""
    for side in (both.active, both.passive):
        side.memory = 500
    finish(both)


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


@pytest.mark.parametrize("name", ["ids", "step-3", "step-5", "step-8", "step-12", "ranks"])
@pytest.mark.parametrize("role", ROLES)
def test_a_union_resumes_after_a_full_disk(
    both: Both, role: RoleName, name: str, tmp_path: Path
) -> None:
    storage = FullOnce(tmp_path / role)
    storage.name = name
    both.side(role).storage = storage
    if name == "step-12" and role == "active":
        storage.name = "step-11"  # the exchange in which it stores UIDs
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


@pytest.mark.parametrize("lost", ["both died", "journal", "ids", "sealed", "wrong key", "identity"])
def test_a_union_that_cannot_be_resumed_starts_over(both: Both, lost: str) -> None:
    interrupt(both, lost_at(SetHeader, Step.SECOND_ROUND), "active")
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


def replies_of(link: RecordingLink, step: Step) -> list[Message]:
    return [
        record.message
        for record in link.records
        if record.direction is Direction.SENT
        and isinstance(record.message, SetChunk)
        and record.message.step is step
    ]


#: The exchange that is repeated, and the party that sends different elements in it. The last three
#: change what comes back, which is raised again in a later step.
OTHER_ELEMENTS: list[tuple[Step, RoleName]] = [
    (Step.ACTIVE_FIRST_ROUND, "active"),
    (Step.PASSIVE_FIRST_ROUND, "passive"),
    (Step.SECOND_ROUND, "active"),
    (Step.ACTIVE_HASHING, "active"),
    (Step.PASSIVE_HASHING, "passive"),
    (Step.ACTIVE_FIRST_ROUND, "passive"),
    (Step.PASSIVE_FIRST_ROUND, "active"),
    (Step.SECOND_ROUND, "passive"),
]


@pytest.mark.parametrize(("step", "liar"), OTHER_ELEMENTS)
def test_nothing_but_the_same_set_is_answered_again(both: Both, step: Step, liar: RoleName) -> None:
    """A peer that claims to have lost an exchange cannot get different elements raised."""
    attempt_both(both.active, both.passive).views()
    bad = both.side(liar)
    assert bad.secrets is not None
    bad.secrets = replace(bad.secrets, own=OwnSecrets.fresh(GROUP))  # same token, other elements
    links: list[RecordingLink] = []

    def claims_to_lack(sent: Message) -> Iterable[Message]:
        if isinstance(sent, UnionOpening):
            sent = replace(sent, finished=tuple(s for s in sent.finished if s != step))
        return [sent]

    def wrap(active: Link, passive: Link) -> tuple[Link, Link]:
        if liar == "active":
            links.append(RecordingLink(passive))
            return TamperingLink(active, claims_to_lack), links[0]
        links.append(RecordingLink(active))
        return links[0], TamperingLink(passive, claims_to_lack)

    bad_journal = bad.journal()
    _forget(bad_journal, step)
    pair = attempt_both(both.active, both.passive, wrap)
    outcome = pair.passive if liar == "active" else pair.active
    assert isinstance(outcome, ProtocolViolation)
    assert "different elements before" in str(outcome)
    backs = {3: 4, 5: 6, 8: 9, 11: 111, 12: 112}
    originates = (step in FROM_ACTIVE) == (liar == "active")
    if originates:
        assert replies_of(links[0], Step(backs[step])) == [], "it was answered"


def _forget(journal: object, step: Step) -> None:
    """Remove the record of an exchange, and of what was received, from a journal."""
    record = journal._record  # type: ignore[attr-defined]
    kept = {s: f for s, f in record.finished.items() if s != step}
    journal._save(record.model_copy(update={"finished": kept, "received": {}}))  # type: ignore[attr-defined]


def test_a_second_chunk_may_follow_the_first_but_not_change_it(both: Both) -> None:
    """After an interruption in step 11, what was answered cannot change; the rest can be sent."""
    interrupt(both, lost_at(SetChunk, Step.ACTIVE_HASHING, 2 * ROWS), "active")
    storage = both.passive.storage
    assert (storage.size("step-11.received") or 0) <= 2 * 32
    finish(both)
    assert storage.size("step-11.received") == 3 * 32


def test_a_changed_size_starts_over(both: Both) -> None:
    """A peer that now has more IDs gets no answers under the secrets of the old union."""
    interrupt(both, lost_at(SetHeader, Step.SECOND_ROUND), "active")
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
    ],
)
def test_an_inconsistent_opening_is_refused(both: Both, change: Tamper) -> None:
    def tamper(sent: Message) -> Iterable[Message]:
        return [change(sent) if isinstance(sent, UnionOpening) else sent]  # type: ignore[list-item]

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


def test_no_secret_is_on_disk(both: Both, tmp_path: Path) -> None:
    """Neither the exponents nor a key that decrypts them."""
    interrupt(both, lost_at(SetHeader, Step.SECOND_ROUND), "active")
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
