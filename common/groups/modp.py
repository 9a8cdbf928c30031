"""Quadratic residues modulo a safe prime: the group of the paper.

Exponentiation is gmpy2's `powmod_sec`, on threads. Its time and memory accesses depend on the sizes
of the numbers, but not on the bits of the exponent, unlike those of the faster `powmod`. Nothing
else is constant-time: conversions, Jacobi symbols and hashing process elements, never exponents,
and exponents are drawn and multiplied once per step, not once per element.
"""

from __future__ import annotations

import secrets
from math import prod
from typing import TYPE_CHECKING

import gmpy2  # type: ignore[import-untyped]
import numpy as np

from florist.common.core.errors import ConfigurationError, InternalError, ProtocolViolation
from florist.common.groups.group import Exponent
from florist.common.groups.hash_to_group import hash_to_residue
from florist.common.groups.parallel import Threads
from florist.common.storage.elements import Elements, is_array_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from florist.common.storage.id_column import IdColumn

MODP_ENGINES = ("gmpy2",)


def _prime(bits: int, offset: int) -> int:
    """Compute a prime of RFC 3526: 2^n - 2^(n-64) - 1 + 2^64·(⌊2^(n-130)·π⌋ + offset), n bits."""
    with gmpy2.context(gmpy2.get_context(), precision=bits):
        pi = int(gmpy2.floor(gmpy2.mul_2exp(gmpy2.const_pi(), bits - 130)))
    return (1 << bits) - (1 << bits - 64) - 1 + (pi + offset << 64)


#: Groups 14 and 15 of RFC 3526; p and (p - 1)/2 are prime.
PRIMES = {"modp2048": _prime(2048, 124476), "modp3072": _prime(3072, 1690314)}


class ModpGroup:
    """The squares modulo p, of prime order q = (p - 1)/2; big-endian numbers of fixed width."""

    #: Slices of this many elements take about a tenth of a second.
    _LARGEST_SLICE = 32

    def __init__(self, name: str, engine: str = "auto", threads: int = 0) -> None:
        """Create `modp2048` or `modp3072`; 0 threads means all cores."""
        if name not in PRIMES:
            raise ConfigurationError(f"unknown group {name!r}; choose one of: {', '.join(PRIMES)}")
        if engine not in ("auto", *MODP_ENGINES):
            raise ConfigurationError(
                f"group {name!r} has no engine {engine!r}; "
                f"choose one of: auto, {', '.join(MODP_ENGINES)}"
            )
        self.name = name
        self.engine = MODP_ENGINES[0]
        self._prime = PRIMES[name]
        self._order = (self._prime - 1) // 2
        self.width = self._prime.bit_length() // 8
        self._tag = f"FLORIST-V01-{name}_XOF:SHAKE-256_SQUARE_".encode()
        self._threads = Threads(threads)

    def hash_ids(self, ids: IdColumn) -> Elements:
        return self._encode(hash_to_residue(value, self._tag, self._prime) for value in ids)

    def random_exponent(self) -> Exponent:
        return Exponent(1 + secrets.randbelow(self._order - 1))

    def product(self, *exponents: Exponent) -> Exponent:
        return Exponent(prod(exponents) % self._order)

    def power(self, elements: Elements, exponent: Exponent) -> Elements:
        if not is_array_of(elements, self.width):
            raise InternalError(f"elements are not an array of {self.width}-byte rows")
        out = np.empty_like(elements)

        def raise_slice(start: int, stop: int) -> int:
            # This lets `powmod_sec` release the GIL; the context belongs to this thread.
            with gmpy2.context(gmpy2.get_context(), allow_release_gil=True):
                powers = [
                    gmpy2.powmod_sec(x, exponent, self._prime)
                    for x in self._decode(elements[start:stop])
                ]
            out[start:stop] = self._encode(int(x) for x in powers)
            return powers.count(1)

        if neutral := sum(
            self._threads.map_slices(raise_slice, len(elements), self._LARGEST_SLICE)
        ):
            raise ProtocolViolation(f"{neutral} of {len(elements)} elements have order 1")
        return out

    def validate(self, elements: Elements) -> None:
        if not is_array_of(elements, self.width):
            raise ProtocolViolation(f"elements are not an array of {self.width}-byte rows")
        numbers = self._decode(elements)
        out_of_range = sum(not 1 < x < self._prime for x in numbers)
        if out_of_range:
            raise ProtocolViolation(
                f"{out_of_range} of {len(elements)} elements are not between 1 and p"
            )
        non_residues = sum(gmpy2.jacobi(x, self._prime) != 1 for x in numbers)
        if non_residues:
            raise ProtocolViolation(
                f"{non_residues} of {len(elements)} elements are not quadratic residues"
            )

    def close(self) -> None:
        self._threads.close()

    def __repr__(self) -> str:
        return f"ModpGroup({self.name!r}, engine={self.engine!r}, threads={self._threads.count})"

    def _decode(self, elements: Elements) -> list[int]:
        data = elements.tobytes()
        return [
            int.from_bytes(data[start : start + self.width])
            for start in range(0, len(data), self.width)
        ]

    def _encode(self, numbers: Iterable[int]) -> Elements:
        data = b"".join(number.to_bytes(self.width) for number in numbers)
        return np.frombuffer(bytearray(data), dtype=np.uint8).reshape(-1, self.width)
