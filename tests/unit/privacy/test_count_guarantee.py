"""The guarantee of private counts, computed exactly from the distribution of the peer's view.

The peer sees post-processing of `(shared + Z, size + Z + W)`, where `Z` and `W` are independent
draws. All probabilities are integer powers of q = exp(-epsilon) divided by the same number, so the
hockey-stick divergence of two views is a polynomial in q over that number: `divergence` compares
exponents, which are integers, and rounds nothing until it evaluates the polynomial with certified
bounds.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from fractions import Fraction
from itertools import count, product
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.privacy import exact_sampling
from florist.common.privacy.count_noise import CountNoise, exact_fraction, exp_bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The exponent of q for each possible result; each result has one, since it determines the draws.
View = dict[tuple[int, ...], int]

CASES = [(1.0, 1e-9), (0.5, 1e-6), (0.2, 1e-3), (3.0, 1e-9), (1.0, 0.3)]


def view(radius: int, shared: int, size: int) -> View:
    """Return what the peer sees of a party with `size` people of whom `shared` are shared."""
    values = range(2 * radius + 1)
    return {
        (shared + z, size + z + w): abs(z - radius) + abs(w - radius)
        for z, w in product(values, values)
    }


def independent(first: View, second: View) -> View:
    """Return the joint view of two independent runs."""
    return {one + other: first[one] + second[other] for one, other in product(first, second)}


def divergence(
    one: View, other: View, *, factor: int, noise: CountNoise, draws: int
) -> tuple[Fraction, Fraction]:
    """Return bounds on the hockey-stick divergence at exp(`factor` epsilon), in this direction.

    It is the smallest delta with P(S) <= exp(`factor` epsilon) Q(S) + delta for every set S of
    results: the sum of P(x) - exp(`factor` epsilon) Q(x) over all results x where it is positive.
    """
    polynomial: Counter[int] = Counter()
    for result, exponent in one.items():
        if result not in other:
            polynomial[exponent] += 1
        elif exponent < other[result] - factor:
            polynomial[exponent] += 1
            polynomial[other[result] - factor] -= 1
    powers = {exponent: exp_bounds(-noise.epsilon * exponent) for exponent in polynomial}
    low = sum(n * powers[e][0 if n > 0 else 1] for e, n in polynomial.items())
    high = sum(n * powers[e][1 if n > 0 else 0] for e, n in polynomial.items())
    # P(mean) = 1 / (sum of all weights), once per draw.
    scale = noise.probability_bounds(noise.mean)
    return low * scale[0] ** draws, high * scale[1] ** draws


def both_directions(
    one: View, other: View, *, noise: CountNoise, factor: int = 1, draws: int = 2
) -> list[tuple[Fraction, Fraction]]:
    return [
        divergence(first, second, factor=factor, noise=noise, draws=draws)
        for first, second in ((one, other), (other, one))
    ]


#: How one person of the other party changes (shared, size): one who is shared, one who is not.
SHARED, UNSHARED = (1, 1), (0, 1)


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
@pytest.mark.parametrize("person", [SHARED, UNSHARED])
def test_one_person_changes_both_numbers_within_the_guarantee(
    epsilon: float, delta: float, person: tuple[int, int]
) -> None:
    noise = CountNoise.for_guarantee(epsilon, delta)
    before, after = view(noise.radius, 3, 7), view(noise.radius, 3 + person[0], 7 + person[1])
    for low, high in both_directions(before, after, noise=noise):
        assert high <= exact_fraction(delta)
        # One epsilon covers both numbers: together they are as private as one of them.
        exact_low, exact_high = noise.delta_bounds
        assert low <= exact_high
        assert exact_low <= high


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
@pytest.mark.parametrize("person", [SHARED, UNSHARED])
def test_a_smaller_pool_would_not_suffice(
    epsilon: float, delta: float, person: tuple[int, int]
) -> None:
    radius = CountNoise.for_guarantee(epsilon, delta).radius - 1
    if radius < 1:
        return
    noise = CountNoise(exact_fraction(epsilon), radius)
    before, after = view(radius, 3, 7), view(radius, 3 + person[0], 7 + person[1])
    for low, _ in both_directions(before, after, noise=noise):
        assert low > exact_fraction(delta)


def test_the_divergence_agrees_with_the_probabilities_of_the_noise() -> None:
    """The same divergence from the definition, in fractions instead of exponents."""
    noise = CountNoise.for_guarantee(1.0, 1e-4)
    values = range(noise.pool_size + 1)
    chances = [noise.probability_bounds(z) for z in values]
    grow = exp_bounds(noise.epsilon)

    def chance(shared: int, size: int, result: tuple[int, ...]) -> tuple[Fraction, Fraction]:
        z = result[0] - shared
        w = result[1] - size - z
        if z not in values or w not in values:
            return Fraction(0), Fraction(0)
        return chances[z][0] * chances[w][0], chances[z][1] * chances[w][1]

    for person in (SHARED, UNSHARED):
        before, after = (3, 7), (3 + person[0], 7 + person[1])
        results = view(noise.radius, *before).keys() | view(noise.radius, *after).keys()
        for first, second in ((before, after), (after, before)):
            excess = [
                chance(*first, result)[1] - grow[0] * chance(*second, result)[0]
                for result in results
            ]
            total = sum(each for each in excess if each > 0)
            assert noise.delta_bounds[0] <= total <= Fraction(1, 10**4)


@pytest.mark.parametrize(
    ("shared", "unshared"), [(1, 1), (2, 0), (0, 2), (3, 2), (0, 5), (45, 0), (20, 25)]
)
def test_several_people_have_the_guarantee_of_a_group(shared: int, unshared: int) -> None:
    """With k people it is (k epsilon, delta (e^(k epsilon) - 1) / (e^epsilon - 1))."""
    noise, people = CountNoise.for_guarantee(1.0, 1e-9), shared + unshared
    before = view(noise.radius, 3, 7)
    after = view(noise.radius, 3 + shared, 7 + people)
    limit = sum(exp_bounds(noise.epsilon * k)[1] for k in range(people)) * Fraction(1, 10**9)
    for _, high in both_directions(before, after, noise=noise, factor=people):
        assert high <= limit


def test_runs_add_up() -> None:
    """Two unions are (2 epsilon, 2 delta)-private for one person: basic composition."""
    noise = CountNoise.for_guarantee(1.0, 0.05)
    for first_person, second_person in product((SHARED, UNSHARED), repeat=2):
        before = independent(view(noise.radius, 3, 7), view(noise.radius, 1, 4))
        after = independent(
            view(noise.radius, 3 + first_person[0], 7 + first_person[1]),
            view(noise.radius, 1 + second_person[0], 4 + second_person[1]),
        )
        for low, high in both_directions(before, after, noise=noise, factor=2, draws=4):
            assert high <= Fraction(1, 10)
            # One epsilon alone would not cover two runs.
            assert low > 0
        for low, _ in both_directions(before, after, noise=noise, factor=1, draws=4):
            assert low > Fraction(1, 10)


@settings(deadline=None, max_examples=30)
@given(
    st.fractions(Fraction(1, 4), 3, max_denominator=8),
    st.floats(1e-3, 0.5),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_any_guarantee_holds_for_any_sizes(
    epsilon: Fraction, delta: float, shared: int, unshared: int
) -> None:
    """Also for an empty set, one person and full overlap."""
    noise = CountNoise.for_guarantee(epsilon, delta)
    before = view(noise.radius, shared, shared + unshared)
    for person in (SHARED, UNSHARED):
        after = view(noise.radius, shared + person[0], shared + unshared + person[1])
        for _, high in both_directions(before, after, noise=noise):
            assert high <= exact_fraction(delta)


class _MoreNumbersNeededError(Exception):
    """The sampler asks for more random numbers: the probability of each one that it may get."""

    def __init__(self, chances: list[float]) -> None:
        self.chances = chances


@pytest.mark.parametrize(
    ("epsilon", "radius"), [(Fraction(1), 4), (Fraction(3, 2), 3), (Fraction(2), 2)]
)
def test_the_code_of_the_sampler_has_these_probabilities(
    epsilon: Fraction, radius: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run `draw` on every sequence of random numbers, the most probable first.

    The sequences that were not reached have a known total probability, so this bounds the
    probability of every value that the code returns. Trials with probability exp(-gamma) have a
    test of their own; here they are exact.
    """
    numbers: Iterator[int] = iter(())

    def choose(chances: list[float]) -> int:
        if (number := next(numbers, None)) is None:
            raise _MoreNumbersNeededError(chances)
        return number

    def trial(numerator: int, denominator: int, _: object) -> bool:
        success = math.exp(-numerator / denominator)
        return choose([1 - success, success]) == 1

    monkeypatch.setattr(exact_sampling, "bernoulli_exp", trial)
    sampler = CountNoise(epsilon, radius, lambda n: choose([1 / n] * n))
    found = dict.fromkeys(range(2 * radius + 1), 0.0)
    order = count()
    left: list[tuple[float, int, tuple[int, ...]]] = [(-1.0, 0, ())]
    for _ in range(20_000):
        minus_chance, _, chosen = heapq.heappop(left)
        numbers = iter(chosen)
        try:
            found[sampler.draw()] -= minus_chance
        except _MoreNumbersNeededError as needed:
            for number, each in enumerate(needed.chances):
                if each > 0:
                    entry = (minus_chance * each, next(order), (*chosen, number))
                    heapq.heappush(left, entry)
    unexplored = 1 - sum(found.values())
    assert 0 < unexplored < 0.06
    noise = CountNoise(epsilon, radius)
    for value, chance in found.items():
        assert chance <= noise.probability(value) + 1e-12
        assert noise.probability(value) <= chance + unexplored + 1e-12


def test_the_best_guess_between_two_neighbours_is_hardly_better_than_chance() -> None:
    """At epsilon 0.1 the likelihood-ratio test is right in at most 52.5% of all cases."""
    noise = CountNoise.for_guarantee(0.1, 1e-9)
    limit = exp_bounds(noise.epsilon)[1] / (1 + exp_bounds(noise.epsilon)[1])
    low = [noise.probability(z) for z in range(-1, noise.pool_size + 1)]
    moved = [noise.probability(z - 1) for z in range(-1, noise.pool_size + 1)]
    right = sum(max(a, b) for a, b in zip(low, moved, strict=True)) / 2
    assert right <= float(limit) + 1e-9 < 0.526
    noise = CountNoise(noise.epsilon, noise.radius, random.Random(3).randrange)
    guesses = 4000
    correct = 0
    for trial in range(guesses):
        person = trial % 2
        correct += (noise.draw() + person > noise.mean) == bool(person)
    assert correct / guesses <= 0.525 + 4 * 0.5 / guesses**0.5
