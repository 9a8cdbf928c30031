"""Transfers of one of C messages by a label, from random 1-of-2 transfers.

A row uses w = ceil(log2 C) random transfers, one for each bit of its label. The receiver sends the
corrections d = r ^ bit, where r are its random choices: a one-time pad on the bits, so the sender
learns nothing of the label. The sender exchanges the two keys of a transfer where d is 1. Then the
receiver has the key of each bit of its label, and the key of message c combines those of the bits
of c (Naor and Pinkas, STOC 1999):

    key(c) = F(k[0][c's bit 0], c) ^ ... ^ F(k[w-1][c's bit w-1], c)    with a pseudorandom F

Every other message differs in a bit, so its key contains a term of which the receiver has no key,
at an input that occurs in no other message. For C = 2 the key of a bit is the key of the message.

One correction must be answered for each transfer, and never a second one that differs: a receiver
whose two corrections of one transfer are answered has both keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from florist.common.core.errors import ProtocolViolation
from florist.common.oblivious_transfer.fixed_key_aes import SELECTION_KEY, Words, masked_permutation

if TYPE_CHECKING:
    from florist.common.oblivious_transfer.kernels import ByteArray, Bytes

KEY_BYTES = 16
#: Classes that a label may have; the work of a sender is proportional to their number.
MOST_CLASSES = 1 << 16

#: One class per row: (n,).
Labels = npt.NDArray[np.integer]


def transfers_per_row(classes: int) -> int:
    """Return ceil(log2 C): the random transfers that one row uses."""
    if not 2 <= classes <= MOST_CLASSES:
        raise ValueError(f"there are 2 to {MOST_CLASSES} classes, not {classes}")
    return (classes - 1).bit_length()


def corrections_bytes(rows: int, classes: int) -> int:
    """Return the size of the corrections for so many rows."""
    return -(-rows * transfers_per_row(classes) // 8)


def corrections(labels: Labels, choices: ByteArray, *, classes: int) -> bytes:
    """Return what the receiver sends so that its random choices become its labels.

    Args:
        labels: The class of each row, from 0: (n,).
        choices: The receiver's random choices: (n · `transfers_per_row(classes)`,).
        classes: How many classes there are.

    Returns:
        One bit for each choice, the first in the lowest bit; `corrections_bytes` bytes.
    """
    bits = _bits(labels, classes)
    if choices.shape != (bits.size,):
        raise ValueError(f"{choices.size} choices for {bits.size} bits of labels")
    return np.packbits(bits.reshape(-1) ^ choices, bitorder="little").tobytes()


def chosen_keys(labels: Labels, keys: ByteArray, *, classes: int) -> ByteArray:
    """Return the key of each row's message for the receiver: (n, 16).

    Args:
        labels: The class of each row, from 0: (n,).
        keys: The receiver's keys of the random transfers: (n · `transfers_per_row(classes)`, 16).
        classes: How many classes there are.
    """
    count, width = _bits(labels, classes).shape
    if keys.shape != (count * width, KEY_BYTES):
        raise ValueError(f"{len(keys)} keys for {count * width} bits of labels")
    if width == 1:
        return keys.copy()
    of_bits = _words(keys).reshape(count, width, 2).transpose(1, 0, 2)
    return _combined(of_bits, labels.astype(np.uint64))


def class_keys(corrections: Bytes, keys: ByteArray, *, classes: int) -> ByteArray:
    """Return the key of each class and row for the sender: (C, n, 16).

    Args:
        corrections: What the receiver sent.
        keys: The sender's keys of the random transfers:
            (2, n · `transfers_per_row(classes)`, 16).
        classes: How many classes there are.

    Raises:
        ProtocolViolation: the corrections have the wrong size, or bits beyond the last.
    """
    width = transfers_per_row(classes)
    transfers = keys.shape[1]
    if keys.shape != (2, transfers, KEY_BYTES) or transfers % width:
        raise ValueError(f"keys of shape {keys.shape} for {width} transfers per row")
    count = transfers // width
    received = np.frombuffer(corrections, dtype=np.uint8)
    if received.size != corrections_bytes(count, classes):
        raise ProtocolViolation(
            f"the corrections of {count} oblivious transfers have {received.size} bytes, not "
            f"{corrections_bytes(count, classes)}"
        )
    bits = np.unpackbits(received, bitorder="little")
    if bits[transfers:].any():
        raise ProtocolViolation("the corrections of oblivious transfers have too many bits")
    swap = np.uint64(0) - bits[:transfers].astype(np.uint64)  # all ones where the keys change
    zero, one = _words(keys[0]), _words(keys[1])
    exchanged = (zero ^ one) & swap[:, None]
    of_bits = np.stack((zero ^ exchanged, one ^ exchanged))
    if width == 1:
        return of_bits.view(np.uint8)
    # (value of the bit, bit, row, word)
    of_bits = np.ascontiguousarray(of_bits.reshape(2, count, width, 2).transpose(0, 2, 1, 3))
    out = np.empty((classes, count, KEY_BYTES), dtype=np.uint8)
    for label in range(classes):
        values = label >> np.arange(width) & 1
        out[label] = _combined(of_bits[values, np.arange(width)], np.uint64(label))
    return out


def _bits(labels: Labels, classes: int) -> ByteArray:
    """Return the bits of each label, the lowest first: (n, w)."""
    width = transfers_per_row(classes)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError("labels are one-dimensional arrays of integers")
    if labels.size and not (labels.min() >= 0 and labels.max() < classes):
        raise ValueError(f"labels are 0 to {classes - 1}")
    return (labels[:, None].astype(np.int64) >> np.arange(width) & 1).astype(np.uint8)


def _words(keys: ByteArray) -> Words:
    return np.ascontiguousarray(keys).view("<u8")


def _combined(of_bits: Words, labels: npt.NDArray[np.uint64] | np.uint64) -> ByteArray:
    """Combine the keys of a label's bits, (w, n, 2), into the key of the message: (n, 16)."""
    inputs = np.array(of_bits, dtype="<u8", order="C")
    inputs[:, :, 0] ^= labels
    combined = np.bitwise_xor.reduce(masked_permutation(SELECTION_KEY, inputs), axis=0)
    return np.ascontiguousarray(combined).view(np.uint8)
