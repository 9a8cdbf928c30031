"""The default group: Curve25519 with u-coordinates only."""

from __future__ import annotations

import secrets
from math import prod
from typing import TYPE_CHECKING

from florist.common.core.errors import InternalError, ProtocolViolation
from florist.common.groups import curve25519
from florist.common.groups.engines import make_engine
from florist.common.groups.group import Exponent
from florist.common.groups.hash_to_group import CURVE_TAG, hash_to_curve
from florist.common.groups.parallel import Threads
from florist.common.storage.elements import Elements, is_array_of

if TYPE_CHECKING:
    from florist.common.storage.id_column import IdColumn


class X25519Group:
    """Points ±P of Curve25519, up to points of low order, encoded as the u-coordinate of P.

    The exponents k and -k have the same effect.
    """

    name = "x25519"
    width = curve25519.WIDTH

    def __init__(self, engine: str = "auto", threads: int = 0) -> None:
        """Use the given engine of `engines.py`; 0 threads means all cores."""
        self._threads = Threads(threads)
        self._engine = make_engine(engine, self._threads)

    @property
    def engine(self) -> str:
        return self._engine.name

    def hash_ids(self, ids: IdColumn) -> Elements:
        return hash_to_curve(ids, CURVE_TAG, self._threads)

    def random_exponent(self) -> Exponent:
        while True:
            exponent = 1 + secrets.randbelow(curve25519.ORDER - 1)
            if curve25519.has_clamped_form(exponent):
                return Exponent(exponent)

    def product(self, *exponents: Exponent) -> Exponent:
        return Exponent(prod(exponents) % curve25519.ORDER)

    def power(self, elements: Elements, exponent: Exponent) -> Elements:
        if not is_array_of(elements, self.width):
            raise InternalError(f"elements are not an array of {self.width}-byte rows")
        powers = self._engine.multiply(elements, curve25519.clamped(exponent))
        if neutral := curve25519.count_neutral(powers):
            raise ProtocolViolation(f"{neutral} of {len(elements)} elements are of low order")
        return powers

    def validate(self, elements: Elements) -> None:
        curve25519.check_points(elements, self._threads)

    def close(self) -> None:
        self._threads.close()
        self._engine.close()

    def __repr__(self) -> str:
        return f"X25519Group(engine={self.engine!r}, threads={self._threads.count})"
