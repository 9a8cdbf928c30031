"""Every message survives encoding and decoding; anything else is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given
from hypothesis import strategies as st

from florist.common.core.errors import ProtocolViolation
from florist.common.transport import codec, messages
from florist.common.transport.messages import (
    MAX_MESSAGE_BYTES,
    Message,
    PredictionRequest,
    SetChunk,
    Step,
)
from florist.common.transport.wire_format import field_prefix
from florist.protos import session_pb2, training_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

    Block = (
        messages.EmbeddingBlock
        | messages.GradientBlock
        | messages.TestEmbeddingBlock
        | messages.EvaluationEmbeddingBlock
        | messages.TransferBlock
        | messages.ChoiceBlock
        | messages.OfferBlock
        | messages.EncryptedLabels
        | messages.AggregateRequest
        | messages.AggregateAnswer
    )

#: The fields of each message that an envelope can contain, from the .proto files.
FIELDS = {
    entry.message_type.name: entry.message_type.fields
    for entry in session_pb2.Envelope.DESCRIPTOR.fields
    if entry.message_type is not None
}


def values(field: FieldDescriptor) -> st.SearchStrategy[object]:
    """The values that a field of a .proto file can have."""
    by_type: dict[int, st.SearchStrategy[object]] = {
        FieldDescriptor.TYPE_UINT32: st.integers(0, 2**32 - 1),
        FieldDescriptor.TYPE_UINT64: st.integers(0, 2**64 - 1),
        FieldDescriptor.TYPE_STRING: st.text(),
        FieldDescriptor.TYPE_BYTES: st.binary(max_size=200),
        FieldDescriptor.TYPE_BOOL: st.booleans(),
        FieldDescriptor.TYPE_DOUBLE: st.floats(allow_nan=False),
        FieldDescriptor.TYPE_ENUM: st.sampled_from(Step),
    }
    value = by_type[field.type]
    if field.is_repeated:
        return st.lists(value, max_size=5).map(tuple)
    return st.none() | value if field.has_presence else value


def instances(kind: type[Message]) -> st.SearchStrategy[Message]:
    return st.builds(kind, **{field.name: values(field) for field in FIELDS[kind.__name__]})


MESSAGES: st.SearchStrategy[Message] = st.one_of([instances(kind) for kind in get_args(Message)])


@given(MESSAGES)
def test_a_message_survives_encoding_and_decoding(message: Message) -> None:
    assert codec.decode(codec.encode(message)) == message


@given(MESSAGES)
def test_encoding_equals_the_generated_code(message: Message) -> None:
    assert codec.encode(message) == codec.encode_generated(message)


def field(number: int, content: bytes) -> bytes:
    return field_prefix(number, len(content)) + content


#: Contents of messages that carry data: in order, out of order, twice, unknown, cut, any bytes.
CONTENTS = st.lists(
    st.one_of(
        st.sampled_from(
            [b"\x08\x01", b"\x10\x96\x01", b"\x20\x05", b"\x80\x01\x01", b"\x0d\0\0\0\0"]
        ),
        st.integers(0, 2**64 - 1).map(
            lambda step: training_pb2.EmbeddingBlock(step=step).SerializeToString()
        ),
        st.binary(max_size=9).map(lambda content: field(3, content)),
        st.binary(max_size=9).map(lambda content: field(2, content)),
        st.binary(max_size=3),
    ),
    max_size=5,
).map(b"".join)


@given(st.sampled_from([11, 22, 23, 25, 26, 27, 28, 29, 33, 34, 37, 38, 39]), CONTENTS)
def test_decoding_equals_the_generated_code(entry: int, content: bytes) -> None:
    def found(decode: Callable[[bytes], Message]) -> Message | str:
        try:
            return decode(field(entry, content))
        except ProtocolViolation as error:
            return str(error)

    assert found(codec.decode) == found(codec.decode_generated)


@pytest.mark.parametrize(
    "sent",
    [
        messages.EmbeddingBlock(1, 2, bytes(range(100))),
        messages.GradientBlock(1, 2, bytes(range(100))),
        messages.TestEmbeddingBlock(1, 2, bytes(range(100))),
        messages.EvaluationEmbeddingBlock(2, bytes(range(100))),
        messages.TransferBlock(2, bytes(range(100))),
        messages.ChoiceBlock(2, bytes(range(100))),
        messages.OfferBlock(1, 2, bytes(range(100))),
        messages.EncryptedLabels(2, bytes(range(100))),
        messages.AggregateRequest(2, bytes(range(100))),
        messages.AggregateAnswer(2, bytes(range(100))),
    ],
    ids=lambda block: type(block).__name__,
)
def test_received_blocks_are_not_copied(sent: Block) -> None:
    encoded = codec.encode(sent)
    block = codec.decode(encoded)
    assert block == sent
    assert isinstance(block, type(sent))
    assert isinstance(block.values, memoryview)
    assert block.values.obj is encoded


REQUESTS = st.builds(PredictionRequest, st.binary(max_size=200), st.none() | st.integers(0, 2**63))


@given(REQUESTS)
def test_a_request_survives_encoding_and_decoding(request: PredictionRequest) -> None:
    encoded = codec.encode_serving(request)
    assert codec.decode_serving(PredictionRequest, encoded) == request
    assert codec.decode_serving_generated(PredictionRequest, encoded) == request
    plain = codec.encode_serving_generated(request)
    assert codec.decode_serving(PredictionRequest, plain) == request
    assert len(encoded) == len(plain)
    if request.group is None:
        assert encoded == plain


#: Contents of requests: in order, out of order, twice, unknown, cut, any bytes.
REQUESTED = st.lists(
    st.one_of(
        st.sampled_from([b"\x10\x01", b"\x10\x96\x01", b"\x20\x05", b"\x90\x01\x01"]),
        st.binary(max_size=9).map(lambda content: field(1, content)),
        st.binary(max_size=3),
    ),
    max_size=5,
).map(b"".join)


@given(REQUESTED)
def test_decoding_a_request_equals_the_generated_code(content: bytes) -> None:
    def found(
        decode: Callable[[type[PredictionRequest], bytes], PredictionRequest],
    ) -> PredictionRequest | str:
        try:
            return decode(PredictionRequest, content)
        except ProtocolViolation as error:
            return str(error)

    assert found(codec.decode_serving) == found(codec.decode_serving_generated)


def test_the_limit_holds_for_requests() -> None:
    with pytest.raises(ValueError, match="limit"):
        codec.encode_serving(PredictionRequest(bytes(MAX_MESSAGE_BYTES)))
    with pytest.raises(ProtocolViolation, match="limit is 4 MiB"):
        codec.decode_serving(PredictionRequest, bytes(MAX_MESSAGE_BYTES + 1))


@given(MESSAGES)
def test_no_encoded_message_is_empty(message: Message) -> None:
    """An empty gRPC message closes a channel."""
    assert codec.encode(message)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_violation(data: bytes) -> None:
    try:
        message = codec.decode(data)
    except ProtocolViolation:
        return
    assert isinstance(message, Message)


@given(MESSAGES, st.data())
def test_a_truncated_message_is_another_message_or_a_violation(
    message: Message, data: st.DataObject
) -> None:
    encoded = codec.encode(message)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    try:
        assert codec.decode(encoded[:cut]) != message
    except ProtocolViolation:
        return


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty or unknown"),
        (b"\xff", "malformed message"),
        (b"not a message", "malformed message"),
        (bytes((0x52, 0x02, 0x08, 0x07)), "unknown step 7"),
        (bytes((0x52, 0x00)), "unknown step 0"),
        (bytes((0xFA, 0x07, 0x00)), "same release"),
    ],
)
def test_errors_of_malformed_messages(data: bytes, says: str) -> None:
    with pytest.raises(ProtocolViolation, match=says):
        codec.decode(data)


def test_the_size_limit_holds_in_both_directions() -> None:
    fits = SetChunk(Step.SECOND_ROUND, 1, b"x" * (MAX_MESSAGE_BYTES - 32))
    assert codec.decode(codec.encode(fits)) == fits
    with pytest.raises(ValueError, match="limit"):
        codec.encode(SetChunk(Step.SECOND_ROUND, 1, b"x" * MAX_MESSAGE_BYTES))
    with pytest.raises(ProtocolViolation, match="limit is 4 MiB"):
        codec.decode(b"\0" * (MAX_MESSAGE_BYTES + 1))


def test_the_method_names_are_those_of_the_proto_files() -> None:
    assert codec.METHOD == "/florist.Florist/Converse"
