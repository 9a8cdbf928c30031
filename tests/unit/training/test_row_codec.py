"""Rows are decoded as they were encoded, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from florist.common.core.errors import ConfigurationError, PeerError, ProtocolViolation
from florist.common.settings.agreement import TrainingAgreement
from florist.common.training.row_codec import Diverged, RowCodec, check_block_size
from florist.common.transport import messages
from florist.common.transport.codec import encode
from florist.common.transport.messages import MAX_MESSAGE_BYTES, EmbeddingBlock, GradientBlock

if TYPE_CHECKING:
    from florist.common.settings.agreement import WireType

WIDTH = 5
TYPES: dict[WireType, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
every_type = pytest.mark.parametrize("wire_type", TYPES)


def some_rows(count: int = 7) -> torch.Tensor:
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(count))


@every_type
@pytest.mark.parametrize("count", [0, 1, 7])
def test_rows_are_rounded_to_the_agreed_type(wire_type: WireType, count: int) -> None:
    wire, rows = RowCodec(wire_type, WIDTH), some_rows(count)
    values = wire.encode(rows)
    assert len(values) == count * wire.row_bytes == count * WIDTH * TYPES[wire_type].itemsize
    arrived = wire.decode_block(EmbeddingBlock(3, 40, values), step=3, start=40, count=count)
    assert arrived.dtype == torch.float32
    assert torch.equal(arrived, rows.to(TYPES[wire_type]).to(torch.float32))


def test_float32_is_exact_and_little_endian() -> None:
    """This includes column-major tensors and those that require grad."""
    wire, rows = RowCodec("float32", WIDTH), some_rows()
    assert wire.encode(rows) == rows.numpy().astype("<f4").tobytes()
    assert wire.encode(rows.T.contiguous().T) == wire.encode(rows)
    assert wire.encode(rows.clone().requires_grad_()) == wire.encode(rows)


def test_decoded_rows_are_writable_copies() -> None:
    wire = RowCodec("float32", WIDTH)
    values = wire.encode(some_rows())
    wire.decode_block(GradientBlock(0, 0, values), 0, 0, 7).add_(1)
    assert values == wire.encode(some_rows())


@every_type
@pytest.mark.parametrize(
    ("step", "start", "count", "message"),
    [
        (4, 40, 7, "step 3, row 40, instead of step 4, row 40"),
        (3, 0, 7, "row 40, instead of step 3, row 0"),
        (3, 40, 6, "instead of 6 rows"),
        (3, 40, 8, "instead of 8 rows"),
        (3, 40, 0, "instead of 0 rows"),
    ],
)
def test_an_unexpected_block_is_refused(
    wire_type: WireType, step: int, start: int, count: int, message: str
) -> None:
    wire = RowCodec(wire_type, WIDTH)
    block = EmbeddingBlock(3, 40, wire.encode(some_rows()))
    with pytest.raises(ProtocolViolation, match=message):
        wire.decode_block(block, step, start, count)


def test_blocks_of_the_test_table_are_checked_against_the_epoch() -> None:
    wire = RowCodec("float32", WIDTH)
    block = messages.TestEmbeddingBlock(3, 40, wire.encode(some_rows()))
    assert torch.equal(wire.decode_test_block(block, 3, 40, 7), some_rows())
    for epoch, start in ((2, 40), (3, 0)):
        with pytest.raises(ProtocolViolation, match=f"instead of the test of epoch {epoch}, row"):
            wire.decode_test_block(block, epoch, start, 7)
    with pytest.raises(ProtocolViolation, match="instead of 8 rows"):
        wire.decode_test_block(block, 3, 40, 8)


def test_blocks_of_an_evaluation_are_checked_against_the_rank() -> None:
    wire = RowCodec("float32", WIDTH)
    block = messages.EvaluationEmbeddingBlock(40, wire.encode(some_rows()))
    assert torch.equal(wire.decode_evaluation_block(block, 40, 7), some_rows())
    with pytest.raises(ProtocolViolation, match="row 40, instead of the evaluation, row 0"):
        wire.decode_evaluation_block(block, 0, 7)
    with pytest.raises(ProtocolViolation, match="instead of 8 rows"):
        wire.decode_evaluation_block(block, 40, 8)


@given(st.binary(max_size=80))
def test_any_bytes_give_finite_rows_or_are_refused(values: bytes) -> None:
    for wire_type in TYPES:
        try:
            rows = RowCodec(wire_type, 2).decode_block(EmbeddingBlock(0, 0, values), 0, 0, 5)
        except ProtocolViolation:
            continue
        assert rows.shape == (5, 2)
        assert bool(torch.isfinite(rows).all())


@every_type
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinity_are_refused(wire_type: WireType, value: float) -> None:
    rows = some_rows()
    rows[6, 4] = value
    values = rows.to(TYPES[wire_type]).view(torch.uint8).numpy().tobytes()
    with pytest.raises(ProtocolViolation, match="NaN or infinity"):
        RowCodec(wire_type, WIDTH).decode_block(GradientBlock(0, 0, values), 0, 0, 7)


@every_type
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3.4e38])
def test_values_that_diverged_are_not_sent(wire_type: WireType, value: float) -> None:
    """The sender reports its own error, not the peer's; 3.4e38 fits only into float32."""
    rows = some_rows()
    rows[0, 0] = value
    wire = RowCodec(wire_type, WIDTH)
    if value == 3.4e38 and wire_type == "float32":
        assert wire.encode(rows)
        return
    with pytest.raises(Diverged, match=rf"{wire_type}.*learning_rate") as caught:
        wire.encode(rows)
    assert not isinstance(caught.value, PeerError)
    assert caught.value.for_peer == str(caught.value)


