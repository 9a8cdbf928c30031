"""The ideal functionality, and slow ways to open what the parties send."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.groups.ristretto255 import ORDER, Element, times_generator

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.groups.ristretto255_arrays import ByteRows


def plain_sums(
    values: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    coordinates: npt.NDArray[np.int32],
    count: int,
) -> list[int]:
    """Return the sum of the values of the rows with each coordinate."""
    sums = [0] * count
    for row, places in zip(rows.tolist(), coordinates.tolist(), strict=True):
        for place in places:
            sums[place] += int(values[row])
    return sums


def element(encoded: npt.NDArray[np.uint8]) -> Element:
    decoded = Element.decode(encoded.tobytes())
    assert decoded is not None
    return decoded


def opened(key: int, ciphertext: npt.NDArray[np.uint8]) -> Element:
    """Decrypt one ciphertext by definition: C - x·R."""
    return element(ciphertext[32:]).minus(element(ciphertext[:32]).times(key % ORDER))


def is_multiple(found: Element, number: int) -> bool:
    return found.encode() == times_generator(number % ORDER).encode()


def changed(message: ByteRows, row: int, part: slice, replacement: bytes) -> ByteRows:
    """Return the message with other bytes in a part of a row."""
    copy = message.copy()
    copy[row, part] = np.frombuffer(replacement, np.uint8)
    return copy
