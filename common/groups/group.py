"""The group in which IDs are encrypted: what the protocol needs of it, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, NewType, Protocol

if TYPE_CHECKING:
    from florist.common.storage.elements import Elements
    from florist.common.storage.id_column import IdColumn

#: A secret exponent modulo the group's prime order. Never printed, logged or stored.
Exponent = NewType("Exponent", int)


class Group(Protocol):
    """A group of prime order in which DDH is hard.

    All operations take and return whole arrays. They are safe to call from several threads and use
    the group's own workers; none changes its arguments.
    """

    @property
    def name(self) -> str:
        """As in the agreement: `x25519`, `modp2048`, `modp3072`."""
        ...

    @property
    def engine(self) -> str:
        """Which implementation raises elements to powers; bit-identical to any other."""
        ...

    @property
    def width(self) -> int:
        """Bytes of an encoded element."""
        ...

    def hash_ids(self, ids: IdColumn) -> Elements:
        """One element per ID, in order: the same for equal IDs on any machine."""
        ...

    def random_exponent(self) -> Exponent:
        """Uniform and non-zero, from the operating system's entropy."""
        ...

    def product(self, *exponents: Exponent) -> Exponent:
        """The exponent that acts as all of these, one after the other."""
        ...

    def power(self, elements: Elements, exponent: Exponent) -> Elements:
        """Each element raised to `exponent`. Expects validated elements (or hashed IDs).

        Raises:
            ProtocolViolation: a result is the neutral element, which no honest element gives.
        """
        ...

    def validate(self, elements: Elements) -> None:
        """Check that each is the encoding of an element of the group.

        Raises:
            ProtocolViolation: says what is wrong with how many, and never which.
        """
        ...

    def close(self) -> None:
        """Stop the workers."""
        ...