@pytest.mark.parametrize(
    ("wire_type", "cut_width"), [("float32", 1), ("float32", 128), ("float16", 1000)]
)
def test_the_largest_block_allowed_fits_into_a_message(wire_type: WireType, cut_width: int) -> None:
    values: dict[str, object] = {
        "cut_width": cut_width,
        "wire_type": wire_type,
        "batch_size": 10_000_000,
        "stand_ins": "plain",
    }
    row_bytes = RowCodec(wire_type, cut_width + 1).row_bytes  # with the wide part
    largest = (MAX_MESSAGE_BYTES - 64) // row_bytes
    check_block_size(TrainingAgreement.model_validate(values | {"micro_batch": largest}))
    with pytest.raises(ConfigurationError, match=f"micro_batch: at most {largest} rows"):
        check_block_size(TrainingAgreement.model_validate(values | {"micro_batch": largest + 1}))
    values_of_block = bytes(largest * row_bytes)
    for message in (
        EmbeddingBlock(2**64 - 1, 2**32 - 1, values_of_block),
        GradientBlock(2**64 - 1, 2**32 - 1, values_of_block),
        messages.TestEmbeddingBlock(2**32 - 1, 2**32 - 1, values_of_block),
        messages.EvaluationEmbeddingBlock(2**64 - 1, values_of_block),
    ):
        assert len(encode(message)) <= MAX_MESSAGE_BYTES


@pytest.mark.parametrize(("classes", "cut_width"), [(2, 128), (2, 1), (7, 16)])
def test_all_offers_of_a_part_fit_into_a_message(classes: int, cut_width: int) -> None:
    values: dict[str, object] = {"cut_width": cut_width, "classes": classes}
    agreement = TrainingAgreement.model_validate(values)
    row_bytes = RowCodec("float32", agreement.wire_width).row_bytes
    largest = (MAX_MESSAGE_BYTES - 64) // row_bytes // classes
    check_block_size(agreement.model_copy(update={"micro_batch": largest}))
    with pytest.raises(ConfigurationError, match=f"micro_batch: at most {largest} rows"):
        check_block_size(agreement.model_copy(update={"micro_batch": largest + 1}))
    block = messages.OfferBlock(2**64 - 1, 2**32 - 1, bytes(classes * largest * row_bytes))
    assert len(encode(block)) <= MAX_MESSAGE_BYTES


def test_only_blocks_of_a_test_table_may_be_larger_than_a_batch() -> None:
    agreement = TrainingAgreement(micro_batch=1_000_000, batch_size=10)
    check_block_size(agreement)
    with pytest.raises(ConfigurationError, match="micro_batch"):
        check_block_size(agreement.model_copy(update={"test_table": True}))
