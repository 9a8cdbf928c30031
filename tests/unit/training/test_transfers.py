"""The transfers of a run over a link: the active party has the keys of its choices, and no other.

The parties of these tests exchange keys only, without a model.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from florist.common.core.errors import FloristError, ProtocolViolation
from florist.common.oblivious_transfer import message_bytes, transfers_per_row
from florist.common.session.answer_journal import DifferentBlock, NotReproducible
from florist.common.training import transfers
from florist.common.training.training_journal import TrainingJournal
from florist.common.training.transfers import (
    TRANSFERS,
    TransferReceiver,
    TransferSender,
    TransferTerms,
)
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import (
    ChoiceBlock,
    OfferBlock,
    TransferBlock,
    TransferReply,
    TransferRequest,
)
from florist.common.transport.recording import Direction, RecordingLink
from tests.support.tampering import TamperingLink

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt

    from florist.common.transport.channel import Link
    from florist.common.transport.messages import Message
    from tests.support.tampering import Tamper

    Bytes = npt.NDArray[np.uint8]

BLOCK = 256
RUN, KEY = bytes(range(32)), bytes(32)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "BLOCK_SIZE", BLOCK)


@dataclass
class Exchange:
    """Both parties of a run, which has two epochs of three batches, the last of each short."""

    classes: int = 2
    batch_size: int = 100
    session: bytes = RUN
    secrets: tuple[bytes, bytes] = (b"a" * 32, b"p" * 32)
    seed: int = 0
    journals: tuple[TrainingJournal, TrainingJournal] = field(
        default_factory=lambda: (TrainingJournal(None), TrainingJournal(None))
    )

    @property
    def labels(self) -> list[npt.NDArray[np.int64]]:
        random = np.random.default_rng(self.seed)
        sizes = [self.batch_size, self.batch_size, -(-self.batch_size // 3)] * 2
        return [random.integers(0, self.classes, size) for size in sizes]

    def terms(self, side: int) -> TransferTerms:
        return TransferTerms(
            session=self.session,
            secret=self.secrets[side],
            classes=self.classes,
            batch_size=self.batch_size,
            journal=self.journals[side],
        )


def unchanged(message: Message) -> list[Message]:
    return [message]


@dataclass
class Outcome:
    """The keys of both parties by step, or the error of each, and all messages."""

    active: list[Bytes] | FloristError
    passive: list[Bytes] | FloristError
    link: RecordingLink

    @property
    def keys(self) -> tuple[list[Bytes], list[Bytes]]:
        assert not isinstance(self.active, FloristError), self.active
        assert not isinstance(self.passive, FloristError), self.passive
        return self.active, self.passive

    def messages(self, direction: Direction) -> list[Any]:
        """Return what the active party sent or received."""
        return [each.message for each in self.link.records if each.direction is direction]


def run(
    exchange: Exchange,
    *,
    first: int = 0,
    steps: int | None = None,
    active: Tamper = unchanged,
    passive: Tamper = unchanged,
) -> Outcome:
    """Make the transfers from step `first` on; each party's messages pass through a function."""
    links = linked_pair(grace=0.05)
    recorded = RecordingLink(links[0])
    labels = exchange.labels[:steps]

    def choosing() -> list[Bytes]:
        channel = TamperingLink(recorded, active).channel(TRANSFERS)
        side = TransferReceiver(channel, exchange.terms(0))
        return [side.choose(step, labels[step]) for step in range(first, len(labels))]

    def offering() -> list[Bytes]:
        channel = TamperingLink(links[1], passive).channel(TRANSFERS)
        side = TransferSender(channel, exchange.terms(1))
        return [side.keys(step, len(labels[step])) for step in range(first, len(labels))]

    def guarded(side: Callable[[], list[Bytes]], link: Link) -> list[Bytes] | FloristError:
        try:
            return side()
        except FloristError as error:
            link.fail(error)
            return error

    with ThreadPoolExecutor(2) as both:
        ends = both.submit(guarded, choosing, links[0]), both.submit(guarded, offering, links[1])
        found = ends[0].result(timeout=60), ends[1].result(timeout=60)
    return Outcome(*found, recorded)


