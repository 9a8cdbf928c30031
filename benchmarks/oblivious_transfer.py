"""Oblivious transfers per second and core, and what they cost in bare AES of OpenSSL.

    python benchmarks/oblivious_transfer.py
    python benchmarks/oblivious_transfer.py --block 65536 --row-bytes 64 512 --json

Everything is measured in CPU seconds of one thread, with the kernels and without them. The
reference is AES-128-ECB of OpenSSL (through `cryptography`) on 1 MB at a time, measured in the same
run: `aes_per_transfer` says how many of its blocks fit into the time of one random transfer, and
`of_aes` which part of its bytes per second the pads reach.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from florist.common.oblivious_transfer import (
    BLOCK_SIZE,
    BaseReceiver,
    BaseSender,
    ExtensionReceiver,
    ExtensionSender,
    chosen_keys,
    class_keys,
    corrections,
    encrypt_rows,
    kernels,
    message_bytes,
    transfers_per_row,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.oblivious_transfer import ChosenSeeds, SeedPairs
    from florist.common.oblivious_transfer.kernels import ByteArray

#: Bytes of all rows of one call, when pads are measured.
PADDED_BYTES = 1 << 24
#: CPU seconds for which each operation is repeated.
LONG_ENOUGH = 0.3


@dataclass(frozen=True)
class Rates:
    """What one core does, with the kernels or without them; in millions or 10^9 bytes a second."""

    kernels: bool
    receiver_million_per_s: float
    sender_million_per_s: float
    receiver_aes_per_transfer: float
    sender_aes_per_transfer: float
    #: Rows of a 1-of-C transfer by number of classes, without the random transfers.
    receiver_million_rows_per_s: dict[int, float]
    sender_million_rows_per_s: dict[int, float]
    #: By bytes per row.
    pads_gb_per_s: dict[int, float]
    pads_of_aes: dict[int, float]


@dataclass(frozen=True)
class Result:
    """The result, printed as JSON."""

    block: int
    message_bytes: int
    bytes_per_transfer: float
    base_message_bytes: int
    base_receiver_s: float
    base_sender_s: float
    #: OpenSSL's AES-128-ECB, the reference.
    aes_gb_per_s: float
    rates: list[Rates]


def seconds(step: Callable[[], object]) -> float:
    """Return the CPU time of the fastest repetition, after one to warm up."""
    step()
    best, total = float("inf"), 0.0
    while total < LONG_ENOUGH:
        started = time.thread_time()
        step()
        elapsed = time.thread_time() - started
        best, total = min(best, elapsed), total + elapsed
    return best


def random_bytes(*shape: int) -> ByteArray:
    return np.frombuffer(os.urandom(int(np.prod(shape))), np.uint8).reshape(shape)


def aes_rate() -> float:
    """Return the bytes per second of the reference."""
    encryptor = Cipher(algorithms.AES128(bytes(16)), modes.ECB()).encryptor()
    data, out = os.urandom(1 << 20), bytearray((1 << 20) + 15)
    return len(data) / seconds(lambda: encryptor.update_into(data, out))


def run_base() -> tuple[float, float, ChosenSeeds, SeedPairs, int]:
    """Return the CPU time of the receiver and of the sender, their seeds, and a message's size."""
    BaseReceiver(os.urandom(32), b"")  # makes the table of the generator
    started = time.thread_time()
    receiver = BaseReceiver(os.urandom(32), b"benchmark")
    requested = time.thread_time()
    reply, pairs = BaseSender(os.urandom(32), b"benchmark").answer(receiver.request)
    answered = time.thread_time()
    seeds = receiver.finish(reply)
    finished = time.thread_time()
    receiving = requested - started + finished - answered
    return receiving, answered - requested, seeds, pairs, len(reply)


class Block(NamedTuple):
    """A block of random transfers, as both parties have it."""

    choices: ByteArray
    keys: ByteArray
    both: ByteArray


