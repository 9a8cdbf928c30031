"""How the active party opens offers: one of each row, and only in a message that fits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from florist.active_party.receiving import BatchOffers, PlainReceiving
from florist.common.core.errors import ProtocolViolation
from florist.common.oblivious_transfer import encrypt_rows
from florist.common.session.answer_journal import BlockKind
from florist.common.training.feed import Position
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import EmbeddingBlock, OfferBlock

if TYPE_CHECKING:
    from florist.common.transport.channel import Channel
    from florist.common.transport.messages import Message

STEP, CLASSES, ROWS, ROW_BYTES = 7, 3, 20, 12
PART = slice(5, 15)
RANDOM = np.random.default_rng(0)
CHOICES = RANDOM.integers(0, CLASSES, ROWS)
PLAIN = RANDOM.integers(0, 256, (CLASSES, ROWS, ROW_BYTES), dtype=np.uint8)
KEYS = RANDOM.integers(0, 256, (CLASSES, ROWS, 16), dtype=np.uint8)
BATCH = BatchOffers(STEP, CLASSES, ROW_BYTES, CHOICES, KEYS[CHOICES, np.arange(ROWS)])


def sent(part: slice = PART) -> OfferBlock:
    """Return the offers as the passive party sends them."""
    encrypted = [encrypt_rows(KEYS[label, part], PLAIN[label, part]) for label in range(CLASSES)]
    return OfferBlock(STEP, part.start, np.concatenate(encrypted).tobytes())


def received(message: Message) -> Channel:
    ours, theirs = linked_pair()
    theirs.channel("training").send(message)
    return ours.channel("training")


@pytest.mark.parametrize("part", [PART, slice(0, ROWS), slice(19, 20)])
def test_one_offer_of_each_row_is_opened(part: slice) -> None:
    found = BATCH.receive(received(sent(part)), part)
    expected = PLAIN[CHOICES[part], np.arange(ROWS)[part]]
    assert found.kind is BlockKind.OFFERS
    assert found.message == sent(part)
    assert found.opened == EmbeddingBlock(STEP, part.start, expected.tobytes())


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (replace(sent(), step=STEP + 1), "step 8, row 5, instead of step 7, row 5"),
        (replace(sent(), start=0), "step 7, row 0, instead of step 7, row 5"),
        (replace(sent(), values=b""), "0 bytes instead of 3 times 10 rows of 12"),
        (replace(sent(), values=sent().values[:-1]), "359 bytes"),
        (replace(sent(), values=sent().values[: 2 * 10 * ROW_BYTES]), "240 bytes"),
        (replace(sent(), values=bytes(sent().values) + bytes(12)), "372 bytes"),
        (EmbeddingBlock(STEP, PART.start, sent().values), "OfferBlock was expected"),
    ],
)
def test_other_messages_are_refused(bad: Message, says: str) -> None:
    with pytest.raises(ProtocolViolation, match=says):
        BATCH.receive(received(bad), PART)


def test_plain_embeddings_are_passed_on() -> None:
    block = EmbeddingBlock(STEP, 5, bytes(range(120)))
    batch = PlainReceiving().prepare(Position(0, STEP, STEP), np.arange(ROWS), CHOICES)
    found = batch.receive(received(block), PART)
    assert found.kind is BlockKind.EMBEDDINGS
    assert found.message == found.opened == block
