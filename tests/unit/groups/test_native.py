"""The kernels reject buffers of the wrong size; other tests check what they compute."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

from florist.common.groups import x25519_worker

if TYPE_CHECKING:
    from florist.common.groups.kernels import Bytes, Kernels
    from tests.unit.groups.conftest import BatchKernels


def offsets(*values: int) -> Bytes:
    return np.array(values, np.int64)


def test_sizes_of_expand_messages(native: Kernels) -> None:
    for data, where, tag, out, fault in (
        (b"abc", offsets(0, 4), b"t", 48, "offsets"),
        (b"abc", offsets(-1, 2), b"t", 48, "offsets"),
        (b"abc", offsets(0, 2, 1), b"t", 96, "offsets"),
        (b"abc", offsets(), b"t", 0, "offsets"),
        (b"abc", b"1234567", b"t", 0, "offsets: 7 bytes"),
        (b"abc", offsets(0, 3), bytes(256), 48, "dst"),
        (b"abc", offsets(0, 3), b"t", 96, "out: 2 items, not 1"),
        (b"abc", offsets(0, 3), b"t", 47, "out: 47 bytes"),
    ):
        with pytest.raises(ValueError, match=fault):
            native.expand_messages(data, where, tag, bytearray(out))


def test_sizes_of_the_others(native: Kernels) -> None:
    with pytest.raises(ValueError, match="uniform"):
        native.elligator2_map(bytes(47), bytearray(32))
    with pytest.raises(ValueError, match="out"):
        native.elligator2_map(bytes(48), bytearray(64))
    with pytest.raises(ValueError, match="points"):
        native.on_curve_batch(bytes(31), bytes(16))
    with pytest.raises(ValueError, match="random: 2 items, not 1"):
        native.on_curve_batch(bytes(32), bytes(32))
    with pytest.raises((BufferError, TypeError)):
        native.elligator2_map(bytes(48), bytes(32))


def test_sizes_with_ifma(native: Kernels) -> None:
    if not native.ifma_available():
        for kernel, arguments in (
            (native.expand_messages_ifma, (b"", offsets(0), b"t", bytearray())),
            (native.elligator2_map_ifma, (b"", bytearray())),
            (native.on_curve_batch_ifma, (b"", b"")),
        ):
            with pytest.raises(RuntimeError, match="cannot run"):
                kernel(*arguments)
        return
    with pytest.raises(ValueError, match="out: 2 items, not 1"):
        native.expand_messages_ifma(b"abc", offsets(0, 3), b"t", bytearray(96))
    with pytest.raises(ValueError, match="uniform"):
        native.elligator2_map_ifma(bytes(47), bytearray(32))
    # Eight points share 16 random bytes.
    for points, groups in ((1, 1), (8, 1), (9, 2)):
        native.on_curve_batch_ifma(bytes(32 * points), bytes(16 * groups))
        with pytest.raises(ValueError, match=f"random: {groups + 1} items, not {groups}"):
            native.on_curve_batch_ifma(bytes(32 * points), bytes(16 * (groups + 1)))


@pytest.mark.parametrize("name", ["ifma", "avx2"])
def test_sizes_of_multiplication(native: Kernels, name: str) -> None:
    multiply = getattr(native, f"x25519_{name}")
    if not getattr(native, f"{name}_available")():
        with pytest.raises(RuntimeError, match="cannot run"):
            multiply(bytes(32), bytes(32), bytearray(32))
        return
    for points, scalar, out, fault in (
        (33, 32, 32, "points"),
        (32, 31, 32, "scalar"),
        (32, 32, 64, "out"),
    ):
        with pytest.raises(ValueError, match=fault):
            multiply(bytes(points), bytes(scalar), bytearray(out))


@pytest.mark.parametrize("name", ["ifma", "avx2"])
@pytest.mark.parametrize("count", [1, 127, 128, 129, 255, 256, 257, 600])
def test_multiplication_in_place_across_blocks(native: Kernels, name: str, count: int) -> None:
    multiply = getattr(native, f"x25519_{name}")
    if not getattr(native, f"{name}_available")():
        pytest.skip(f"this CPU cannot run {name}")
    scalar, points = os.urandom(32), os.urandom(32 * count)
    expected = x25519_worker.multiply(points, scalar)
    buffer = np.frombuffer(bytearray(points + b"untouched"), np.uint8)
    multiply(buffer[: 32 * count], scalar, buffer[: 32 * count])
    assert buffer.tobytes() == expected + b"untouched"


def test_nothing_is_written_beyond_the_output(batch: BatchKernels) -> None:
    for count in range(1, 20):
        uniform = np.full((count + 8, 48), 7, np.uint8)
        batch.expand(bytes(5 * count), np.arange(count + 1) * 5, b"t", uniform[:count])
        assert (uniform[count:] == 7).all()
        points = np.full((count + 8, 32), 7, np.uint8)
        batch.map_to_curve(uniform[:count], points[:count])
        assert (points[count:] == 7).all()
