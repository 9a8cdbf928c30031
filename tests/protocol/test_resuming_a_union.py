"""A union that is interrupted goes on: from what both have, under the same secrets, no further."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, BinaryIO

import pytest

from florist.common.core.errors import ConfigurationError, FloristError, PeerLost, ProtocolViolation
from florist.common.groups import make_group
from florist.common.psu import set_stream
from florist.common.psu.keys import Keys
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
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
#: Exponentiations of each exchange, of both parties together.
COST = {
    Step.ACTIVE_FIRST_ROUND: 2 * len(ACTIVE),
    Step.PASSIVE_FIRST_ROUND: 2 * len(PASSIVE),
    Step.SECOND_ROUND: 2 * UNION,
    Step.ACTIVE_HASHING: 3 * len(ACTIVE),
    Step.PASSIVE_HASHING: 3 * len(PASSIVE),
}
ROLES: tuple[RoleName, RoleName] = ("active", "passive")
FROM_ACTIVE = {3, 6, 8, 11, 112}


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_stream, "CHUNK_BYTES", ROWS * GROUP.width)


@dataclass
class Both:
    active: Side
    passive: Side

    def side(self, role: RoleName) -> Side:
        return self.active if role == "active" else self.passive

    @property
    def raised(self) -> int:
        return self.active.group.raised + self.passive.group.raised


@pytest.fixture
def both(tmp_path: Path) -> Both:
    return Both(
        Side("active", CountingGroup(GROUP), ACTIVE, FolderStorage(tmp_path / "active")),
        Side("passive", CountingGroup(GROUP), PASSIVE, FolderStorage(tmp_path / "passive")),
    )


def lost_at(message: type[Message], step: Step | None, place: int = 0) -> Tamper:
    """The line breaks when this is sent."""

    def tamper(sent: Message) -> Iterable[Message]:
        is_it = isinstance(sent, message) and step in (None, getattr(sent, "step", None))
        if is_it and getattr(sent, "start", place) == place:
            raise PeerLost("cut by the test")
        return [sent]

    return tamper


def cut(both: Both, tamper: Tamper, by: RoleName) -> None:
    """An attempt that ends as `tamper` says, on both sides."""

    def wrap(active: Link, passive: Link) -> tuple[Link, Link]:
        if by == "active":
            return TamperingLink(active, tamper), passive
        return active, TamperingLink(passive, tamper)

    pair = attempt_both(both.active, both.passive, wrap)
    assert isinstance(pair.active, FloristError)
    assert isinstance(pair.passive, FloristError)


def finish(both: Both) -> frozenset[Step]:
    """The next attempt ends well, with no more work than it takes; what it did not do again."""
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
    ("message", "step", "place"),
    MOMENTS,
    ids=[f"{m.__name__}-{s.name.lower() if s else 'end'}" for m, s, _ in MOMENTS],
)
def test_after_a_loss_both_go_on(
    both: Both, message: type[Message], step: Step | None, place: int, death: str
) -> None:
    """The line is cut, or one party is killed, at each exchange, in the sets' middle or before."""
    by: RoleName = "active" if step is None or step in FROM_ACTIVE else "passive"
    cut(both, lost_at(message, step, place), by)
    token = both.active.secrets and both.active.secrets.token
    for role in ROLES:
        if role == death:
            both.side(role).die()
    done = finish(both)
    assert both.active.secrets is not None
    assert both.active.secrets.token == token, "it was begun anew"
    if step is not None and step >= Step.SECOND_ROUND and "SECOND" in step.name:
        assert {Step.ACTIVE_FIRST_ROUND, Step.PASSIVE_FIRST_ROUND} <= done
    if message is UnionDigest:
        assert Step.SECOND_ROUND in done


def test_what_is_finished_is_not_sent_again(both: Both) -> None:
    cut(both, lost_at(SetHeader, Step.SECOND_ROUND), "active")
    links: list[RecordingLink] = []

    def wrap(active: Link, passive: Link) -> tuple[Link, Link]:
        links.append(RecordingLink(active))
        return links[0], passive

    attempt_both(both.active, both.passive, wrap).views()
    sent = {r.message.step for r in links[0].records if isinstance(r.message, SetHeader)}
    assert {Step.ACTIVE_FIRST_ROUND, Step.PASSIVE_FIRST_ROUND} <= both.active.done
    for step in both.active.done:
        assert step not in sent
    assert Step.SECOND_ROUND in sent


def test_interrupted_again_and_again(both: Both) -> None:
    for step in (Step.ACTIVE_FIRST_ROUND, Step.SECOND_ROUND, Step.SECOND_ROUND_BACK):
        cut(both, lost_at(SetHeader, step), "active" if step in FROM_ACTIVE else "passive")
        both.side("active" if step is Step.SECOND_ROUND else "passive").die()
    finish(both)


def test_one_that_is_finished_helps_the_other_to_finish(both: Both) -> None:
    """One has its result and the other was killed before it saved: all is there to finish it."""
    attempt_both(both.active, both.passive).views()
    both.passive.die()
    assert finish(both) == set(EXCHANGES)
    assert both.raised == 0


def test_many_runs_on_disk_give_the_same(both: Both) -> None:
    """With room for a few rows only, all sorting is by runs and merges."""
    for side in (both.active, both.passive):
        side.room = 500
    finish(both)


class FullOnce(FolderStorage):
    """A disk without room when this file is written; later there is some."""

    name: str | None = None

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        if name == self.name:
            self.name = None
            with self._told(), open("/dev/full", "wb", buffering=0) as file:  # noqa: PTH123
                yield file
            return
        with super().writing(name) as file:
            yield file


