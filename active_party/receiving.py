"""How the active party receives the embeddings of a batch: plainly, or as offers that it opens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from florist.common.core.errors import ProtocolViolation
from florist.common.oblivious_transfer import encrypt_rows
from florist.common.session.answer_journal import BlockKind
from florist.common.training.transfers import TransferReceiver, TransferTerms
from florist.common.transport.messages import EmbeddingBlock, OfferBlock

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.settings.agreement import TrainingAgreement
    from florist.common.training.feed import Position
    from florist.common.training.loop import Run
    from florist.common.transport.channel import Channel

    Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Received:
    """A message with embeddings, and what this party can read of it."""

    kind: BlockKind
    message: EmbeddingBlock | OfferBlock
    #: The same block with one plain embedding per row.
    opened: EmbeddingBlock


class BatchReceiving(Protocol):
    """The embeddings of one batch."""

    def receive(self, channel: Channel, part: slice) -> Received:
        """Receive the embeddings of a part.

        Raises:
            ProtocolViolation: the message is not of this step and part.
        """
        ...


class Receiving(Protocol):
    """The embeddings of a run."""

    def prepare(self, position: Position, ranks: Rows, labels: Rows) -> BatchReceiving:
        """Prepare for a batch; called one batch ahead, in a background thread.

        Args:
            position: of the batch.
            ranks: of its UIDs in the union.
            labels: the own label of each; -1 where the party lacks the UID.
        """
        ...


class PlainReceiving:
    """One embedding per UID."""

    def prepare(self, position: Position, ranks: Rows, labels: Rows) -> PlainReceiving:  # noqa: ARG002 - as of the protocol
        return self

    def receive(self, channel: Channel, part: slice) -> Received:  # noqa: ARG002 - as of the protocol
        block = channel.receive(EmbeddingBlock)
        return Received(BlockKind.EMBEDDINGS, block, block)


class ObliviousReceiving:
    """One offer per class and UID, of which this party opens that of its label."""

    def __init__(self, agreement: TrainingAgreement, row_bytes: int, run: Run) -> None:
        """Make the base transfers with the peer."""
        assert run.transfers is not None
        self._classes = agreement.classes
        self._row_bytes = row_bytes
        self._draws = run.draws
        self._transfers = TransferReceiver(run.transfers, TransferTerms.of_run(run, agreement))

    def prepare(self, position: Position, ranks: Rows, labels: Rows) -> BatchOffers:
        # For a UID without a label, the peer has real features, and all offers are equal. Only for
        # padding, which nobody has, they differ.
        arbitrary = self._draws.integers_at("choices", ranks, self._classes)
        choices = np.where(labels >= 0, labels, arbitrary)
        keys = self._transfers.choose(position.step, choices)
        return BatchOffers(position.step, self._classes, self._row_bytes, choices, keys)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BatchOffers:
    """The choices of a batch, and the key of each chosen offer."""

    step: int
    classes: int
    row_bytes: int
    choices: Rows
    #: (rows, 16)
    keys: npt.NDArray[np.uint8]

    def receive(self, channel: Channel, part: slice) -> Received:
        block = channel.receive(OfferBlock)
        rows = part.stop - part.start
        if (block.step, block.start) != (self.step, part.start):
            raise ProtocolViolation(
                f"the peer's offers are for step {block.step}, row {block.start}, instead of step "
                f"{self.step}, row {part.start}"
            )
        if len(block.values) != self.classes * rows * self.row_bytes:
            raise ProtocolViolation(
                f"the peer's offers for step {self.step}, row {part.start} have "
                f"{len(block.values)} bytes instead of {self.classes} times {rows} rows of "
                f"{self.row_bytes}"
            )
        offers = np.frombuffer(block.values, np.uint8).reshape(self.classes, rows, self.row_bytes)
        chosen = offers[self.choices[part], np.arange(rows)]
        opened = encrypt_rows(self.keys[part], chosen)
        plain = EmbeddingBlock(self.step, part.start, opened.reshape(-1).data)
        return Received(BlockKind.OFFERS, block, plain)


def make_receiving(agreement: TrainingAgreement, row_bytes: int, run: Run) -> Receiving:
    """Return how embeddings are received, as agreed. Oblivious offers begin with base transfers."""
    if agreement.stand_ins == "plain":
        return PlainReceiving()
    return ObliviousReceiving(agreement, row_bytes, run)
