"""ElGamal on arrays against its definition, and the scalars that are derived for it."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.groups import ristretto255_arrays as arrays
from florist.common.groups.ristretto255 import ORDER, times_generator
from florist.common.label_aggregate.encryption import (
    blinded,
    decoded_pairs,
    decrypted,
    encrypted,
)
from florist.common.label_aggregate.key_derivation import (
    check_secret,
    derived,
    derived_scalar,
    row_scalars,
)
from tests.unit.label_aggregate.oracles import element, is_multiple, opened

KEY = bytes(range(32))


def random_scalars(count: int) -> arrays.ByteRows:
    return arrays.reduced(np.frombuffer(os.urandom(64 * count), np.uint8).reshape(-1, 64))


@pytest.mark.usefixtures("either")
def test_encryption_by_definition() -> None:
    key = random_scalars(1).tobytes()
    x = int.from_bytes(key, "little")
    values = np.array([0, 1, -1, 64, -64, 2**59, -(2**59)])
    randomness = random_scalars(len(values))
    pairs = encrypted(key, randomness, values)
    public = times_generator(x)
    for value, scalar, pair in zip(values.tolist(), randomness, pairs, strict=True):
        r = int.from_bytes(scalar.tobytes(), "little")
        assert element(pair[:32]).encode() == times_generator(r).encode()
        masked = public.times(r).plus(times_generator(value % ORDER))
        assert element(pair[32:]).encode() == masked.encode()
        assert is_multiple(opened(x, pair), value)
    plain = arrays.encode(decrypted(key, decoded_pairs(pairs, "x")))
    assert all(
        is_multiple(element(each), v) for each, v in zip(plain, values.tolist(), strict=True)
    )


@pytest.mark.usefixtures("either")
def test_blinding_adds_an_encryption_of_the_mask() -> None:
    key = random_scalars(1)
    x = int.from_bytes(key.tobytes(), "little")
    base = arrays.base_of(arrays.multiply_base(arrays.generator(), key))
    pairs = encrypted(key.tobytes(), random_scalars(3), np.array([5, -6, 0]))
    fresh, masks = random_scalars(3), random_scalars(3)
    points = blinded(decoded_pairs(pairs, "x"), base, fresh, masks)
    sent = arrays.encode(points.reshape(-1, 20)).reshape(-1, 64)
    for pair, before, t, mask, value in zip(sent, pairs, fresh, masks, (5, -6, 0), strict=True):
        scalar, m = (int.from_bytes(each.tobytes(), "little") for each in (t, mask))
        moved = element(before[:32]).plus(times_generator(scalar))
        assert element(pair[:32]).encode() == moved.encode()
        assert is_multiple(opened(x, pair), value + m)


@pytest.mark.usefixtures("either")
def test_row_scalars_are_a_function_of_row_and_value() -> None:
    values = np.array([3, -4, 0, 3, 2**59, -(2**59)])
    whole = row_scalars(KEY, 10, values)
    parts = [row_scalars(KEY, 10, values[:2]), row_scalars(KEY, 12, values[2:])]
    assert (whole == np.concatenate(parts)).all()
    assert len({each.tobytes() for each in whole}) == len(values)
    assert not (whole[0] == row_scalars(KEY, 10, np.array([4]))).all()
    assert not (whole[0] == row_scalars(bytes(32), 10, values[:1])).all()


def test_row_scalars_do_not_change() -> None:
    """A resumed run after an upgrade must send the same bytes."""
    scalars = row_scalars(KEY, 2**40, np.array([-1, 7]))
    assert [each.tobytes().hex() for each in scalars] == [PINNED_FIRST, PINNED_SECOND]
    assert derived_scalar(KEY, "a", b"b").hex() == PINNED_DERIVED


PINNED_FIRST = "872b5ea264747d5fa49de89b2efda88b71fe8c146deeb7f52b27c3167aa8ef0b"
PINNED_SECOND = "a749f57fb577ec6f419874ee3a97d929363e994c9ed48b8865a47f399b06380b"
PINNED_DERIVED = "94c63d236b06e3d72d65dbd53db69444d23fbb7ddbd54b0f56334ed0d39ab00f"


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=3), max_size=3), st.lists(st.binary(max_size=3), max_size=3))
def test_parts_are_kept_apart(one: list[bytes], other: list[bytes]) -> None:
    assert (derived(KEY, "p", *one) == derived(KEY, "p", *other)) == (one == other)
    assert derived(KEY, "p", *one) != derived(KEY, "q", *one)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_secrets_have_32_bytes(size: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        check_secret(bytes(size))
