"""Secret draws: reproducible, independent, correctly distributed, and never displayed."""

from __future__ import annotations

import hashlib
import hmac
import struct

import numpy as np
import numpy.typing as npt
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from torch.special import ndtr

from florist.common.synthetic.secret_draws import SecretDraws

DRAWS = SecretDraws(bytes(range(32)))
N = 200_000
#: Of the secret 00 01 … 1f, purpose "label", times 2^53.
FIRST = [1898117373713525, 739224065913970, 3096727000736976]


def distance(cdf: npt.NDArray[np.floating]) -> float:
    """Return √n · Kolmogorov's distance, given the CDF at the sorted values; 2.2 is p = 1e-4."""
    steps = np.arange(len(cdf) + 1) / len(cdf)
    return float(max((steps[1:] - cdf).max(), (cdf - steps[:-1]).max()) * np.sqrt(len(cdf)))


def word(draws: SecretDraws, purpose: bytes, context: tuple[int, ...], position: int) -> int:
    """Return a word by a slow, simple version: one block of counter mode."""
    encoded = struct.pack("<II", len(purpose), len(context)) + purpose
    key = hmac.new(draws.secret, encoded, hashlib.sha256)
    for number in context:
        key.update(number.to_bytes(8, "little", signed=True))
    block = position.to_bytes(8, "little") + bytes(8)
    out = Cipher(algorithms.AES(key.digest()), modes.CBC(bytes(16))).encryptor().update(block)
    return int.from_bytes(out[:8], "little")


def integers(purpose: str, count: int, below: int) -> npt.NDArray[np.int64]:
    """The first integers of a stream."""
    return DRAWS.integers_at(purpose, np.arange(count), below)


@pytest.mark.parametrize("context", [(), (3,), (-1, 2**62)])
def test_words_follow_the_standards(context: tuple[int, ...]) -> None:
    positions = np.array([0, 1, 7, 10**12])
    words = [word(DRAWS, b"x", context, p) for p in positions.tolist()]
    uniforms = DRAWS.uniforms_at("x", positions, *context)
    assert uniforms.tolist() == [(w >> 11) / 2**53 for w in words]
    remainders = DRAWS.integers_at("x", positions, 1000, *context)
    assert remainders.tolist() == [w % 1000 for w in words]


def test_first_values_never_change_between_releases() -> None:
    assert (DRAWS.uniforms("label", 3) * 2**53).astype(int).tolist() == FIRST


@given(st.lists(st.integers(0, 500), max_size=30))
def test_draws_at_positions_equal_the_stream(positions: list[int]) -> None:
    at = np.array(positions, dtype=np.int64)
    assert np.array_equal(DRAWS.uniforms_at("p", at, 4), DRAWS.uniforms("p", 501, 4)[at])
    assert np.array_equal(DRAWS.integers_at("p", at, 9), integers("p", 501, 9)[at])


def test_positions_keep_their_shape() -> None:
    at = np.arange(12).reshape(3, 4)
    assert np.array_equal(DRAWS.uniforms_at("p", at), DRAWS.uniforms("p", 12).reshape(3, 4))
    assert DRAWS.uniforms("p", 0).shape == (0,)


def test_purposes_contexts_and_secrets_are_independent() -> None:
    streams = [
        DRAWS.uniforms("a", 1000),
        DRAWS.uniforms("b", 1000),
        DRAWS.uniforms("a", 1000, 0),
        DRAWS.uniforms("a", 1000, 1),
        DRAWS.uniforms("a", 1000, 0, 1),
        DRAWS.uniforms("a", 1000, 1, 0),
        SecretDraws(bytes(32)).uniforms("a", 1000),
        SecretDraws.fresh().uniforms("a", 1000),
        SecretDraws.from_seed(1).uniforms("a", 1000),
        SecretDraws.from_seed(2).uniforms("a", 1000),
        DRAWS.derive("test").uniforms("a", 1000),
        DRAWS.derive("test", 1).uniforms("a", 1000),
    ]
    correlations = np.corrcoef(streams) - np.eye(len(streams))
    assert np.abs(correlations).max() < 0.16  # five standard errors


def test_same_arguments_same_values() -> None:
    again = SecretDraws(bytes(range(32)))
    assert np.array_equal(DRAWS.uniforms("a", 9, 5), again.uniforms("a", 9, 5))
    assert np.array_equal(DRAWS.normals("a", (3, 5), 5), again.normals("a", (3, 5), 5))
    assert SecretDraws.from_seed(7).secret == SecretDraws.from_seed(7).secret
    assert DRAWS.derive("test").secret == again.derive("test").secret


def test_uniforms_are_uniform() -> None:
    values = DRAWS.uniforms("uniform", N)
    assert values.dtype == np.float64
    assert values.min() >= 0
    assert values.max() < 1
    assert distance(np.sort(values)) < 2.2


@pytest.mark.parametrize("below", [1, 2, 3, 10, 97])
def test_integers_are_uniform(below: int) -> None:
    values = integers("integer", N, below)
    assert values.dtype == np.int64
    counts = np.bincount(values, minlength=below)
    assert len(counts) == below
    chi_square = ((counts - N / below) ** 2).sum() / (N / below)
    assert chi_square <= (below - 1) + 5 * np.sqrt(2 * (below - 1))


def test_large_integers() -> None:
    values = integers("large", N, 2**62) / 2**62
    assert distance(np.sort(values)) < 2.2
    for below in (0, -1, 2**63):
        with pytest.raises(ValueError, match="upper bound"):
            integers("large", 1, below)


def test_normals_are_normal() -> None:
    values = DRAWS.normals("normal", (N // 4, 4))
    assert values.dtype == np.float32
    assert distance(ndtr(torch.from_numpy(np.sort(values.ravel()))).numpy()) < 2.2
    assert np.abs(values).max() < 6.8
    # The numbers of a block share radii and angles, yet they and their squares are independent.
    for numbers in (values, values**2):
        correlations = np.corrcoef(numbers.T) - np.eye(4)
        assert np.abs(correlations).max() < 5 / np.sqrt(N / 4)


@pytest.mark.parametrize("shape", [(0,), (5,), (3, 7), (2, 3, 5), (0, 4), ()])
def test_normals_have_any_shape(shape: tuple[int, ...]) -> None:
    values = DRAWS.normals("normal", shape)
    assert values.shape == shape
    count = int(np.prod(shape))
    assert np.array_equal(values.ravel(), DRAWS.normals("normal", (100,))[:count])


def test_normals_equal_the_slow_version() -> None:
    """Compare all four numbers per block, for more blocks than are converted at once."""
    count = 9000
    values = DRAWS.normals("normal", (count, 4), 5).astype(np.float64)
    for position in (0, 1, 8191, 8192, count - 1):
        block = position.to_bytes(8, "little") + bytes(8)
        key = DRAWS._key("normal", (5,))
        words = np.frombuffer(
            Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(block), "<u4"
        )
        radii = np.sqrt(-2 * np.log((words[:2] + 0.5) / 2**32))
        angles = words[2:] * (2 * np.pi / 2**32)
        expected = np.concatenate((radii * np.cos(angles), radii * np.sin(angles)))
        assert np.allclose(values[position], expected, rtol=1e-4, atol=1e-5)


def test_secret_is_never_shown() -> None:
    secret = b"a very secret secret of 32 bytes"
    shown = f"{SecretDraws(secret)!r} {SecretDraws(secret)}"
    assert shown == "SecretDraws(…) SecretDraws(…)"
    with pytest.raises(ValueError, match="32 bytes, not 5") as refused:
        SecretDraws(b"short")
    assert "short" not in str(refused.value)
