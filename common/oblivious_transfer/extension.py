"""Random oblivious transfers by the million from 128 base transfers, in blocks of one message each.

The extension of Ishai, Kilian, Nissim and Petrank (CRYPTO 2003), with the consistency check of
`consistency.py`, so that a receiver that deviates learns no more than an honest one. Let G be the
stream of a seed, and x the random choices of a block and 256 more, which are padding for the check.
The receiver sends for each of 128 columns

    u[i] = G(seed[i][0]) ^ G(seed[i][1]) ^ x

and keeps the columns t[i] = G(seed[i][0]). The sender, with the bits s of its base choices, has
q[i] = G(seed[i][s[i]]) ^ s[i]·u[i] = t[i] ^ s[i]·x. In rows: q[j] = t[j] ^ x[j]·s. The two keys of
transfer j are H(j, q[j]) and H(j, q[j] ^ s), of which the receiver knows H(j, t[j]).

A block is a function of the base transfers and its number only: any block can be computed at any
time, and again. The order and the number of calls do not matter, and calls from several threads are
safe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ProtocolViolation
from florist.common.oblivious_transfer.base_transfers import TRANSFERS, ChosenSeeds, SeedPairs
from florist.common.oblivious_transfer.bit_matrix import transposed
from florist.common.oblivious_transfer.consistency import (
    HASH_BYTES,
    PADDING_BYTES,
    challenge,
    check_columns,
    column_hashes,
)
from florist.common.oblivious_transfer.fixed_key_aes import tweaked_hashes
from florist.common.oblivious_transfer.key_derivation import digest
from florist.common.oblivious_transfer.key_streams import BLOCK_BYTES, KEY_BYTES, key_streams

if TYPE_CHECKING:
    from florist.common.oblivious_transfer.kernels import ByteArray, Bytes

#: Random transfers per block, unless told otherwise.
BLOCK_SIZE = 1 << 16

_NO_OFFSET = bytes(KEY_BYTES)


def message_bytes(block_size: int) -> int:
    """Return the size of a receiver's message: a matrix, and the hashes of choices and columns."""
    return TRANSFERS * _column_bytes(block_size) + HASH_BYTES * (1 + TRANSFERS)