# --- keys ---


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("batch_size", [1, 100, BLOCK, 3 * BLOCK - 1])
def test_the_active_party_has_the_key_of_its_choice_and_no_other(
    classes: int, batch_size: int
) -> None:
    """Batches are smaller and larger than blocks, and begin and end within them."""
    exchange = Exchange(classes, batch_size)
    outcome = run(exchange)
    own, offered = outcome.keys
    for labels, chosen, keys in zip(exchange.labels, own, offered, strict=True):
        rows = np.arange(len(labels))
        assert chosen.shape == (len(labels), 16)
        assert keys.shape == (classes, len(labels), 16)
        assert np.array_equal(keys[labels, rows], chosen)
    everything = np.concatenate([keys.reshape(-1, 16) for keys in offered])
    assert len(np.unique(everything, axis=0)) == len(everything)
    # The steps of a run have the same number of transfers, of which short batches use fewer.
    width = transfers_per_row(classes)
    used = [
        step * batch_size * width + transfer
        for step, labels in enumerate(exchange.labels)
        for transfer in range(len(labels) * width)
    ]
    sent = outcome.messages(Direction.SENT)
    numbers = [message.number for message in sent if isinstance(message, TransferBlock)]
    assert numbers == sorted({transfer // BLOCK for transfer in used})
    assert [m.step for m in sent if isinstance(m, ChoiceBlock)] == list(range(6))


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("first", [1, 2, 3, 5])
def test_a_run_that_resumes_at_any_step_has_the_same_keys(classes: int, first: int) -> None:
    exchange = Exchange(classes, batch_size=200)
    whole, resumed = run(exchange), run(exchange, first=first)
    for all_keys, keys in zip(whole.keys, resumed.keys, strict=True):
        for before, again in zip(all_keys[first:], keys, strict=True):
            assert np.array_equal(before, again)
    sent = resumed.messages(Direction.SENT)
    assert {bytes(m.values) for m in sent} <= {
        bytes(m.values) for m in whole.messages(Direction.SENT)
    }


@pytest.mark.parametrize(
    "change",
    [
        {"session": b"r" * 32},
        {"secrets": (b"b" * 32, b"p" * 32)},
        {"secrets": (b"a" * 32, b"q" * 32)},
    ],
    ids=["run", "active-secret", "passive-secret"],
)
def test_every_run_and_secret_has_its_own_keys(change: dict[str, Any]) -> None:
    first, other = Exchange(), replace(Exchange(), **change)
    for ours, theirs in zip(run(first, steps=1).keys, run(other, steps=1).keys, strict=True):
        assert not np.isin(ours[0].view("V16"), theirs[0].view("V16")).any()


def test_what_the_passive_party_receives_hides_the_labels() -> None:
    """With other labels, only choices differ: in exactly the bits in which the labels do.

    So choices are the labels, encrypted with bits that do not depend on them. Those are hidden by
    the extension; that they look random is checked here.
    """
    ours, others = Exchange(seed=1), Exchange(seed=2)
    sent = [run(each).messages(Direction.SENT) for each in (ours, others)]
    padded: list[npt.NDArray[np.uint8]] = []
    for first, second in zip(*sent, strict=True):
        assert type(first) is type(second)
        if not isinstance(first, ChoiceBlock):
            assert first == second
            continue
        bits = [
            np.unpackbits(np.frombuffer(block.values, np.uint8), bitorder="little")
            for block in (first, second)
        ]
        labels = [each.labels[first.step] for each in (ours, others)]
        rows = len(labels[0])
        assert np.array_equal(bits[0][:rows] ^ bits[1][:rows], labels[0] ^ labels[1])
        padded.append(bits[0][:rows])
    sent_bits = np.concatenate(padded)
    random_bits = sent_bits ^ np.concatenate(ours.labels)
    for share in (sent_bits.mean(), random_bits.mean()):
        assert abs(share - 0.5) < 6 * 0.5 / len(sent_bits) ** 0.5


# --- a run that is resumed ---


def changed(message: Any) -> list[Message]:  # noqa: ANN401
    """Change one bit."""
    values = bytearray(message.values)
    values[0] ^= 1
    return [replace(message, values=bytes(values))]


def only(kind: type[Message], change: Callable[[Any], list[Message]] = changed) -> Tamper:
    return lambda message: change(message) if isinstance(message, kind) else [message]


def of_step(number: int, change: Callable[[Any], list[Message]]) -> Callable[[Any], list[Message]]:
    return lambda block: change(block) if block.step == number else [block]


def journals(folder: Path, *, resumed: bool) -> tuple[TrainingJournal, TrainingJournal]:
    found = TrainingJournal(folder / "active"), TrainingJournal(folder / "passive")
    for journal in found:
        if resumed:
            journal.resume(RUN, KEY, 0, limit=64, confirmed=0)
        else:
            journal.start(RUN, KEY)
    return found


def interrupted(folder: Path, exchange: Exchange) -> Exchange:
    """Make four steps, and return both parties as they are when the run is resumed."""
    before = replace(exchange, journals=journals(folder, resumed=False))
    run(before, steps=4).keys  # noqa: B018 - it checks that they are there
    for journal in before.journals:
        journal.close()
    return replace(exchange, journals=journals(folder, resumed=True))


@pytest.mark.parametrize("first", [0, 2, 4])
def test_the_same_transfers_are_accepted_after_a_resumption(first: int, tmp_path: Path) -> None:
    exchange = interrupted(tmp_path, Exchange(classes=3))
    expected = run(Exchange(classes=3))
    for found, keys in zip(run(exchange, first=first).keys, expected.keys, strict=True):
        for ours, theirs in zip(found, keys[first:], strict=True):
            assert np.array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("tamper", "place"),
    [
        (only(TransferReply), "the start of the run"),
        (only(TransferBlock), "block 0 of the transfers"),
        (only(ChoiceBlock), "step 0"),
        (only(ChoiceBlock, of_step(3, changed)), "step 3"),
    ],
    ids=["base-transfers", "block", "first-choices", "last-choices"],
)
def test_an_active_party_that_changes_anything_after_a_resumption_is_refused(
    tamper: Tamper, place: str, tmp_path: Path
) -> None:
    """With two choices answered, it would have both offers."""
    outcome = run(interrupted(tmp_path, Exchange()), active=tamper)
    assert isinstance(outcome.passive, DifferentBlock)
    assert str(outcome.passive).startswith(f"{place}")


def test_a_passive_party_that_changes_its_base_transfers_is_refused(tmp_path: Path) -> None:
    exchange = interrupted(tmp_path, Exchange())
    other = replace(exchange, secrets=(exchange.secrets[0], b"q" * 32))
    # It does not check itself.
    other.journals = (exchange.journals[0], TrainingJournal(None))
    outcome = run(other)
    assert isinstance(outcome.active, DifferentBlock)
    assert "the start of the run" in str(outcome.active)
    assert outcome.messages(Direction.SENT) == []


@pytest.mark.parametrize("what", ["labels", "secret"])
def test_an_honest_active_party_with_other_data_stops_by_itself(what: str, tmp_path: Path) -> None:
    exchange = interrupted(tmp_path, Exchange())
    other = (
        replace(exchange, seed=1)
        if what == "labels"
        else replace(exchange, secrets=(b"b" * 32, exchange.secrets[1]))
    )
    outcome = run(other)
    assert isinstance(outcome.active, NotReproducible)
    assert not any(isinstance(m, ChoiceBlock) for m in outcome.messages(Direction.SENT))


def test_choices_for_a_step_that_was_not_reached_may_differ(tmp_path: Path) -> None:
    """Nothing was answered for them."""
    exchange = interrupted(tmp_path, Exchange())
    outcome = run(exchange, first=4, active=only(ChoiceBlock, of_step(5, changed)))
    own, offered = outcome.keys
    labels = exchange.labels[5].copy()
    labels[0] ^= 1
    assert np.array_equal(own[0], offered[0][exchange.labels[4], np.arange(100)])
    assert not np.array_equal(own[1][0], offered[1][exchange.labels[5][0], 0])
    assert np.array_equal(own[1], offered[1][labels, np.arange(len(labels))])


def test_a_bad_block_stays_refused_after_a_resumption(tmp_path: Path) -> None:
    """Each attempt would be a guess of the passive party's secret bits."""
    exchange = Exchange(journals=journals(tmp_path, resumed=False))
    first = run(exchange, active=only(TransferBlock))
    assert isinstance(first.passive, ProtocolViolation)
    assert not isinstance(first.passive, DifferentBlock)
    for journal in exchange.journals:
        journal.close()
    exchange = replace(exchange, journals=journals(tmp_path, resumed=True))
    honest = run(replace(exchange, journals=(TrainingJournal(None), exchange.journals[1])))
    assert isinstance(honest.passive, DifferentBlock)


# --- malformed messages ---


def cut(message: Any) -> list[Message]:  # noqa: ANN401
    return [replace(message, values=message.values[:-1])]


def longer(message: Any) -> list[Message]:  # noqa: ANN401
    return [replace(message, values=bytes(message.values) + b"\0")]


def with_padding(message: ChoiceBlock) -> list[Message]:
    """Set a bit behind those of the 100 rows."""
    return [replace(message, values=bytes(message.values[:-1]) + b"\xff")]


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (only(TransferReply, cut), "8191 bytes, not 8192"),
        (only(TransferReply, longer), "8193 bytes, not 8192"),
        (only(TransferReply, lambda m: [replace(m, values=b"")]), "0 bytes, not 8192"),
        (only(TransferReply, lambda m: [replace(m, values=bytes(8192))]), "not a valid one"),
        (only(TransferReply, lambda m: [TransferRequest(m.values)]), "was expected"),
        (only(TransferBlock, cut), "bytes"),
        (only(TransferBlock, longer), "bytes"),
        (only(TransferBlock, lambda m: [replace(m, values=b"")]), "bytes"),
        (only(TransferBlock, changed), "transfers"),
        (only(TransferBlock, lambda m: [replace(m, number=m.number + 1)]), "block 1"),
        (only(TransferBlock, lambda m: [m, m]), "was expected"),
        (only(TransferBlock, lambda _: []), "was expected"),
        (only(ChoiceBlock, cut), "12 bytes, not 13"),
        (only(ChoiceBlock, longer), "14 bytes, not 13"),
        (only(ChoiceBlock, lambda m: [replace(m, values=b"")]), "0 bytes, not 13"),
        (only(ChoiceBlock, with_padding), "too many bits"),
        (only(ChoiceBlock, lambda m: [replace(m, step=m.step + 1)]), "step 1 instead of 0"),
        (only(ChoiceBlock, lambda m: [OfferBlock(m.step, 0, m.values)]), "was expected"),
    ],
)
def test_a_bad_active_party_is_refused(tamper: Tamper, says: str) -> None:
    outcome = run(Exchange(), active=tamper)
    assert isinstance(outcome.passive, ProtocolViolation)
    assert says in str(outcome.passive)


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (only(TransferRequest, cut), "8191 bytes, not 8192"),
        (only(TransferRequest, lambda m: [replace(m, values=b"\xff" * 8192)]), "not a valid one"),
        (only(TransferRequest, lambda m: [TransferReply(m.values)]), "was expected"),
    ],
)
def test_a_bad_passive_party_is_refused(tamper: Tamper, says: str) -> None:
    outcome = run(Exchange(), passive=tamper)
    assert isinstance(outcome.active, ProtocolViolation)
    assert says in str(outcome.active)
    assert outcome.messages(Direction.SENT) == []


def test_sizes_of_all_messages() -> None:
    """They follow from the sizes of batches and the number of classes."""
    sent = run(Exchange(classes=5, batch_size=70), steps=2).messages(Direction.SENT)
    sizes = [(type(message).__name__, len(message.values)) for message in sent]
    block = ("TransferBlock", message_bytes(BLOCK))
    assert sizes == [
        ("TransferReply", 8192),
        block,
        ("ChoiceBlock", -(-70 * 3 // 8)),
        block,
        ("ChoiceBlock", -(-70 * 3 // 8)),
    ]
