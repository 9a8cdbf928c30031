"""The oblivious transfers of a training run: keys for offers, one of which the active party has.

For each row of a batch the passive party has a key per class, and the active party has that of the
class that it chose, without revealing which. Base transfers are made at the start of a run, random
transfers in large blocks ahead of the batches, and the choices of a batch correct them. All of it
has a channel of its own, which both parties use while they prepare the next batch.

A resumed run makes the same transfers again: everything depends only on the parties' secrets. The
journal accepts nothing else, because a party that could choose again would get both offers.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

from florist.common.core.errors import ProtocolViolation
from florist.common.oblivious_transfer import (
    BaseReceiver,
    BaseSender,
    ExtensionReceiver,
    ExtensionSender,
    chosen_keys,
    class_keys,
    corrections,
    transfers_per_row,
)
from florist.common.session.answer_journal import BlockKind
from florist.common.training.run_handshake import run_id
from florist.common.transport.messages import (
    ChoiceBlock,
    TransferBlock,
    TransferReply,
    TransferRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from florist.common.session.answer_journal import AnswerJournal
    from florist.common.settings.agreement import TrainingAgreement
    from florist.common.training.loop import Run
    from florist.common.transport.channel import Channel

    Bytes = npt.NDArray[np.uint8]

#: The channel of the transfers.
TRANSFERS = "transfers"

#: Random transfers per block: 1 MB of keys per class at the passive party.
BLOCK_SIZE = 65_536


@dataclass(frozen=True, slots=True, repr=False)
class TransferTerms:
    """What both parties know about the transfers of a run, and this party's own means."""

    #: Identifies the run.
    session: bytes
    #: Secret of this party, 32 bytes.
    secret: bytes
    classes: int
    batch_size: int
    journal: AnswerJournal

    @classmethod
    def of_run(cls, run: Run, agreement: TrainingAgreement) -> Self:
        """Return the terms of a run; only the secret and the journal are the party's own."""
        return cls(
            session=run_id(run.schedule.seed),
            secret=run.draws.derive("transfers").secret,
            classes=agreement.classes,
            batch_size=agreement.known_batch_size,
            journal=run.journal,
        )

    def span(self, step: int, rows: int) -> range:
        """Return the numbers of the random transfers for the first `rows` rows of a step."""
        per_row = transfers_per_row(self.classes)
        first = step * self.batch_size * per_row
        return range(first, first + rows * per_row)


class TransferSender:
    """The passive party's side."""

    def __init__(self, channel: Channel, terms: TransferTerms) -> None:
        """Make the base transfers with the peer."""
        self._channel = channel
        self._terms = terms
        journal = terms.journal
        base = BaseReceiver(terms.secret, terms.session)
        journal.sent(BlockKind.BASE_TRANSFERS, 0, 0, base.request)
        channel.send(TransferRequest(base.request))
        reply = channel.receive(TransferReply).values
        journal.received(BlockKind.BASE_TRANSFERS, 0, 0, reply)
        extension = ExtensionSender(base.finish(reply), BLOCK_SIZE)

        def received(number: int) -> Bytes:
            block = channel.receive(TransferBlock)
            if block.number != number:
                raise ProtocolViolation(
                    f"the peer sent block {block.number} of the transfers instead of {number}"
                )
            journal.received(BlockKind.TRANSFERS, number, 0, block.values)
            return extension.block(number, bytes(block.values))

        self._keys = _Blocks(received, axis=1)

    def keys(self, step: int, rows: int) -> Bytes:
        """Receive the peer's choices for a step; return the key of each class: (C, rows, 16).

        Must be called for consecutive steps. Nothing that depends on the keys may be sent before
        the journal's record of the choices is on disk.

        Raises:
            ProtocolViolation: the peer's message is malformed or inconsistent.
        """
        keys = self._keys.slice(self._terms.span(step, rows))
        block = self._channel.receive(ChoiceBlock)
        if block.step != step:
            raise ProtocolViolation(f"the peer chose for step {block.step} instead of {step}")
        self._terms.journal.received(BlockKind.CHOICES, step, 0, block.values)
        packed = np.frombuffer(block.values, dtype=np.uint8)
        return class_keys(packed, keys, classes=self._terms.classes)


class TransferReceiver:
    """The active party's side."""

    def __init__(self, channel: Channel, terms: TransferTerms) -> None:
        """Make the base transfers with the peer."""
        self._channel = channel
        self._terms = terms
        journal = terms.journal
        request = channel.receive(TransferRequest).values
        journal.received(BlockKind.BASE_TRANSFERS, 0, 0, request)
        reply, pairs = BaseSender(terms.secret, terms.session).answer(request)
        journal.sent(BlockKind.BASE_TRANSFERS, 0, 0, reply)
        journal.settle_received()
        channel.send(TransferReply(reply))
        extension = ExtensionReceiver(pairs, BLOCK_SIZE)

        def made(number: int) -> Bytes:
            message, random_choices, keys = extension.block(number)
            journal.sent(BlockKind.TRANSFERS, number, 0, message)
            channel.send(TransferBlock(number, message))
            # In one array, so that a slice has both.
            return np.concatenate((keys, random_choices[:, None]), axis=1)

        self._keys_and_choices = _Blocks(made, axis=0)

    def choose(self, step: int, classes: npt.NDArray[np.int64]) -> Bytes:
        """Choose a class for each row of a step; return its key: (rows, 16).

        Must be called for consecutive steps.
        """
        found = self._keys_and_choices.slice(self._terms.span(step, len(classes)))
        keys, random_choices = np.ascontiguousarray(found[:, :-1]), found[:, -1]
        number = self._terms.classes
        corrected = corrections(classes, random_choices, classes=number)
        self._terms.journal.sent(BlockKind.CHOICES, step, 0, corrected)
        self._channel.send(ChoiceBlock(step, corrected))
        return chosen_keys(classes, keys, classes=number)


@dataclass(slots=True)
class _Blocks:
    """Consecutive blocks, made when they are first needed and kept until they are used up."""

    make: Callable[[int], Bytes]
    axis: int
    #: The numbers of the blocks in memory, and the blocks.
    _kept: deque[tuple[int, Bytes]] = field(default_factory=deque)

    def slice(self, span: range) -> Bytes:
        """Return the entries of `span`, which begins behind the one before."""
        first, last = span.start // BLOCK_SIZE, (span.stop - 1) // BLOCK_SIZE
        while self._kept and self._kept[0][0] < first:
            self._kept.popleft()
        for number in range(first, last + 1):
            if not self._kept or self._kept[-1][0] < number:
                self._kept.append((number, self.make(number)))
        blocks = [block for _, block in self._kept]
        found = np.concatenate(blocks, axis=self.axis) if len(blocks) > 1 else blocks[0]
        start = span.start - first * BLOCK_SIZE
        part = slice(start, start + len(span))
        return found[part] if self.axis == 0 else found[:, part]