class ExtensionReceiver:
    """The receiver: it has one key of each pair, by random choices of its own."""

    def __init__(self, pairs: SeedPairs, block_size: int = BLOCK_SIZE) -> None:
        """Take the seeds of the base transfers, and the transfers per block: a multiple of 128."""
        self._context = pairs.context
        self._size = _checked_size(block_size)
        self._column_keys, self._other_keys = (
            [
                _column_key(pairs.context, block_size, i, j, pair[j])
                for i, pair in enumerate(pairs.pairs)
            ]
            for j in (0, 1)
        )
        self._choice_key = digest(
            "extension choice key", pairs.context, block_size, pairs.choice_seed
        )[:KEY_BYTES]

    def block(self, number: int) -> tuple[bytes, ByteArray, ByteArray]:
        """Return the message for the sender, the random choices, and the key of each choice.

        Returns:
            The message, of `message_bytes(block_size)` bytes; the choices, 0 or 1: (n,); and the
            keys: (n, 16).
        """
        first, blocks = _first_transfer(number, self._size), _column_blocks(self._size)
        # The choices are one more column, so that everything below treats them like the others.
        own = key_streams(_rows(*self._column_keys, self._choice_key), number, blocks)
        columns, choices = own[:TRANSFERS], own[TRANSFERS]
        matrix = key_streams(_rows(*self._other_keys), number, blocks)
        matrix ^= columns
        matrix ^= choices
        hashes = column_hashes(own, challenge(self._context, number, matrix))
        message = b"".join(
            (matrix.tobytes(), hashes[TRANSFERS].tobytes(), hashes[:TRANSFERS].tobytes())
        )
        bits = np.unpackbits(choices[: self._size // 8], bitorder="little")
        return message, bits, tweaked_hashes(transposed(columns, self._size), _NO_OFFSET, first)


class ExtensionSender:
    """The sender: it has both keys of each pair, and does not know which one the receiver has.

    An inconsistent message reveals a little about the sender's secret through the mere fact that it
    was rejected. So after one, this object rejects everything, and the secret must not be used in
    another run either.
    """

    def __init__(self, seeds: ChosenSeeds, block_size: int = BLOCK_SIZE) -> None:
        """Take the seeds of the base transfers, and the transfers per block: a multiple of 128."""
        self._context = seeds.context
        self._size = _checked_size(block_size)
        chosen = zip(seeds.choices, seeds.seeds, strict=True)
        self._column_keys = [
            _column_key(seeds.context, block_size, i, choice, seed)
            for i, (choice, seed) in enumerate(chosen)
        ]
        bits = np.array(seeds.choices, dtype=np.uint8)
        self._offset = np.packbits(bits, bitorder="little").tobytes()
        self._masks = (bits * np.uint8(255))[:, None]
        self._accepted: dict[int, bytes] = {}
        self._failed = False

    def block(self, number: int, message: Bytes) -> ByteArray:
        """Return both keys of each transfer of a block: (2, n, 16).

        The same message may come again; a different one for the same block is rejected, because
        together they would give the receiver both keys. This object remembers only what it has seen
        itself: a party that resumes compares with what it accepted before.

        Raises:
            ProtocolViolation: the message has the wrong size, is inconsistent, or differs from
                the one that came before for this block.
        """
        if self._failed:
            raise ProtocolViolation("no oblivious transfers are possible after inconsistent ones")
        first, blocks = _first_transfer(number, self._size), _column_blocks(self._size)
        received = np.frombuffer(message, dtype=np.uint8)
        if received.size != message_bytes(self._size):
            raise ProtocolViolation(
                f"a block of {self._size} oblivious transfers has {received.size} bytes, not "
                f"{message_bytes(self._size)}"
            )
        matrix, check = np.split(received, [TRANSFERS * blocks * BLOCK_BYTES])
        matrix, check = matrix.reshape(TRANSFERS, -1), check.reshape(1 + TRANSFERS, HASH_BYTES)
        points = challenge(self._context, number, matrix)
        columns = matrix & self._masks
        columns ^= key_streams(_rows(*self._column_keys), number, blocks)
        try:
            check_columns(columns, self._masks, points, check[0], check[1:])
        except ProtocolViolation:
            self._failed = True
            raise
        # One operation, so that of two different messages in two threads one is accepted.
        if self._accepted.setdefault(number, points) != points:
            raise ProtocolViolation("a block of oblivious transfers came again with other contents")
        rows = transposed(columns, self._size)
        keys = np.empty((2, self._size, KEY_BYTES), dtype=np.uint8)
        keys[0] = tweaked_hashes(rows, _NO_OFFSET, first)
        keys[1] = tweaked_hashes(rows, self._offset, first)
        return keys


def _checked_size(block_size: int) -> int:
    if block_size < 128 or block_size % 128:
        raise ValueError(f"a block has a multiple of 128 transfers, not {block_size}")
    return block_size


def _first_transfer(number: int, block_size: int) -> int:
    """Return the index of a block's first transfer, among those of all blocks."""
    if not 0 <= number < 2**63 // block_size:
        raise ValueError(f"there is no block {number}")
    return number * block_size


def _column_bytes(block_size: int) -> int:
    return block_size // 8 + PADDING_BYTES


def _column_blocks(block_size: int) -> int:
    return _column_bytes(block_size) // BLOCK_BYTES


def _column_key(context: bytes, block_size: int, column: int, choice: int, seed: bytes) -> bytes:
    """Return the key of a column's streams; other block sizes have unrelated ones."""
    return digest("extension column key", context, block_size, column, choice, seed)[:KEY_BYTES]


def _rows(*keys: bytes) -> ByteArray:
    return np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, KEY_BYTES)
