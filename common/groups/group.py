"""The interface of a group: exactly what the protocol needs."""

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
        """The name in the agreement: `x25519`, `modp2048` or `modp3072`."""
        ...

    @property
    def engine(self) -> str:
        """The implementation of exponentiation; all give bit-identical results."""
        ...

    @property
    def width(self) -> int:
        """Number of bytes of an encoded element."""
        ...

    def hash_ids(self, ids: IdColumn) -> Elements:
        """Hash each ID to an element, in order; equal IDs give the same element on any machine."""
        ...

    def random_exponent(self) -> Exponent:
        """Draw a uniform non-zero exponent from the operating system's randomness."""
        ...

    def product(self, *exponents: Exponent) -> Exponent:
        """Return the exponent that has the effect of all of these in turn."""
        ...

    def power(self, elements: Elements, exponent: Exponent) -> Elements:
        """Raise each element to `exponent`. Elements must be validated or hashed IDs.

        Raises:
            ProtocolViolation: a result is the neutral element, which cannot happen with valid ones.
        """
        ...

    def validate(self, elements: Elements) -> None:
        """Check that each row encodes an element of the group.

        Raises:
            ProtocolViolation: the message says how many are invalid and why, but not which.
        """
        ...

    def close(self) -> None:
        """Stop the workers."""
        ...
