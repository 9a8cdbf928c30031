"""The extension: both parties' results, determinism, and receivers that deviate."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from florist.common.core.errors import ProtocolViolation
from florist.common.oblivious_transfer import (
    BLOCK_SIZE,
    ChosenSeeds,
    ExtensionReceiver,
    ExtensionSender,
    SeedPairs,
    kernels,
    message_bytes,
)
from florist.common.oblivious_transfer.consistency import HASH_BYTES, challenge, column_hashes
from florist.common.oblivious_transfer.extension import _column_blocks, _rows
from florist.common.oblivious_transfer.key_streams import key_streams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from florist.common.oblivious_transfer.kernels import ByteArray, Kernels
    from tests.unit.oblivious_transfer.conftest import Base

SIZES = (128, 256, 384, 1024, 4096)


class DeviatingReceiver(ExtensionReceiver):
    """A receiver that uses other choices in some columns, and hashes as it likes."""

    def message(
        self,
        number: int,
        flips: Mapping[int, ByteArray],
        *,
        guesses: Mapping[int, int],
        everywhere: ByteArray | None = None,
    ) -> bytes:
        """Return a message in which the choices of column i are x ^ `flips`[i].

        The best that the receiver can do then is to guess the sender's bit of each such column:
        with the guess 0 it sends the hash of its column as it is, with 1 it adds the hash of the
        difference. `everywhere` changes the choices of all columns, which is allowed.
        """
        blocks = _column_blocks(self._size)
        own = key_streams(_rows(*self._column_keys, self._choice_key), number, blocks)
        if everywhere is not None:
            own[128] ^= everywhere
        matrix = key_streams(_rows(*self._other_keys), number, blocks) ^ own[:128] ^ own[128]
        for column, flip in flips.items():
            matrix[column] ^= flip
        points = challenge(self._context, number, matrix)
        hashes = column_hashes(own, points)
        for column, guess in guesses.items():
            if guess:
                hashes[column] ^= column_hashes(flips[column][None], points)[0]
        return b"".join((matrix.tobytes(), hashes[128].tobytes(), hashes[:128].tobytes()))


def one_bit(size: int, row: int) -> ByteArray:
    flip = np.zeros(16 * _column_blocks(size), np.uint8)
    flip[row // 8] = 1 << row % 8
    return flip


def rejected(base: Base, message: bytes, number: int = 0, size: int = 128) -> bool:
    try:
        ExtensionSender(base.seeds, size).block(number, message)
    except ProtocolViolation:
        return True
    return False


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("size", SIZES)
def test_the_receiver_has_the_key_of_its_choice_and_no_other(base: Base, size: int) -> None:
    message, choices, keys = ExtensionReceiver(base.pairs, size).block(3)
    both = ExtensionSender(base.seeds, size).block(3, message)
    assert len(message) == message_bytes(size) == 16 * (size + 256) + 32 + 4096
    assert (choices.shape, keys.shape, both.shape) == ((size,), (size, 16), (2, size, 16))
    assert choices.dtype == keys.dtype == both.dtype == np.uint8
    assert np.array_equal(both[choices, np.arange(size)], keys)
    # All keys are different, so none of the others is one that the receiver has.
    assert len({key.tobytes() for key in both.reshape(-1, 16)}) == 2 * size


def test_the_choices_are_balanced(base: Base) -> None:
    """65,536 fair bits: 10 standard deviations, which is a failure in 10^23 runs."""
    _, choices, _ = ExtensionReceiver(base.pairs, BLOCK_SIZE).block(0)
    assert set(np.unique(choices)) == {0, 1}
    assert abs(int(choices.sum()) - BLOCK_SIZE // 2) < 10 * 128


@pytest.mark.parametrize("size", [128, 640, BLOCK_SIZE])
def test_both_ways_agree(
    base: Base, native: Kernels, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    message, choices, keys = ExtensionReceiver(base.pairs, size).block(7)
    both = ExtensionSender(base.seeds, size).block(7, message)
    monkeypatch.setattr(kernels, "native", None)
    slow_message, slow_choices, slow_keys = ExtensionReceiver(base.pairs, size).block(7)
    assert message == slow_message
    assert np.array_equal(choices, slow_choices)
    assert np.array_equal(keys, slow_keys)
    assert np.array_equal(both, ExtensionSender(base.seeds, size).block(7, message))


@pytest.mark.usefixtures("either")
def test_blocks_in_any_order(base: Base) -> None:
    receiver, sender = ExtensionReceiver(base.pairs, 128), ExtensionSender(base.seeds, 128)
    numbers = (0, 1, 2, 2**40)
    first = {number: receiver.block(number) for number in numbers}
    both = {number: sender.block(number, first[number][0]) for number in numbers}
    for number in reversed(numbers):
        again = ExtensionReceiver(base.pairs, 128).block(number)
        assert again[0] == first[number][0]
        assert all(map(np.array_equal, again[1:], first[number][1:]))
        resumed = ExtensionSender(base.seeds, 128)
        assert np.array_equal(resumed.block(number, again[0]), both[number])
        assert np.array_equal(sender.block(number, memoryview(again[0])), both[number])
    for results in (first.values(), both.values()):
        assert len({str(each) for each in results}) == len(numbers)
    keys = {key.tobytes() for each in both.values() for key in each.reshape(-1, 16)}
    assert len(keys) == len(numbers) * 256


def test_sessions_and_block_sizes_have_other_keys(base: Base) -> None:
    """The seeds alone do not determine a block: the context and the size are part of it."""
    context = bytes(32)
    elsewhere = replace(base.pairs, context=context)
    streams = [
        ExtensionReceiver(pairs, size).block(0)
        for pairs, size in ((base.pairs, 128), (elsewhere, 128), (base.pairs, 256))
    ]
    assert len({message[:16] for message, _, _ in streams}) == 3
    assert len({choices[:128].tobytes() for _, choices, _ in streams}) == 3
    assert len({keys[:128].tobytes() for _, _, keys in streams}) == 3
    assert rejected(base, streams[1][0])
    sender = ExtensionSender(replace(base.seeds, context=context), 128)
    assert sender.block(0, streams[1][0]).shape == (2, 128, 16)


def test_a_message_of_another_block_is_rejected(base: Base) -> None:
    message, _, _ = ExtensionReceiver(base.pairs, 128).block(1)
    assert not rejected(base, message, number=1)
    assert rejected(base, message, number=2)


def test_blocks_in_threads(base: Base) -> None:
    receiver, sender = ExtensionReceiver(base.pairs, 1024), ExtensionSender(base.seeds, 1024)
    with ThreadPoolExecutor(4) as pool:
        blocks = list(pool.map(receiver.block, range(16)))
        both = list(pool.map(lambda n: sender.block(n, blocks[n][0]), range(16)))
    for (_, choices, keys), pair in zip(blocks, both, strict=True):
        assert np.array_equal(pair[choices, np.arange(1024)], keys)


@pytest.mark.usefixtures("either")
def test_the_deviating_receiver_can_be_honest(base: Base) -> None:
    """The helper of the tests below sends the honest message if it changes nothing."""
    honest, _, _ = ExtensionReceiver(base.pairs, 128).block(0)
    assert DeviatingReceiver(base.pairs, 128).message(0, {}, guesses={}) == honest


@pytest.mark.usefixtures("either")
def test_other_choices_in_one_column_pass_only_with_the_right_guess(base: Base) -> None:
    """This is the protocol's known leak: a wrong guess ends the run, a right one is worth a bit."""
    receiver = DeviatingReceiver(base.pairs, 128)
    for column in range(0, 128, 3):
        flips = {column: one_bit(128, 5 * column % 384)}
        bit = base.seeds.choices[column]
        assert not rejected(base, receiver.message(0, flips, guesses={column: bit}))
        assert rejected(base, receiver.message(0, flips, guesses={column: 1 - bit}))


