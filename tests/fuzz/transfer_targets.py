"""The five messages of oblivious stand-ins, as the party that receives each one reads it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np

from florist.active_party.receiving import BatchOffers
from florist.common.oblivious_transfer import BaseReceiver, BaseSender, ExtensionReceiver
from florist.common.training import transfers
from florist.common.training.row_codec import RowCodec
from florist.common.training.training_journal import TrainingJournal
from florist.common.training.transfers import TransferReceiver, TransferSender, TransferTerms
from florist.common.transport import codec
from florist.common.transport.messages import (
    ChoiceBlock,
    OfferBlock,
    TransferBlock,
    TransferReply,
    TransferRequest,
)
from tests.fuzz.targets import Target, said

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.transport.messages import Message

_SESSION = b"\1" * 32
_PASSIVE, _ACTIVE = b"\2" * 32, b"\3" * 32
#: Transfers per block: the smallest, so that messages are short and inputs are tried quickly.
_BLOCK_SIZE = 128
_ROWS, _CLASSES, _WIDTH = 16, 2, 4


def _terms(secret: bytes) -> TransferTerms:
    return TransferTerms(_SESSION, secret, _CLASSES, _ROWS, TrainingJournal(None))


class _QuickBase(BaseReceiver):
    """Remembers what it computed from the last reply, which takes longer than all else."""

    def __init__(self) -> None:
        BaseReceiver.__init__(self, _PASSIVE, _SESSION)
        self.finish = lru_cache(maxsize=1)(self.finish)  # type: ignore[method-assign]


_BASE = _QuickBase()
_REPLY, _PAIRS = BaseSender(_ACTIVE, _SESSION).answer(_BASE.request)
_VALID: tuple[Message, ...] = (
    TransferReply(_REPLY),
    TransferBlock(0, ExtensionReceiver(_PAIRS, _BLOCK_SIZE).block(0)[0]),
    ChoiceBlock(0, bytes(_ROWS // 8)),
)


def _request(data: bytes) -> object:
    """The active party answers the request for base transfers."""
    return TransferReceiver(said([data]), _terms(_ACTIVE))


def _to_sender(place: int) -> Callable[[bytes], object]:
    """The passive party receives valid messages, except for the one at `place`."""
    frames = [codec.encode(message) for message in _VALID]

    def run(data: bytes) -> object:
        with (
            patch.object(transfers, "BLOCK_SIZE", _BLOCK_SIZE),
            # The same secret always makes the same request.
            patch.object(transfers, "BaseReceiver", lambda *_: _BASE),
        ):
            sender = TransferSender(
                said([*frames[:place], data, *frames[place + 1 :]]), _terms(_PASSIVE)
            )
            return sender.keys(0, _ROWS)

    return run


_OFFERS = OfferBlock(3, 0, np.ones(_CLASSES * 2 * _WIDTH, dtype=np.float32).tobytes())
_KEYS = np.zeros((2, 16), dtype=np.uint8)


def _offers(data: bytes) -> object:
    """The active party opens one offer for each of two rows."""
    batch = BatchOffers(3, _CLASSES, 4 * _WIDTH, np.array([0, 1]), _KEYS)
    opened = batch.receive(said([data]), slice(0, 2)).opened
    return RowCodec("float32", _WIDTH).decode_block(opened, 3, 0, 2)


TRANSFER_MESSAGES = (
    Target("transfer request", _request, (codec.encode(TransferRequest(_BASE.request)),)),
    *(
        Target(name, _to_sender(place), (codec.encode(_VALID[place]),))
        for place, name in enumerate(("transfer reply", "transfer block", "choice block"))
    ),
    Target("offer block", _offers, (codec.encode(_OFFERS),)),
)
