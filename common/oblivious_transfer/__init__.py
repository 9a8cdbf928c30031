"""Oblivious transfer: the sender offers C messages per row, the receiver opens that of its label.

The sender (the passive party) does not learn the labels, and the receiver (the active party) learns
nothing of the other messages, also if it deviates from the protocol. In the order of a run:

    base_transfers   128 transfers on ristretto255, two messages at the start of a run
    extension        random transfers from them, one message of the receiver per block
    selection        random transfers become 1-of-C transfers by labels: one correction bit each
    pads             the messages, encrypted with the keys of the transfers

All secrets are arguments, and everything else is a function of them, of the session and of the
messages: a resumed run computes the same. What the caller owes: it answers one reply, one message
per block and one correction per transfer, the same again after it resumes; and after a
`ProtocolViolation` it never uses the sender's secret again.

The kernels make it fast; without them the same results come from numpy and `cryptography`.
"""

from __future__ import annotations

from florist.common.oblivious_transfer.base_transfers import (
    BaseReceiver,
    BaseSender,
    ChosenSeeds,
    SeedPairs,
)
from florist.common.oblivious_transfer.extension import (
    BLOCK_SIZE,
    ExtensionReceiver,
    ExtensionSender,
    message_bytes,
)
from florist.common.oblivious_transfer.pads import encrypt_rows
from florist.common.oblivious_transfer.selection import (
    chosen_keys,
    class_keys,
    corrections,
    corrections_bytes,
    transfers_per_row,
)

__all__ = [
    "BLOCK_SIZE",
    "BaseReceiver",
    "BaseSender",
    "ChosenSeeds",
    "ExtensionReceiver",
    "ExtensionSender",
    "SeedPairs",
    "chosen_keys",
    "class_keys",
    "corrections",
    "corrections_bytes",
    "encrypt_rows",
    "message_bytes",
    "transfers_per_row",
]
