"""Private counts through the real union: what the sizes tell the peer about one person."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.groups import make_group
from florist.common.privacy.count_noise import CountNoise
from tests.protocol.test_psu_against_ideal import overlapping_sets
from tests.support.ideal_union import is_ideal
from tests.support.memory_storage import MemoryStorage
from tests.support.unions import CountingGroup, Side, attempt_both

if TYPE_CHECKING:
    from florist.common.psu.union_view import UnionView

GROUP = make_group("x25519")
ACTIVE = [b"ann", b"bob", b"eve"]
PASSIVE = [b"bob", b"dan"]


def run_union(
    active: list[bytes], passive: list[bytes], noise: CountNoise | None
) -> tuple[tuple[Side, Side], tuple[UnionView, UnionView]]:
    sides = (
        Side("active", CountingGroup(GROUP), active, MemoryStorage(), noise=noise),
        Side("passive", CountingGroup(GROUP), passive, MemoryStorage(), noise=noise),
    )
    return sides, attempt_both(*sides).views()


@settings(max_examples=15, deadline=None)
@given(overlapping_sets(largest=12), st.integers(1, 5))
def test_padding_changes_the_sizes_and_nothing_else(
    sets: tuple[list[bytes], list[bytes]], radius: int
) -> None:
    """Also for empty sets, one person, no overlap and full overlap."""
    noise = CountNoise(Fraction(1), radius)
    (active, passive), views = run_union(*sets, noise)
    assert active.secrets is not None
    assert passive.secrets is not None
    draws = [len(side.secrets.own.draws.chosen) for side in (active, passive) if side.secrets]
    both = len(set(sets[0]) & set(sets[1]))
    ours = views[0].sizes
    assert ours.own + ours.peer - ours.union == both + sum(draws)
    # The view of a runner also has what is public about the noise.
    assert ours.own == len(sets[0]) + noise.pool_size + draws[0] + active.secrets.own.draws.dummies
    ranks = [set(view.rank_of_own.tolist()) for view in views]
    assert len(ranks[0] & ranks[1]) == both + sum(draws)


def test_an_interrupted_union_keeps_its_draws_and_a_new_one_has_others() -> None:
    noise = CountNoise(Fraction(1, 100), 400)
    (active, passive), first = run_union(ACTIVE, PASSIVE, noise)
    active.die()  # its secrets come back sealed, by the key that the peer kept
    again = attempt_both(active, passive).views()
    assert again[0].sizes == first[0].sizes
    assert len(active.announced) == len(passive.announced) == 1
    active.die()
    passive.die()  # nobody has the keys: the union starts over
    other = attempt_both(active, passive).views()
    assert len(active.announced) == len(passive.announced) == 2
    assert (other[0].sizes.own, other[0].sizes.peer) != (first[0].sizes.own, first[0].sizes.peer)
    assert active.announced[0].commitment.root != active.announced[1].commitment.root


def right_guesses(noise: CountNoise | None, runs: int, extra: bytes) -> int:
    """Count how often the active party guesses right whether the passive party has one person.

    It knows everything else: its own draws, all other people, and the distribution of the noise.
    The best test chooses the likelier input for the two numbers that it sees.
    """
    right = 0
    for number in range(2 * runs):
        is_there = number % 2 == 1
        passive = [*PASSIVE, extra] if is_there else PASSIVE
        (active, _), views = run_union(ACTIVE, passive, noise)
        assert active.secrets is not None
        sizes, draws = views[0].sizes, active.secrets.own.draws
        pool = 0 if noise is None else noise.pool_size
        shared = sizes.own + sizes.peer - sizes.union - len(draws.chosen)
        seen = shared, sizes.peer - pool
        likelier = likelihood(noise, seen, [*PASSIVE, extra]) > likelihood(noise, seen, PASSIVE)
        right += likelier == is_there
    return right


def likelihood(noise: CountNoise | None, seen: tuple[int, int], passive: list[bytes]) -> float:
    """Return the probability of `(i + Z, |Ip| + Z + W)` if these are the passive party's people."""
    z = seen[0] - len(set(ACTIVE) & set(passive))
    w = seen[1] - len(passive) - z
    if noise is None:
        return float(z == 0 and w == 0)
    return noise.probability(z) * noise.probability(w)


@pytest.mark.parametrize("extra", [b"eve", b"zoe"], ids=["shared", "not shared"])
@pytest.mark.parametrize("runs", [60, pytest.param(400, marks=pytest.mark.slow)])
def test_neighbouring_sets_can_hardly_be_told_apart(runs: int, extra: bytes) -> None:
    """With ε = 0.1 the best test is right in at most 52.5% of the cases, and δ/2."""
    noise = CountNoise.for_guarantee(0.1, 0.02)
    delta = float(noise.delta_bounds[1])
    most = math.exp(0.1) / (1 + math.exp(0.1)) + delta / 2
    right = right_guesses(noise, runs, extra)
    assert right / (2 * runs) <= most + 4 * math.sqrt(0.25 / (2 * runs))


@pytest.mark.parametrize("extra", [b"eve", b"zoe"])
def test_without_noise_the_same_test_is_always_right(extra: bytes) -> None:
    assert right_guesses(None, 3, extra) == 6


def test_the_estimate_is_that_of_the_people_on_average() -> None:
    assert is_ideal(ACTIVE, PASSIVE, *run_union(ACTIVE, PASSIVE, None)[1])
    noise = CountNoise(Fraction(1), 5)
    runs = 60
    estimates = []
    for _ in range(runs):
        _, views = run_union(ACTIVE, PASSIVE, noise)
        sizes = views[0].sizes
        estimates.append(sizes.own + sizes.peer - sizes.union - noise.pool_size)
    error = math.sqrt(2) * noise.deviation / math.sqrt(runs)
    assert abs(sum(estimates) / runs - 1) < 5 * error