@pytest.mark.parametrize("name", ["ids", "step-3", "step-5", "step-8", "step-12", "ranks"])
@pytest.mark.parametrize("role", ROLES)
def test_a_full_disk_is_told_and_can_be_gone_on_from(
    both: Both, role: RoleName, name: str, tmp_path: Path
) -> None:
    storage = FullOnce(tmp_path / role)
    storage.name = name
    both.side(role).storage = storage
    if name == "step-12" and role == "active":
        storage.name = "step-11"  # whoever has UIDs in it
    pair = attempt_both(both.active, both.passive)
    outcome = pair.active if role == "active" else pair.passive
    assert isinstance(outcome, ConfigurationError)
    assert str(tmp_path / role) in str(outcome)
    assert "No space left" in str(outcome)
    assert both.active.secrets is not None
    token = both.active.secrets.token
    both.side(role).die()
    finish(both)
    assert both.active.secrets.token == token, "it was begun anew"


@pytest.mark.parametrize("lost", ["both died", "journal", "ids", "sealed", "wrong key", "identity"])
def test_what_cannot_go_on_begins_anew(both: Both, lost: str) -> None:
    cut(both, lost_at(SetHeader, Step.SECOND_ROUND), "active")
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
            journal.write_text(text.replace('"identity":"01"', '"identity":"02"'))
    assert finish(both) == frozenset()
    assert both.active.secrets.token != old.token
    for name in ("first", "second", "third"):
        assert getattr(both.active.secrets.keys, name) != getattr(old.keys, name)


# --- a peer that means ill ---


def replies_of(link: RecordingLink, step: Step) -> list[Message]:
    return [
        record.message
        for record in link.records
        if record.direction is Direction.SENT
        and isinstance(record.message, SetChunk)
        and record.message.step is step
    ]


#: The exchange that is done once more, and the party that sends other elements in it. The last
#: three change what comes back, which is raised again in a later step.
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
    """A peer that says it has lost an exchange cannot have other elements raised in its place."""
    attempt_both(both.active, both.passive).views()
    bad = both.side(liar)
    assert bad.secrets is not None
    bad.secrets = replace(bad.secrets, keys=Keys.fresh(GROUP))  # the same token, but other elements
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
    """As a party that lost its own record of an exchange, and of what it was sent in it."""
    record = journal._record  # type: ignore[attr-defined]
    kept = {s: f for s, f in record.finished.items() if s != step}
    journal._save(record.model_copy(update={"finished": kept, "received": {}}))  # type: ignore[attr-defined]


def test_a_second_chunk_may_follow_the_first_but_not_change_it(both: Both) -> None:
    """Cut in the middle of step 11: what was answered cannot be changed, the rest can be sent."""
    cut(both, lost_at(SetChunk, Step.ACTIVE_HASHING, 2 * ROWS), "active")
    storage = both.passive.storage
    assert (storage.size("step-11.received") or 0) <= 2 * 32
    finish(both)
    assert storage.size("step-11.received") == 3 * 32


def test_another_size_begins_anew(both: Both) -> None:
    """One that now has more IDs gets no answers under secrets of the old union."""
    cut(both, lost_at(SetHeader, Step.SECOND_ROUND), "active")
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
def test_an_opening_that_makes_no_sense_is_refused(both: Both, change: Tamper) -> None:
    def tamper(sent: Message) -> Iterable[Message]:
        return [change(sent) if isinstance(sent, UnionOpening) else sent]  # type: ignore[list-item]

    pair = attempt_both(both.active, both.passive, lambda a, p: (a, TamperingLink(p, tamper)))
    assert isinstance(pair.active, ProtocolViolation)
    assert "opening" in str(pair.active)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: replace(t, nonce=b""),
        lambda t: replace(t, sealing_key=b"short"),
        lambda t: replace(t, resume=True),
    ],
)
def test_terms_that_make_no_sense_are_refused(both: Both, change: Tamper) -> None:
    def tamper(sent: Message) -> Iterable[Message]:
        return [change(sent) if isinstance(sent, UnionTerms) else sent]  # type: ignore[list-item]

    pair = attempt_both(both.active, both.passive, lambda a, p: (a, TamperingLink(p, tamper)))
    assert isinstance(pair.active, ProtocolViolation)
    assert "terms" in str(pair.active)


# --- the secrets ---


def test_sealed_secrets_open_with_their_key_alone() -> None:
    keys, key, token = Keys.fresh(GROUP), new_sealing_key(), b"t" * 32
    sealed = seal(keys, key, token)
    assert unseal(sealed, key, token) == keys
    assert unseal(sealed, new_sealing_key(), token) is None
    assert unseal(sealed, key, b"u" * 32) is None
    assert unseal(sealed, b"", token) is None
    assert unseal(b"", key, token) is None
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        assert unseal(bytes(changed), key, token) is None
    assert seal(keys, key, token) != sealed


def test_no_secret_is_on_disk(both: Both, tmp_path: Path) -> None:
    """Neither the exponents nor a key that opens them, at any time."""
    cut(both, lost_at(SetHeader, Step.SECOND_ROUND), "active")
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
        for key in (kept.own_key, kept.peer_key):
            assert key not in written
            assert key.hex().encode() not in written


def test_secrets_do_not_show_themselves() -> None:
    memory = SecretsInMemory()
    kept = UnionSecrets(b"t" * 32, Keys.fresh(GROUP), b"own", b"peers")
    memory.by_table["train"] = kept
    for shown in (repr(memory), repr(kept), str(kept)):
        assert "own" not in shown
        assert str(int(kept.keys.first)) not in shown
