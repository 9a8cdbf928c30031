"""Encodes embeddings and gradients for the wire: blocks of rows in the agreed number type."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from florist.common.core.errors import ConfigurationError, ProtocolViolation
from florist.common.transport.messages import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from florist.common.settings.agreement import TrainingAgreement, WireType
    from florist.common.transport.messages import (
        Data,
        EmbeddingBlock,
        EvaluationEmbeddingBlock,
        GradientBlock,
        TestEmbeddingBlock,
    )

_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

#: Upper bound in bytes for a message's other fields and its envelope.
_OVERHEAD = 64


class Diverged(ConfigurationError):  # noqa: N818 - named after the event, like the others
    """Training diverged (NaN or infinity). The settings of either party may be the cause."""

    advice = "Reduce optimiser.learning_rate on either side, and start over with --force."

    @property
    def for_peer(self) -> str:
        return self.reason


class RowCodec:
    """Encodes rows as bytes and decodes them, with checks of what the peer sent."""

    def __init__(self, wire_type: WireType, width: int) -> None:
        self._name = wire_type
        self._type = _TYPES[wire_type]
        self._width = width

    @property
    def row_bytes(self) -> int:
        """The length of an encoded row."""
        return self._width * self._type.itemsize

    @property
    def rows_per_message(self) -> int:
        """The maximum number of rows that fit into a message."""
        return (MAX_MESSAGE_BYTES - _OVERHEAD) // self.row_bytes

    def encode(self, rows: torch.Tensor) -> memoryview:
        """Encode a float32 tensor on any device, without a copy where the type allows it.

        Raises:
            Diverged: a value is NaN, infinite, or out of the agreed type's range.
        """
        plain = rows.detach().to("cpu", self._type).contiguous()
        if not all_finite(plain):
            raise Diverged(
                "training diverged (NaN or infinity): a value to be sent is not finite as "
                f"{self._name}; reduce optimiser.learning_rate on either side and start over"
            )
        return plain.view(torch.uint8).numpy().reshape(-1).data

    def decode(self, values: Data) -> torch.Tensor:
        """Decode complete rows as float32, without checks."""
        # Into memory allocated by torch: alignment can change the last bit of a product.
        rows = torch.empty(len(values) // self.row_bytes, self._width, dtype=self._type)
        rows.view(torch.uint8).numpy().reshape(-1)[:] = np.frombuffer(values, np.uint8)
        return rows.to(torch.float32)

    def decode_block(
        self, block: EmbeddingBlock | GradientBlock, step: int, start: int, count: int
    ) -> torch.Tensor:
        """Decode a block of a training step, of which step, first row and length are given.

        Raises:
            ProtocolViolation: the block is for another step or row, has another length, or contains
                NaN or infinity.
        """
        found = f"step {block.step}, row {block.start}"
        return self._decode_checked(block.values, found, f"step {step}, row {start}", count)

    def decode_test_block(
        self, block: TestEmbeddingBlock, epoch: int, start: int, count: int
    ) -> torch.Tensor:
        """Decode a block of the test table; raises the same as `decode_block`."""
        found = f"the test of epoch {block.epoch}, row {block.start}"
        return self._decode_checked(
            block.values, found, f"the test of epoch {epoch}, row {start}", count
        )

    def decode_evaluation_block(
        self, block: EvaluationEmbeddingBlock, start: int, count: int
    ) -> torch.Tensor:
        """Decode a block of an evaluation; raises the same as `decode_block`."""
        found = f"the evaluation, row {block.start}"
        return self._decode_checked(block.values, found, f"the evaluation, row {start}", count)

    def _decode_checked(self, values: Data, found: str, expected: str, count: int) -> torch.Tensor:
        if found != expected:
            raise ProtocolViolation(f"the peer's block is for {found}, instead of {expected}")
        if len(values) != count * self.row_bytes:
            raise ProtocolViolation(
                f"the peer's block for {expected} has {len(values)} bytes instead of {count} rows "
                f"of {self.row_bytes}; check that cut_width and wire_type are the same on both "
                "sides"
            )
        rows = self.decode(values)
        if not all_finite(rows):
            raise ProtocolViolation(f"the peer's block for {expected} contains NaN or infinity")
        return rows


def all_finite(rows: torch.Tensor) -> bool:
    """Return whether no value is NaN or infinite."""
    # Minimum and maximum are NaN if a value is; this takes a tenth of the time of `isfinite`.
    return not rows.numel() or all(math.isfinite(bound.item()) for bound in rows.aminmax())


def check_block_size(agreement: TrainingAgreement) -> None:
    """Refuse a micro-batch that does not fit into a message.

    Raises:
        ConfigurationError: names the key and the largest value that fits.
    """
    codec = RowCodec(agreement.wire_type, agreement.wire_width)
    largest = codec.rows_per_message // agreement.offers
    # Test rows are sent in blocks of this size as well, but not in batches.
    rows = agreement.micro_batch
    if not agreement.test_table and agreement.batch_size != "auto":
        rows = min(rows, agreement.batch_size)
    if rows > largest:
        raise ConfigurationError(
            f"agreement.training.micro_batch: at most {largest} rows of width "
            f"{agreement.wire_width} fit into a message, {agreement.offers} times each, not "
            f"{agreement.micro_batch}"
        )
