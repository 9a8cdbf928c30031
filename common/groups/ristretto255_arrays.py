"""ristretto255 on whole arrays: the kernels, or the same one element at a time without them.

Points are elements in the form in which the kernels compute, 20 words each: X, Y, Z and T of
`ristretto255.Element` with five limbs of 51 bits. Several points represent the same element:
compare encodings. Scalars have 32 bytes, little-endian. With the kernels, the time of a function
and the addresses that it uses do not depend on points or scalars. `accumulate` uses addresses that
depend on coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

import gmpy2  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from florist.common.groups import kernels
from florist.common.groups.ristretto255 import (
    ENCODED_BYTES,
    IDENTITY,
    ORDER,
    Element,
    times_generator,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Encoded elements or scalars: (n, 32).
ByteRows: TypeAlias = npt.NDArray[np.uint8]
#: Points: (n, 20).
Points: TypeAlias = npt.NDArray[np.uint64]

POINT_WORDS = 20
SCALAR_BYTES = 32
#: Uniform bytes from which a scalar is made.
WIDE_BYTES = 64

_LIMBS = 5
_LIMB_BITS = 51
_LIMB_MASK = (1 << _LIMB_BITS) - 1
_P = gmpy2.mpz(2**255 - 19)
_TABLE_WORDS = 64 * 8 * 16


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Base:
    """An element by which many scalars are multiplied."""

    element: Element
    #: The table of the kernels; empty without them.
    table: npt.NDArray[np.uint64]


def decode(encoded: ByteRows) -> tuple[Points, npt.NDArray[np.bool_]]:
    """Return the points of encoded elements, and whether each encoding is valid.

    An invalid one becomes the neutral element.

    Args:
        encoded: (n, 32).
    """
    encoded = _rows(encoded, ENCODED_BYTES)
    native = kernels.native
    if native is None:
        decoded = [Element.decode(row.tobytes()) for row in encoded]
        valid = np.array([element is not None for element in decoded], dtype=np.bool_)
        return points_of(IDENTITY if element is None else element for element in decoded), valid
    points = np.empty((len(encoded), POINT_WORDS), dtype=np.uint64)
    flags = np.empty(len(encoded), dtype=np.uint8)
    kernel = native.ristretto_decode_ifma if native.ifma_available() else native.ristretto_decode
    kernel(encoded, points, flags)
    return points, flags.view(np.bool_)


def encode(points: Points) -> ByteRows:
    """Return the only encoding of each element: (n, 32)."""
    native = kernels.native
    if native is None:
        return _byte_rows([element.encode() for element in elements_of(points)], ENCODED_BYTES)
    out = np.empty((len(points), ENCODED_BYTES), dtype=np.uint8)
    kernel = native.ristretto_encode_ifma if native.ifma_available() else native.ristretto_encode
    kernel(np.ascontiguousarray(points), out)
    return out


def neutral(count: int) -> Points:
    """Return points of the neutral element."""
    points = np.zeros((count, POINT_WORDS), dtype=np.uint64)
    points[:, [_LIMBS, 2 * _LIMBS]] = 1  # Y and Z
    return points


def add(a: Points, b: Points) -> Points:
    """Return a[i] + b[i] for all i, or a[i] + b[0] if `b` has one point only."""
    native = kernels.native
    if native is None:
        others = elements_of(np.broadcast_to(b, a.shape))
        return points_of(x.plus(y) for x, y in zip(elements_of(a), others, strict=True))
    out = np.empty_like(a, order="C")
    native.ristretto_add(np.ascontiguousarray(a), np.ascontiguousarray(b), out)
    return out


def multiply(points: Points, scalar: bytes) -> Points:
    """Multiply each element by the same scalar."""
    native = kernels.native
    if native is None:
        factor = int.from_bytes(scalar, "little") % ORDER
        return points_of(element.times(factor) for element in elements_of(points))
    out = np.empty_like(points, order="C")
    native.ristretto_multiply(np.ascontiguousarray(points), scalar, out)
    return out


def multiply_each(points: Points, scalars: ByteRows) -> Points:
    """Multiply each element by its own scalar. It takes a call per element: for few of them."""
    scalars = _rows(scalars, SCALAR_BYTES)
    out = np.empty_like(points, order="C")
    for i, scalar in enumerate(scalars):
        out[i : i + 1] = multiply(points[i : i + 1], scalar.tobytes())
    return out


def base_of(point: Points) -> Base:
    """Prepare multiplications of the element of one point: (1, 20)."""
    native = kernels.native
    table = np.empty(0 if native is None else _TABLE_WORDS, dtype=np.uint64)
    if native is not None:
        native.ristretto_table(np.ascontiguousarray(point), table)
    return Base(elements_of(point)[0], table)


def generator() -> Base:
    """Return the generator of the group."""
    return _generator(kernels.native is not None)


@cache
def _generator(native: bool) -> Base:  # noqa: FBT001 - the key of the cache
    del native
    return base_of(points_of([times_generator(1)]))


def multiply_base(base: Base, scalars: ByteRows) -> Points:
    """Multiply one element by each scalar."""
    scalars = _rows(scalars, SCALAR_BYTES)
    native = kernels.native
    if native is None:
        times = times_generator if base is generator() else base.element.times
        return points_of(times(scalar % ORDER) for scalar in _numbers(scalars))
    out = np.empty((len(scalars), POINT_WORDS), dtype=np.uint64)
    if native.ifma_available():
        native.ristretto_multiply_table_ifma(base.table, scalars, out)
    else:
        native.ristretto_multiply_table(base.table, scalars, out)
    return out


def ordinates(points: Points) -> npt.NDArray[np.uint64]:
    """Return the low 64 bits of y = Y/Z of each point.

    A point and its negative have the same y, and no others. Use it on points of `cleared`, because
    several points represent an element.
    """
    native = kernels.native
    out = np.empty(len(points), dtype=np.uint64)
    if native is None:
        for i, element in enumerate(elements_of(points)):
            out[i] = int(element.y * gmpy2.invert(element.z, _P) % _P) & 2**64 - 1
    else:
        native.ristretto_ordinates(np.ascontiguousarray(points), out)
    return out


def cleared(points: Points) -> Points:
    """Return four times each element, as the point that is in the subgroup of prime order.

    Points of the same element differ by a point of order 1, 2 or 4, which becomes zero. So these
    points are equal if and only if the elements are.
    """
    twice = add(points, points)
    return add(twice, twice)


def accumulate(
    sums: Points,
    pairs: Points,
    rows: npt.NDArray[np.int64],
    coordinates: npt.NDArray[np.int32],
) -> None:
    """Add pair `rows[i]` to the pair of sums `coordinates[i, c]`, for all i and c, in place.

    Args:
        sums: pairs of points, contiguous: (k, 2, 20).
        pairs: pairs of points from `decode`: (n, 2, 20).
        rows: below n: (m,).
        coordinates: below k: (m, columns).

    Raises:
        ValueError: a row or a coordinate is out of range, or the shapes do not match. Then no sum
            is changed.
    """
    if len(rows) != len(coordinates):
        raise ValueError(f"{len(rows)} rows, but coordinates of {len(coordinates)}")
    native = kernels.native
    if native is not None:
        vector = native.ifma_available()
        kernel = native.ristretto_accumulate_ifma if vector else native.ristretto_accumulate
        kernel(
            np.ascontiguousarray(pairs),
            np.ascontiguousarray(rows, dtype=np.int64),
            np.ascontiguousarray(coordinates, dtype=np.int32),
            sums,
        )
        return
    if _outside(rows, len(pairs)) or _outside(coordinates, len(sums)):
        raise ValueError("rows or coordinates: out of range")
    for row, places in zip(rows, coordinates, strict=True):
        for place in places:
            sums[place] = add(sums[place], pairs[row])


def reduced(wide: npt.NDArray[np.uint8]) -> ByteRows:
    """Reduce numbers of 64 bytes to scalars: (n, 64) to (n, 32)."""
    wide = _rows(wide, WIDE_BYTES)
    native = kernels.native
    if native is None:
        return _scalars(number % ORDER for number in _numbers(wide))
    out = np.empty((len(wide), SCALAR_BYTES), dtype=np.uint8)
    native.scalars_reduce(wide, out)
    return out


def multiply_add(scalars: ByteRows, factor: bytes, values: npt.NDArray[np.int64]) -> ByteRows:
    """Return scalars[i] · factor + values[i] modulo the order, below it."""
    scalars = _rows(scalars, SCALAR_BYTES)
    native = kernels.native
    if native is None:
        times = int.from_bytes(factor, "little")
        pairs = zip(_numbers(scalars), values.tolist(), strict=True)
        return _scalars((number * times + value) % ORDER for number, value in pairs)
    out = np.empty_like(scalars)
    native.scalars_multiply_add(scalars, factor, np.ascontiguousarray(values, dtype=np.int64), out)
    return out


def scalars_of(values: npt.NDArray[np.int64]) -> ByteRows:
    """Return integers as scalars, negative ones modulo the order."""
    zeros = np.zeros((len(values), SCALAR_BYTES), dtype=np.uint8)
    return multiply_add(zeros, bytes(SCALAR_BYTES), values)


def negated(scalars: ByteRows) -> ByteRows:
    """Return the negatives of scalars modulo the order."""
    minus_one = (ORDER - 1).to_bytes(SCALAR_BYTES, "little")
    return multiply_add(scalars, minus_one, np.zeros(len(scalars), dtype=np.int64))


def _rows(array: npt.NDArray[np.uint8], width: int) -> npt.NDArray[np.uint8]:
    if array.ndim != 2 or array.shape[1] != width or array.dtype != np.uint8:
        raise ValueError(f"{array.dtype} of shape {array.shape}, not bytes of shape (n, {width})")
    return np.ascontiguousarray(array)


def _outside(numbers: npt.NDArray[np.integer], end: int) -> bool:
    return bool(numbers.size and (numbers.min() < 0 or numbers.max() >= end))


def _numbers(rows: npt.NDArray[np.uint8]) -> list[int]:
    return [int.from_bytes(row.tobytes(), "little") for row in rows]


def _byte_rows(rows: list[bytes], width: int) -> ByteRows:
    return np.frombuffer(bytearray().join(rows), dtype=np.uint8).reshape(-1, width)


def _scalars(numbers: Iterable[int]) -> ByteRows:
    return _byte_rows([n.to_bytes(SCALAR_BYTES, "little") for n in numbers], SCALAR_BYTES)


def elements_of(points: Points) -> list[Element]:
    """Return points as single elements."""
    return [Element(*(_number(row[i : i + _LIMBS]) for i in range(0, 20, 5))) for row in points]


def _number(limbs: npt.NDArray[np.uint64]) -> int:
    number = gmpy2.mpz(0)
    for limb in reversed(limbs.tolist()):
        number = (number << _LIMB_BITS) + limb
    reduced_number: int = number % _P
    return reduced_number


def points_of(elements: Iterable[Element]) -> Points:
    """Return single elements as points."""
    words = [
        int(coordinate % _P) >> _LIMB_BITS * i & _LIMB_MASK
        for element in elements
        for coordinate in element
        for i in range(_LIMBS)
    ]
    return np.array(words, dtype=np.uint64).reshape(-1, POINT_WORDS)