def test_other_choices_in_several_columns_need_all_guesses(base: Base) -> None:
    receiver = DeviatingReceiver(base.pairs, 256)
    columns = (3, 64, 90)
    flips = {column: one_bit(256, column) for column in columns}
    for guess in range(8):
        guesses = {column: guess >> i & 1 for i, column in enumerate(columns)}
        right = all(base.seeds.choices[column] == bit for column, bit in guesses.items())
        message = receiver.message(0, flips, guesses=guesses)
        assert rejected(base, message, size=256) is not right


@pytest.mark.parametrize("row", [0, 1, 127, 128, 255, 256, 511])
def test_other_choices_in_half_of_the_columns(base: Base, row: int) -> None:
    """Also in the padding (rows from 256); a guess of 64 bits would be needed."""
    flips = {column: one_bit(256, row) for column in range(0, 128, 2)}
    for guess in (0, 1):
        message = DeviatingReceiver(base.pairs, 256).message(
            0, flips, guesses=dict.fromkeys(flips, guess)
        )
        assert rejected(base, message, size=256)


def test_random_messages_are_rejected(base: Base) -> None:
    generator = np.random.default_rng(1)
    for _ in range(20):
        assert rejected(base, generator.bytes(message_bytes(128)))
    assert rejected(base, bytes(message_bytes(128)))


def flipped(message: bytes, bit: int) -> bytes:
    changed = bytearray(message)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def assert_flips_are_rejected(base: Base, step: int) -> None:
    message, _, _ = ExtensionReceiver(base.pairs, 128).block(0)
    sender = ExtensionSender(base.seeds, 128)
    for bit in range(0, 8 * len(message), step):
        sender._failed = False
        with pytest.raises(ProtocolViolation, match="inconsistent"):
            sender.block(0, flipped(message, bit))


