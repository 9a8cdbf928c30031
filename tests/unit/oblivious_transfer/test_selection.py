"""1-of-C transfers against the ideal functionality, and what each party sees."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.core.errors import ProtocolViolation
from florist.common.oblivious_transfer import (
    ExtensionReceiver,
    ExtensionSender,
    chosen_keys,
    class_keys,
    corrections,
    corrections_bytes,
    encrypt_rows,
    transfers_per_row,
)
from florist.common.oblivious_transfer.fixed_key_aes import SELECTION_KEY
from tests.unit.oblivious_transfer import oracles

if TYPE_CHECKING:
    from florist.common.oblivious_transfer.kernels import ByteArray
    from tests.unit.oblivious_transfer.conftest import Base

SIZE = 2048


class Block(NamedTuple):
    """One block, as both parties have it."""

    choices: ByteArray
    keys: ByteArray
    both: ByteArray


@pytest.fixture(scope="module")
def block(base: Base) -> Block:
    message, choices, keys = ExtensionReceiver(base.pairs, SIZE).block(0)
    return Block(choices, keys, ExtensionSender(base.seeds, SIZE).block(0, message))


def random_bytes(*shape: int) -> ByteArray:
    return np.frombuffer(os.urandom(int(np.prod(shape))), np.uint8).reshape(shape)


def test_transfers_per_row() -> None:
    counts = {2: 1, 3: 2, 4: 2, 5: 3, 8: 3, 9: 4, 10: 4, 256: 8, 257: 9, 1 << 16: 16}
    assert {classes: transfers_per_row(classes) for classes in counts} == counts
    for classes in (-1, 0, 1, (1 << 16) + 1):
        with pytest.raises(ValueError, match="classes"):
            transfers_per_row(classes)


@settings(max_examples=60)
@given(st.data())
def test_the_ideal_functionality(block: Block, data: st.DataObject) -> None:
    """The receiver gets the message of its label; the sender gets nothing but the corrections."""
    classes = data.draw(st.integers(2, 20))
    width = transfers_per_row(classes)
    rows = data.draw(st.integers(1, 70))
    start = data.draw(st.integers(0, SIZE - rows * width))
    labels = np.array(
        data.draw(st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows))
    )
    row_bytes = data.draw(st.integers(0, 70))
    part = slice(start, start + rows * width)
    messages = random_bytes(classes, rows, row_bytes)

    sent = corrections(labels, block.choices[part], classes=classes)
    offered = class_keys(sent, block.both[:, part], classes=classes)
    encrypted = np.stack([encrypt_rows(offered[c], messages[c]) for c in range(classes)])
    own = chosen_keys(labels, block.keys[part], classes=classes)

    assert len(sent) == corrections_bytes(rows, classes) == -(-rows * width // 8)
    assert offered.shape == (classes, rows, 16)
    opened = encrypt_rows(own, encrypted[labels, np.arange(rows)])
    assert np.array_equal(opened, messages[labels, np.arange(rows)])
    # The keys of all other messages are different from every key that the receiver has.
    known = {key.tobytes() for key in (*own, *block.keys)}
    others = np.arange(classes)[:, None] != labels
    assert not known & {key.tobytes() for key in offered[others]}


@pytest.mark.parametrize("classes", [2, 3, 4, 7, 10])
def test_no_rows(classes: int) -> None:
    none = np.empty((0, 16), np.uint8)
    labels = np.empty(0, np.int64)
    assert corrections(labels, np.empty(0, np.uint8), classes=classes) == b""
    assert chosen_keys(labels, none, classes=classes).shape == (0, 16)
    offered = class_keys(b"", np.empty((2, 0, 16), np.uint8), classes=classes)
    assert offered.shape == (classes, 0, 16)


def test_keys_by_their_definition(block: Block) -> None:
    """key(c) is the xor over the bits of c of π(k ^ c) ^ k ^ c, with the keys of those bits."""
    labels = np.array([6, 0, 3])
    sent = corrections(labels, block.choices[:9], classes=7)
    offered = class_keys(sent, block.both[:, :9], classes=7)
    for row, label in enumerate(labels):
        for c in range(7):
            terms = []
            for bit in range(3):
                transfer = 3 * row + bit
                # The receiver's choice is the key of its label's bit.
                differs = (c ^ int(label)) >> bit & 1
                key = block.both[block.choices[transfer] ^ differs, transfer].tobytes()
                mixed = oracles.xor(key, c.to_bytes(16, "little"))
                terms += [oracles.aes(SELECTION_KEY, mixed), mixed]
            assert offered[c, row].tobytes() == oracles.xor(*terms)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_types_of_labels(block: Block, dtype: npt.DTypeLike) -> None:
    labels = np.array([0, 1, 2, 4], dtype)
    expected = chosen_keys(labels.astype(np.int64), block.keys[:12], classes=5)
    assert np.array_equal(chosen_keys(labels, block.keys[:12], classes=5), expected)
    assert corrections(labels, block.choices[:12], classes=5) == corrections(
        labels.astype(np.int64), block.choices[:12], classes=5
    )


def test_the_corrections_are_a_one_time_pad(block: Block) -> None:
    """With the same choices, the corrections of two label vectors differ by the labels' bits.

    So for uniform choices, which the sender does not know, the corrections of any labels are
    uniform: each vector of corrections comes from exactly one vector of choices.
    """
    rows = SIZE // 2
    one, other = (
        np.frombuffer(corrections(labels, block.choices, classes=4), np.uint8)
        for labels in (np.zeros(rows, int), np.arange(rows) % 4)
    )
    bits = np.unpackbits(one ^ other, bitorder="little").reshape(rows, 2)
    assert np.array_equal(bits @ [1, 2], np.arange(rows) % 4)
    zero = np.unpackbits(one, bitorder="little")
    assert np.array_equal(zero, block.choices)


def test_the_senders_view_does_not_depend_on_the_labels(base: Base) -> None:
    """All labels 0 or all labels 1: the corrections look the same, and like random bytes.

    65,536 bits each. The number of ones stays within 10 standard deviations, and the chi-square
    statistic of the bytes (255 degrees of freedom) below 255 + 20 standard deviations: both fail
    by chance less than once in 10^20 runs. The message of the block does not depend on labels at
    all, because the receiver sends it before it uses them.
    """
    size = 1 << 16
    for number, label in ((10, 0), (11, 1)):
        message, choices, _ = ExtensionReceiver(base.pairs, size).block(number)
        sent = corrections(np.full(size, label), choices, classes=2)
        for view in (sent, message):
            seen = np.frombuffer(view, np.uint8)
            bits = 8 * seen.size
            ones = int(np.bitwise_count(seen).sum())
            assert abs(ones - bits / 2) < 10 * (bits / 4) ** 0.5
            expected = seen.size / 256
            counts = np.bincount(seen, minlength=256)
            statistic = float(((counts - expected) ** 2 / expected).sum())
            assert statistic < 255 + 20 * (2 * 255) ** 0.5


@pytest.mark.parametrize("classes", [2, 3, 8, 11])
def test_the_receiver_cannot_open_other_messages(block: Block, classes: int) -> None:
    """Whatever label it combines its keys for, only that of its own label is a key of the sender.

    And what it decrypts with its key in another message is far from that message: about half of
    the bits differ, within 10 standard deviations.
    """
    width = transfers_per_row(classes)
    rows = SIZE // width
    part = slice(0, rows * width)
    labels = np.random.default_rng(3).integers(0, classes, rows)
    sent = corrections(labels, block.choices[part], classes=classes)
    offered = class_keys(sent, block.both[:, part], classes=classes)
    for claimed in range(classes):
        tried = chosen_keys(np.full(rows, claimed), block.keys[part], classes=classes)
        equal = (tried == offered[claimed]).all(axis=1)
        assert np.array_equal(equal, labels == claimed)
    zeros = np.zeros((rows, 64), np.uint8)
    own = chosen_keys(labels, block.keys[part], classes=classes)
    for c in range(classes):
        opened = encrypt_rows(own, encrypt_rows(offered[c], zeros))
        right = labels == c
        assert not opened[right].any()
        bits = 8 * 64 * int(np.count_nonzero(~right))
        ones = int(np.bitwise_count(opened[~right]).sum())
        assert abs(ones - bits / 2) < 10 * (bits / 4) ** 0.5


@settings(max_examples=30)
@given(st.data())
def test_a_flipped_correction_opens_another_message(block: Block, data: st.DataObject) -> None:
    """A receiver that sends another bit has asked for the other message, and lost its own."""
    labels = np.arange(8) % 8
    sent = bytearray(corrections(labels, block.choices[:24], classes=8))
    flip = data.draw(st.integers(0, 23))
    sent[flip // 8] ^= 1 << flip % 8
    offered = class_keys(bytes(sent), block.both[:, :24], classes=8)
    own = chosen_keys(labels, block.keys[:24], classes=8)
    row, bit = divmod(flip, 3)
    for i in range(8):
        if i != row:
            assert np.array_equal(offered[labels[i], i], own[i])
    assert own[row].tobytes() not in {key.tobytes() for key in offered.reshape(-1, 16)}
    asked = labels.copy()
    asked[row] ^= 1 << bit
    opened = chosen_keys(asked, block.keys[:24], classes=8)
    assert np.array_equal(opened[row], offered[asked[row], row])


@pytest.mark.parametrize(
    ("classes", "rows", "sent", "fault"),
    [
        (2, 9, b"\0", "1 bytes, not 2"),
        (2, 8, b"\0\0", "2 bytes, not 1"),
        (2, 8, b"", "0 bytes, not 1"),
        (5, 3, b"\0\0\0", "3 bytes, not 2"),
        (2, 9, b"\0\2", "too many bits"),
        (5, 3, b"\0\x80", "too many bits"),
    ],
)
def test_malformed_corrections(classes: int, rows: int, sent: bytes, fault: str) -> None:
    keys = np.zeros((2, rows * transfers_per_row(classes), 16), np.uint8)
    with pytest.raises(ProtocolViolation, match=fault):
        class_keys(sent, keys, classes=classes)


def test_arguments(block: Block) -> None:
    for labels, fault in (
        (np.array([0, 3]), "labels are 0 to 2"),
        (np.array([0, -1]), "labels are 0 to 2"),
        (np.array([0.0, 1.0]), "integers"),
        (np.array([[0, 1]]), "one-dimensional"),
    ):
        with pytest.raises(ValueError, match=fault):
            corrections(labels, block.choices[:4], classes=3)
        with pytest.raises(ValueError, match=fault):
            chosen_keys(labels, block.keys[:4], classes=3)
    labels = np.array([0, 1])
    with pytest.raises(ValueError, match="3 choices for 4 bits"):
        corrections(labels, block.choices[:3], classes=3)
    with pytest.raises(ValueError, match="5 keys for 4 bits"):
        chosen_keys(labels, block.keys[:5], classes=3)
    with pytest.raises(ValueError, match="2 transfers per row"):
        class_keys(b"\0", block.both[:, :5], classes=3)
