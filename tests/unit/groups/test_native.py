"""The kernels refuse what does not fit; that they compute the right thing is tested elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from florist.common.groups.kernels import Bytes, Kernels


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


@pytest.mark.parametrize("name", ["multibuffer", "avx2"])
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
