"""A bound on the values that cross the network in training, relative to those before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from florist.common.core.errors import ProtocolViolation
from florist.common.training.row_codec import Diverged

if TYPE_CHECKING:
    from torch import Tensor

#: A block may contain values up to this many times the running scale.
FACTOR = 1e4

#: Weight of the newest block in the running scale.
_NEWEST = 0.01


class ScaleBound:
    """Rejects a block whose largest value is far above the scale of the earlier blocks.

    The sender applies the same bound to the same values, so that a party whose training diverges
    says so itself, and a block that violates the bound does not come from an honest peer.
    """

    def __init__(self, name: str, unit: float) -> None:
        """Bound the blocks called `name`; their usual scale is at least `unit`."""
        self._name = name
        self._scale = unit
        self._unit = unit

    @classmethod
    def of_embeddings(cls) -> Self:
        """Bound embeddings, which come from scaled features through a few layers."""
        return cls("embeddings", 1.0)

    @classmethod
    def of_gradients(cls, batch_size: int) -> Self:
        """Bound the gradients of a batch's mean loss."""
        return cls("gradients", 1.0 / batch_size)

    def check_received(self, rows: Tensor, step: int) -> None:
        """Check the rows of a block that the peer sent.

        Raises:
            ProtocolViolation: a value is out of bounds.
        """
        if not self._accepts(rows):
            raise ProtocolViolation(
                f"step {step}: the peer's {self._name} are more than {FACTOR:,.0f} times as large "
                "as those of earlier steps"
            )

    def check_sent(self, rows: Tensor, step: int) -> None:
        """Check the rows of a block, as the peer will decode them, before they are sent.

        Raises:
            Diverged: a value is out of bounds.
        """
        if not self._accepts(rows):
            raise Diverged(
                f"training diverged: in step {step} the {self._name} are more than {FACTOR:,.0f} "
                "times as large as those of earlier steps; reduce optimiser.learning_rate on "
                "either side and start over"
            )

    def _accepts(self, rows: Tensor) -> bool:
        if not rows.numel():
            return True
        smallest, largest = (bound.item() for bound in rows.aminmax())
        largest = max(abs(smallest), abs(largest))
        if not largest <= FACTOR * self._scale:
            return False
        self._scale = max(self._unit, (1 - _NEWEST) * self._scale + _NEWEST * largest)
        return True
