"""Exact samplers: their probabilities by enumeration, and streams of numbers from a secret."""

from __future__ import annotations

import hmac
import math
import random
from collections import Counter
from fractions import Fraction
from itertools import product

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB
from hypothesis import given
from hypothesis import strategies as st

from florist.common.privacy.exact_sampling import SecretStream, bernoulli_exp, discrete_laplace

SECRET = bytes(range(32))


@pytest.mark.parametrize("gamma", [Fraction(0), Fraction(1), Fraction(1, 2), Fraction(2, 3)])
def test_bernoulli_trials_by_enumeration(gamma: Fraction) -> None:
    """Enumerate every sequence of random numbers: the probability of True is exp(-gamma)."""
    depth = 6

    class OutOfNumbersError(Exception):
        pass

    def outcome(choices: tuple[int, ...]) -> tuple[bool, Fraction]:
        """Replay comparisons: 0 stands for a number below the numerator, 1 for one above."""
        probability, used = Fraction(1), 0

        def below(n: int) -> int:
            nonlocal probability, used
            if used == len(choices):
                raise OutOfNumbersError
            success = Fraction(gamma.numerator, n)
            probability *= 1 - success if choices[used] else success
            used += 1
            return gamma.numerator if choices[used - 1] else gamma.numerator - 1

        result = bernoulli_exp(gamma.numerator, gamma.denominator, below)
        # Only the first of all sequences with the same beginning counts.
        return result, probability if used == len(choices) else Fraction(0)

    true = total = Fraction(0)
    for length in range(1, depth + 1):
        for choices in product((0, 1), repeat=length):
            try:
                result, probability = outcome(choices)
            except OutOfNumbersError:
                continue
            total += probability
            true += probability * result
    left = 1 - total
    assert left <= Fraction(1, math.factorial(depth))
    assert true <= Fraction(math.exp(-float(gamma))) + Fraction(1, 10**12)
    assert true + left >= Fraction(math.exp(-float(gamma))) - Fraction(1, 10**12)


@pytest.mark.parametrize("ratio", [(5, 2), (3, 1), (14, 4)])
def test_bernoulli_trials_with_an_exponent_above_1(ratio: tuple[int, int]) -> None:
    below = random.Random(5).randrange
    trials = 100_000
    true = sum(bernoulli_exp(*ratio, below) for _ in range(trials))
    expected = math.exp(-ratio[0] / ratio[1])
    assert abs(true / trials - expected) < 4 * math.sqrt(expected / trials)


def test_a_large_exponent_takes_little_time() -> None:
    assert not bernoulli_exp(10**30, 1, random.Random(1).randrange)


@pytest.mark.parametrize("ratio", [(-1, 2), (1, 0), (1, -1)])
def test_invalid_exponents(ratio: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="exponent"):
        bernoulli_exp(*ratio, random.randrange)


def test_the_discrete_laplace_distribution() -> None:
    below = random.Random(11).randrange
    epsilon, draws = Fraction(2, 5), 40_000
    found = Counter(discrete_laplace(epsilon, below) for _ in range(draws))
    q = math.exp(-float(epsilon))
    for value in range(-8, 9):
        expected = draws * (1 - q) / (1 + q) * q ** abs(value)
        assert abs(found[value] - expected) < 4.5 * math.sqrt(expected)


def test_a_stream_is_determined_by_its_secret_and_context() -> None:
    one, again = SecretStream(SECRET, b"a"), SecretStream(SECRET, b"a")
    bounds = [2, 3, 1, 10**9, 7, 2**64, 10**40, 5] * 400
    numbers = [one.below(n) for n in bounds]
    assert numbers == [again.below(n) for n in bounds]
    for other in (SecretStream(SECRET, b"b"), SecretStream(bytes(32), b"a")):
        assert numbers != [other.below(n) for n in bounds]
    assert SECRET.hex() not in repr(one)


def test_the_numbers_of_a_stream_never_change() -> None:
    """A run that a newer release resumes must draw the same noise."""
    stream = SecretStream(SECRET, b"label aggregate")
    assert [stream.below(1000) for _ in range(8)] == NUMBERS


NUMBERS = [505, 415, 941, 26, 376, 227, 906, 638]


def oracle(secret: bytes, context: bytes, bounds: list[int]) -> list[int]:
    """The definition of a stream, one block of AES at a time and with bits as text."""
    key = hmac.new(secret, b"florist/secret-stream/1/" + context, "sha256").digest()
    cipher = Cipher(AES256(key), ECB()).encryptor()
    blocks = [cipher.update(i.to_bytes(16)) for i in range(8 + 8 * len(bounds))]
    left = b"".join(blocks)
    numbers = []
    for bound in bounds:
        bits = len(f"{bound - 1:b}") if bound > 1 else 0
        while True:
            size = math.ceil(bits / 8)
            taken, left = left[:size], left[size:]
            text = "".join(f"{byte:08b}" for byte in taken)[:bits]
            if int(text or "0", 2) < bound:
                numbers.append(int(text or "0", 2))
                break
    return numbers


@given(
    st.binary(min_size=32, max_size=32),
    st.binary(max_size=20),
    st.lists(st.integers(1, 2**70), max_size=30),
)
def test_streams_match_their_definition(secret: bytes, context: bytes, bounds: list[int]) -> None:
    stream = SecretStream(secret, context)
    assert [stream.below(bound) for bound in bounds] == oracle(secret, context, bounds)


@pytest.mark.parametrize("bound", [2, 3, 10, 100, 257])
def test_streams_are_uniform(bound: int) -> None:
    stream = SecretStream(SECRET, b"uniform")
    expected = 500
    found = Counter(stream.below(bound) for _ in range(expected * bound))
    assert set(found) == set(range(bound))
    statistic = sum((times - expected) ** 2 / expected for times in found.values())
    assert abs(statistic - bound) < 4.5 * math.sqrt(2 * bound)


def test_invalid_streams() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        SecretStream(bytes(31), b"")
    with pytest.raises(ValueError, match="at least 1"):
        SecretStream(SECRET, b"").below(0)
