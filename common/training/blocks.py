"""Embeddings and gradients on the line: blocks of rows in the agreed number type."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from florist.common.core.errors import ConfigurationError, ProtocolViolation
from florist.common.transport.messages import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.settings.agreement import TrainingAgreement, WireType
    from florist.common.transport.messages import (
        Data,
        EmbeddingBlock,
        EvaluationEmbeddingBlock,
        GradientBlock,
        TestEmbeddingBlock,
    )

_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

#: Room that a message's other fields and its envelope take.
_OVERHEAD = 64


class Diverged(ConfigurationError):  # noqa: N818 - as the others, it reads as what happened
    """Training has left the range of numbers; both parties' settings may be the cause."""

    advice = "Make optimiser.learning_rate smaller on either side, and train anew with --force."

    @property
    def for_peer(self) -> str:
        return self.reason


class Wire:
    """Turns rows into bytes and back; checks what a peer could get wrong."""

    def __init__(self, wire_type: WireType, width: int) -> None:
        self._name = wire_type
        self._type = _TYPES[wire_type]
        self._width = width

    @property
    def row_bytes(self) -> int:
        return self._width * self._type.itemsize

    @property
    def rows_per_message(self) -> int:
        """How many fit at most."""
        return (MAX_MESSAGE_BYTES - _OVERHEAD) // self.row_bytes

    def to_data(self, rows: torch.Tensor) -> memoryview:
        """Rows of a float32 tensor on any device, in its own memory where it has them as agreed.

        Raises:
            Diverged: one holds what is no number, or none that the agreed type can hold.
        """
        plain = rows.detach().to("cpu", self._type).contiguous()
        if not all_finite(plain):
            raise Diverged(
                f"training diverged: what is to be sent holds values that are not finite as "
                f"{self._name}; make optimiser.learning_rate smaller on either side, and start anew"
            )
        return plain.view(torch.uint8).numpy().reshape(-1).data

    def from_bytes(self, values: Data) -> torch.Tensor:
        """Whole rows as float32, unchecked."""
        # In memory of torch's own: how it is aligned can change the last bit of a product.
        rows = torch.empty(len(values) // self.row_bytes, self._width, dtype=self._type)
        rows.view(torch.uint8).numpy().reshape(-1)[:] = np.frombuffer(values, np.uint8)
        return rows.to(torch.float32)

    def to_rows(
        self, block: EmbeddingBlock | GradientBlock, step: int, start: int, count: int
    ) -> torch.Tensor:
        """The rows of a training batch's block as float32.

        Raises:
            ProtocolViolation: the block is for another step or row, has another length, or contains
                NaN or infinity.
        """
        found = f"step {block.step}, row {block.start}"
        return self._checked(block.values, found, f"step {step}, row {start}", count)

    def to_test_rows(
        self, block: TestEmbeddingBlock, epoch: int, start: int, count: int
    ) -> torch.Tensor:
        """The rows of a block of the test table as float32; raises the same as `to_rows`."""
        found = f"the test of epoch {block.epoch}, row {block.start}"
        return self._checked(block.values, found, f"the test of epoch {epoch}, row {start}", count)

    def to_evaluation_rows(
        self, block: EvaluationEmbeddingBlock, start: int, count: int
    ) -> torch.Tensor:
        """The rows of a block of an evaluation as float32; raises the same as `to_rows`."""
        found = f"the evaluation, row {block.start}"
        return self._checked(block.values, found, f"the evaluation, row {start}", count)

    def _checked(self, values: Data, found: str, expected: str, count: int) -> torch.Tensor:
        if found != expected:
            raise ProtocolViolation(f"the peer's block is for {found}, instead of {expected}")
        if len(values) != count * self.row_bytes:
            raise ProtocolViolation(
                f"the peer's block for {expected} has {len(values)} bytes instead of {count} rows "
                f"of {self.row_bytes}; check that cut_width and wire_type are the same on both "
                "sides"
            )
        rows = self.from_bytes(values)
        if not all_finite(rows):
            raise ProtocolViolation(f"the peer's block for {expected} contains NaN or infinity")
        return rows


def all_finite(rows: torch.Tensor) -> bool:
    """Whether all are numbers."""
    # Least and greatest are NaN if one value is; finding them takes a tenth of `isfinite` on all.
    return not rows.numel() or all(math.isfinite(bound.item()) for bound in rows.aminmax())


def check_block_size(agreement: TrainingAgreement) -> None:
    """Refuse a micro-batch that does not fit into a message.

    Raises:
        ConfigurationError: names the key and the largest value that fits.
    """
    largest = Wire(agreement.wire_type, agreement.cut_width).rows_per_message
    # Test rows come in blocks of the same size, but not in batches.
    rows = agreement.micro_batch
    if not agreement.test_table:
        rows = min(rows, agreement.batch_size)
    if rows > largest:
        raise ConfigurationError(
            f"agreement.training.micro_batch: at most {largest} rows of cut_width "
            f"{agreement.cut_width} fit into a message, not {agreement.micro_batch}"
        )


def micro_batches(rows: int, size: int) -> Iterator[slice]:
    """A batch's rows in parts of `size`."""
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def pipelined(rows: int, size: int) -> Iterator[slice]:
    """A batch's rows in parts of `size`, the first half as large, and the last if they divide it.

    While one party works on the first or the last part, the other has nothing to do.
    """
    if rows <= size:
        return micro_batches(rows, size)
    starts = [0, *range(max(1, size // 2), rows, size)]
    return (slice(start, stop) for start, stop in pairwise([*starts, rows]))
