"""Discrete logarithms of small integers: baby steps and giant steps, for all elements at once.

The baby steps are the multiples 0 to B of the generator. Their y-coordinates are those of -B to 0
as well, so a giant step covers 2·B + 1 integers. The search starts at 0 and goes outwards in both
directions; most elements are found in a few steps. Each match is checked with the encodings.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from florist.common.groups.ristretto255_arrays import (
    add,
    cleared,
    encode,
    generator,
    multiply_base,
    neutral,
    ordinates,
    scalars_of,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.groups.ristretto255_arrays import Points

    Integers = npt.NDArray[np.int64]

#: The most baby steps; they need about 32 bytes each.
MAX_BABY_STEPS = 1 << 20
_MIN_BABY_STEPS = 1 << 6
#: Baby steps that are computed at once.
_BLOCK = 1 << 14
#: The largest bound for which numbers of steps and integers cannot overflow.
MAX_BOUND = 1 << 48


class _BabySteps(NamedTuple):
    """Multiples of the generator, by the y-coordinate of the point in the prime-order subgroup."""

    ordinates: npt.NDArray[np.uint64]
    #: Which multiple has the ordinate at the same place.
    multiples: Integers
    #: Whether an ordinate has these high bits: rejects most without a search.
    prefixes: npt.NDArray[np.bool_]
    shift: np.uint64

    @property
    def last(self) -> int:
        return len(self.multiples) - 1

    def find(self, wanted: npt.NDArray[np.uint64]) -> tuple[Integers, Integers]:
        """Return the places in `wanted` that match, and the multiple of each."""
        likely = np.flatnonzero(self.prefixes[wanted >> self.shift])
        places = np.searchsorted(self.ordinates, wanted[likely])
        places[places > self.last] = 0
        match = self.ordinates[places] == wanted[likely]
        return likely[match], self.multiples[places[match]]


def small_logarithms(points: Points, bound: int) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Return integers v with v·G = the element, and which elements have one up to `bound`.

    Args:
        points: (n, 20).
        bound: the largest absolute value, at most `MAX_BOUND`. The time grows with the
            absolute values, and with the bound if an element has no logarithm.

    Returns:
        The integers, 0 if there is none, and whether there is one: (n,) each.
    """
    if not 0 <= bound <= MAX_BOUND:
        raise ValueError(f"a bound of {bound}, not from 0 to {MAX_BOUND}")
    results, found = np.zeros(len(points), dtype=np.int64), np.zeros(len(points), dtype=np.bool_)
    baby = _baby_steps(_baby_step_count(bound, len(points)))
    encoded, width = encode(points), 2 * baby.last + 1
    both = cleared(_multiples(np.array([-width, width])))
    pending = np.arange(len(points))
    up = down = cleared(points)
    for step in range(-(-max(bound - baby.last, 0) // width) + 1):
        if step:
            up, down = add(up, both[:1]), add(down, both[1:])
        for moved, centre in ((up, step * width), (down, -step * width)) if step else ((up, 0),):
            places, multiples = baby.find(ordinates(moved))
            for candidates in (centre + multiples, centre - multiples):
                which = pending[places]
                good = (encode(_multiples(candidates)) == encoded[which]).all(axis=1)
                good &= np.abs(candidates) <= bound
                results[which[good]], found[which[good]] = candidates[good], True
        keep = ~found[pending]
        if not keep.all():
            pending, up, down = pending[keep], up[keep], down[keep]
        if not len(pending):
            break
    return results, found


def _baby_step_count(bound: int, elements: int) -> int:
    """Return a number for which baby and giant steps cost about the same, but not too much memory.

    A search through the whole range takes `elements` · bound / B giant steps.
    """
    return min(max(isqrt(bound * max(elements, 1)), _MIN_BABY_STEPS), MAX_BABY_STEPS, bound)


def _baby_steps(last: int) -> _BabySteps:
    """Compute the multiples 0 to `last`."""
    points = neutral(1)
    while (block := len(points)) < min(_BLOCK, last + 1):
        points = np.concatenate([points, add(points, cleared(_multiples(np.array([block]))))])
    step = cleared(_multiples(np.array([block])))
    found = np.empty(-(-(last + 1) // block) * block, dtype=np.uint64)
    for start in range(0, len(found), block):
        found[start : start + block] = ordinates(points)
        points = add(points, step)
    found = found[: last + 1]
    order = np.argsort(found)
    bits = last.bit_length() + 3
    prefixes = np.zeros(1 << bits, dtype=np.bool_)
    shift = np.uint64(64 - bits)
    prefixes[found >> shift] = True
    return _BabySteps(found[order], order, prefixes, shift)


def _multiples(numbers: Integers) -> Points:
    """Return v·G for integers v."""
    return multiply_base(generator(), scalars_of(numbers))