def row_rates(block: Block, classes: int) -> tuple[float, float]:
    """Return the rows per second of the receiver and of the sender of 1-of-C transfers."""
    rows = len(block.choices) // transfers_per_row(classes)
    used = rows * transfers_per_row(classes)
    labels = np.arange(rows) % classes
    sent = corrections(labels, block.choices[:used], classes=classes)

    def receive() -> None:
        corrections(labels, block.choices[:used], classes=classes)
        chosen_keys(labels, block.keys[:used], classes=classes)

    def send() -> None:
        class_keys(sent, block.both[:, :used], classes=classes)

    return rows / seconds(receive), rows / seconds(send)


def pad_rate(row_bytes: int) -> float:
    """Return the bytes per second of encrypting rows of this size."""
    rows = random_bytes(max(1, PADDED_BYTES // row_bytes), row_bytes)
    keys, out = random_bytes(len(rows), 16), np.empty_like(rows)
    return rows.size / seconds(lambda: encrypt_rows(keys, rows, out=out))


def measure(
    seeds: ChosenSeeds, pairs: SeedPairs, aes: float, arguments: argparse.Namespace
) -> Rates:
    size: int = arguments.block
    receiver, sender = ExtensionReceiver(pairs, size), ExtensionSender(seeds, size)
    message, choices, keys = receiver.block(0)
    both = sender.block(0, message)
    receiving = seconds(lambda: receiver.block(0)) / size
    sending = seconds(lambda: sender.block(0, message)) / size
    block = Block(choices, keys, both)
    by_class = {classes: row_rates(block, classes) for classes in arguments.classes}
    pads = {row_bytes: pad_rate(row_bytes) for row_bytes in arguments.row_bytes}
    return Rates(
        kernels=kernels.native is not None,
        receiver_million_per_s=round(1e-6 / receiving, 2),
        sender_million_per_s=round(1e-6 / sending, 2),
        receiver_aes_per_transfer=round(receiving * aes / 16, 1),
        sender_aes_per_transfer=round(sending * aes / 16, 1),
        receiver_million_rows_per_s={c: round(rate / 1e6, 2) for c, (rate, _) in by_class.items()},
        sender_million_rows_per_s={c: round(rate / 1e6, 2) for c, (_, rate) in by_class.items()},
        pads_gb_per_s={size: round(rate / 1e9, 2) for size, rate in pads.items()},
        pads_of_aes={size: round(rate / aes, 2) for size, rate in pads.items()},
    )


def main() -> None:
    """Print a line for each figure, or one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--block", type=int, default=BLOCK_SIZE, help="transfers per block")
    parser.add_argument("--classes", type=int, nargs="+", default=[2, 10])
    parser.add_argument("--row-bytes", type=int, nargs="+", default=[16, 64, 100, 512, 4096])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    receiving, sending, seeds, pairs, base_bytes = run_base()
    before = aes_rate()
    native, rates = kernels.native, []
    for used in (native, None) if native is not None else (None,):
        kernels.native = used
        rates.append(measure(seeds, pairs, before, arguments))
    kernels.native = native
    result = Result(
        block=arguments.block,
        message_bytes=message_bytes(arguments.block),
        bytes_per_transfer=round(message_bytes(arguments.block) / arguments.block, 3),
        base_message_bytes=base_bytes,
        base_receiver_s=round(receiving, 3),
        base_sender_s=round(sending, 3),
        aes_gb_per_s=round(before / 1e9, 2),
        rates=rates,
    )
    if arguments.json:
        print(json.dumps(asdict(result), indent=2))
        return
    values = asdict(result)
    for each in values.pop("rates"):
        name = "with kernels" if each.pop("kernels") else "without kernels"
        values |= {f"{name}: {key}": value for key, value in each.items()}
    for key, value in values.items():
        print(f"{key:>48}  {value:,}" if isinstance(value, int) else f"{key:>48}  {value}")


if __name__ == "__main__":
    main()