@pytest.mark.usefixtures("native")
def test_every_flipped_bit_is_rejected(base: Base) -> None:
    assert_flips_are_rejected(base, step=1)


@pytest.mark.usefixtures("without_kernels")
def test_a_flipped_bit_is_rejected_without_kernels(base: Base) -> None:
    assert_flips_are_rejected(base, step=1009)


@pytest.mark.parametrize("change", [-message_bytes(128), -32, -1, 1, 16, message_bytes(128)])
def test_messages_of_another_size(base: Base, change: int) -> None:
    message, _, _ = ExtensionReceiver(base.pairs, 128).block(0)
    wrong = (message + message)[: len(message) + change]
    with pytest.raises(ProtocolViolation, match=f"{len(wrong)} bytes, not {len(message)}"):
        ExtensionSender(base.seeds, 128).block(0, wrong)


def test_another_message_for_the_same_block(base: Base) -> None:
    """With other choices for the same block the receiver would get the other keys."""
    receiver, sender = DeviatingReceiver(base.pairs, 128), ExtensionSender(base.seeds, 128)
    message, _, _ = receiver.block(0)
    other = receiver.message(0, {}, guesses={}, everywhere=one_bit(128, 0))
    exchanged = ExtensionSender(base.seeds, 128).block(0, other)
    both = sender.block(0, message)
    assert np.array_equal(exchanged[::-1, 0], both[:, 0])  # so both must not be answered
    assert np.array_equal(exchanged[:, 1:], both[:, 1:])
    with pytest.raises(ProtocolViolation, match="came again with other contents"):
        sender.block(0, other)
    assert np.array_equal(sender.block(0, message), both)


def test_nothing_is_accepted_after_an_inconsistent_message(base: Base) -> None:
    message, _, _ = ExtensionReceiver(base.pairs, 128).block(0)
    sender = ExtensionSender(base.seeds, 128)
    with pytest.raises(ProtocolViolation, match="do not use the secrets"):
        sender.block(0, flipped(message, 0))
    with pytest.raises(ProtocolViolation, match="after inconsistent ones"):
        sender.block(0, message)


def test_the_check_reveals_nothing_but_the_padding(base: Base) -> None:
    """For every hash of x that a receiver may send, some padding explains it, whatever x is.

    So uniform padding makes the hash uniform: flipping any bit of the padding of x flips exactly
    that bit of its hash, for the same points.
    """
    points = bytes(range(HASH_BYTES))
    column = np.frombuffer(np.random.default_rng(2).bytes(16 * _column_blocks(128)), np.uint8)
    before = column_hashes(column[None], points)
    for bit in range(256):
        changed = column.copy()
        changed[16 + bit // 8] ^= 1 << bit % 8
        difference = column_hashes(changed[None], points) ^ before
        assert int.from_bytes(difference.tobytes(), "little") == 1 << bit


@pytest.mark.parametrize("size", [0, 64, 127, 129, -128])
def test_sizes_of_blocks(base: Base, size: int) -> None:
    with pytest.raises(ValueError, match="multiple of 128"):
        ExtensionReceiver(base.pairs, size)
    with pytest.raises(ValueError, match="multiple of 128"):
        ExtensionSender(base.seeds, size)


@pytest.mark.parametrize("number", [-1, 2**56])
def test_numbers_of_blocks(base: Base, number: int) -> None:
    with pytest.raises(ValueError, match="no block"):
        ExtensionReceiver(base.pairs, 128).block(number)
    with pytest.raises(ValueError, match="no block"):
        ExtensionSender(base.seeds, 128).block(number, b"")


@pytest.mark.usefixtures("either")
def test_what_this_release_computes() -> None:
    """Another release that differs cannot resume the runs of this one."""
    seeds = [bytes([i]) * 32 for i in range(256)]
    pairs = SeedPairs(bytes(32), tuple(zip(seeds[::2], seeds[1::2], strict=True)), b"c" * 32)
    bits = tuple(i % 3 % 2 for i in range(128))
    chosen = tuple(pair[bit] for pair, bit in zip(pairs.pairs, bits, strict=True))
    message, choices, keys = ExtensionReceiver(pairs, 256).block(9)
    both = ExtensionSender(ChosenSeeds(bytes(32), bits, chosen), 256).block(9, message)
    assert np.array_equal(both[choices, np.arange(256)], keys)
    seen = hashlib.sha256(message + choices.tobytes() + both.tobytes()).hexdigest()
    assert seen == EXPECTED


EXPECTED = "c0183cec13aed9b7a5544a7e31ba979cc517884dd8b1a70e01158fe78307ac94"
