"""Encodes messages to bytes and decodes them; the only module that imports the generated code.

A message class and its counterpart in the `.proto` files have the same name and the same field
names, so that one table pairs them and no message needs code of its own.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as GeneratedMessage

from florist.common.core.errors import ProtocolViolation
from florist.common.transport import messages
from florist.common.transport.messages import MAX_MESSAGE_BYTES, Step
from florist.common.transport.wire_format import field_prefix, split
from florist.protos import (
    evaluation_pb2,
    evidence_pb2,
    psu_pb2,
    serving_pb2,
    session_pb2,
    training_pb2,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from florist.common.transport.messages import Data, Message, ServingMessage

S = TypeVar("S", bound="ServingMessage")
K = TypeVar("K", bound="Message | ServingMessage")


#: The generated class of each message, by name.
_GENERATED: dict[str, type[GeneratedMessage]] = {
    name: getattr(module, name)
    for module in (
        session_pb2,
        psu_pb2,
        training_pb2,
        evaluation_pb2,
        evidence_pb2,
        serving_pb2,
    )
    for name in module.DESCRIPTOR.message_types_by_name
}
_CONVERSE = session_pb2.DESCRIPTOR.services_by_name["Florist"].methods_by_name["Converse"]
_PREDICTION = serving_pb2.DESCRIPTOR.services_by_name["Prediction"]


def _path(service: str, method: str) -> str:
    return f"/{service}/{method}"


#: The full names of the gRPC methods, as declared in the .proto files.
METHOD = _path(_CONVERSE.containing_service.full_name, _CONVERSE.name)
OPEN, PREDICT, PREDICT_STREAM = (
    _path(_PREDICTION.full_name, _PREDICTION.methods_by_name[name].name)
    for name in ("Open", "Predict", "PredictStream")
)
#: The name of the prediction service in gRPC's health service.
PREDICTION_SERVICE = _PREDICTION.full_name

_ENTRIES = session_pb2.DESCRIPTOR.message_types_by_name["Envelope"].fields
#: The envelope's entries: `set_chunk` → SetChunk. A .proto message without a class fails here.
_TYPE_OF: dict[str, type[Message]] = {
    entry.name: getattr(messages, entry.message_type.name)
    for entry in _ENTRIES
    if entry.message_type is not None
}
_ENTRY_OF = {kind: entry for entry, kind in _TYPE_OF.items()}
_ENTRY_NUMBERS = {entry.name: entry.number for entry in _ENTRIES}

#: The size limit of messages without bulk data; only blocks and chunks may be larger.
MAX_OTHER_BYTES = 128 * 1024
_LENGTH_DELIMITED = 2  # protobuf's wire type of an embedded message


class _BulkCodec(Generic[K]):
    """The fast path for messages with bulk data in their only bytes field.

    The generated code handles the other fields; the data follows them.
    """

    def __init__(self, kind: type[K], *, as_view: bool) -> None:
        """With `as_view`, the data of a decoded message is a view of its bytes, not a copy."""
        self._kind = kind
        self._generated = _GENERATED[kind.__name__]
        declared = self._generated.DESCRIPTOR.fields
        (self._data,) = (each for each in declared if each.type == each.TYPE_BYTES)
        self._as_view = as_view

    def encode(self, message: K) -> tuple[bytes, Data]:
        """The bytes that precede the data, and the data."""
        values = _values(message)
        data: Data = values.pop(self._data.name)
        head = self._generated(**values).SerializeToString()
        if data:
            head += field_prefix(self._data.number, len(data))
        return head, data

    def decode(self, body: memoryview) -> K | None:
        """Decode a message; None if there is no data or it does not follow all other fields."""
        parts = split(body, self._data.number)
        if parts is None:
            return None
        head, data = parts
        values = _fields(self._kind, _parsed(self._generated, bytes(head)))
        values[self._data.name] = data if self._as_view else bytes(data)
        return self._kind(**values)


_BLOCKS: tuple[type[Message], ...] = (
    messages.EmbeddingBlock,
    messages.TransferBlock,
    messages.ChoiceBlock,
    messages.OfferBlock,
    messages.EncryptedLabels,
    messages.AggregateRequest,
    messages.AggregateAnswer,
    messages.GradientBlock,
    messages.TestEmbeddingBlock,
    messages.EvaluationEmbeddingBlock,
)
_BULK: dict[type[Message], _BulkCodec[Any]] = {
    messages.SetChunk: _BulkCodec(messages.SetChunk, as_view=False),
    **{block: _BulkCodec(block, as_view=True) for block in _BLOCKS},
}
_BULK_OF_ENTRY = {_ENTRY_NUMBERS[_ENTRY_OF[kind]]: bulk for kind, bulk in _BULK.items()}
_SERVING_BULK: dict[type, _BulkCodec[Any]] = {
    messages.PredictionRequest: _BulkCodec(messages.PredictionRequest, as_view=True),
}


def encode(message: Message) -> bytes:
    """Encode an envelope that contains `message`."""
    kind = type(message)
    bulk = _BULK.get(kind)
    if bulk is None:
        return encode_generated(message)
    head, data = bulk.encode(message)
    entry = field_prefix(_ENTRY_NUMBERS[_ENTRY_OF[kind]], len(head) + len(data))
    return _within_limit(b"".join((entry, head, data)))


def encode_generated(message: Message) -> bytes:
    """Encode to the same bytes with the generated code alone."""
    values: dict[str, Any] = {_ENTRY_OF[type(message)]: _values(message)}
    return _within_limit(_GENERATED["Envelope"](**values).SerializeToString())


def decode(data: bytes) -> Message:
    """Decode the message in an envelope.

    Raises:
        ProtocolViolation: `data` is too large, is not an envelope, or contains no message or an
            unknown step.
    """
    _check_size(data)
    number, start = _entry(data) if data else (0, 0)
    bulk = _BULK_OF_ENTRY.get(number)
    if bulk is None and len(data) > MAX_OTHER_BYTES:
        raise ProtocolViolation(
            f"the peer sent a message of {len(data)} bytes; the limit for messages without bulk "
            "data is 128 KiB"
        )
    decoded = bulk.decode(memoryview(data)[start:]) if bulk is not None else None
    return decode_generated(data) if decoded is None else decoded


def decode_generated(data: bytes) -> Message:
    """Decode an envelope of one entry with the generated code alone."""
    envelope = _parsed(_GENERATED["Envelope"], data)
    entry = envelope.WhichOneof("message")
    if entry is None:
        raise ProtocolViolation(
            "the peer sent an empty or unknown message; run the same release on both sides"
        )
    message: Message = _message(_TYPE_OF[entry], getattr(envelope, entry))
    return message


def encode_serving(message: ServingMessage) -> bytes:
    """Encode a message of the service `Prediction`, which has no envelope."""
    bulk = _SERVING_BULK.get(type(message))
    if bulk is None:
        return encode_serving_generated(message)
    return _within_limit(b"".join(bulk.encode(message)))


def encode_serving_generated(message: ServingMessage) -> bytes:
    """Encode with the generated code alone.

    The bytes are the same except that a request's group follows the data. The order of fields has
    no meaning.
    """
    generated = _GENERATED[type(message).__name__]
    return _within_limit(generated(**_values(message)).SerializeToString())


def decode_serving(kind: type[S], data: bytes) -> S:
    """Decode a message of type `kind`.

    Raises:
        ProtocolViolation: `data` is too large or is not such a message.
    """
    _check_size(data)
    bulk = _SERVING_BULK.get(kind)
    decoded: S | None = bulk.decode(memoryview(data)) if bulk is not None else None
    return decode_serving_generated(kind, data) if decoded is None else decoded


def decode_serving_generated(kind: type[S], data: bytes) -> S:
    """Decode with the generated code alone."""
    message: S = _message(kind, _parsed(_GENERATED[kind.__name__], data))
    return message


def _within_limit(data: bytes) -> bytes:
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(f"message of {len(data)} bytes; the limit is {MAX_MESSAGE_BYTES}")
    return data


def _check_size(data: bytes) -> None:
    if len(data) > MAX_MESSAGE_BYTES:
        raise ProtocolViolation(f"the peer sent a message of {len(data)} bytes; the limit is 4 MiB")


def _parsed(kind: type[GeneratedMessage], data: bytes) -> GeneratedMessage:
    _check_size(data)
    try:
        return kind.FromString(data)
    except DecodeError:
        raise _malformed() from None


def _entry(data: bytes) -> tuple[int, int]:
    """The field number of an envelope's only entry, and the index at which its content starts.

    Protobuf's parser accepts any number of entries and allocates memory for each, although only the
    last one counts: a peer could make it use twenty times the memory of the bytes received.
    """
    tag, start = _varint(data, 0)
    length, start = _varint(data, start)
    if tag & 7 != _LENGTH_DELIMITED or start + length != len(data):
        raise _malformed()
    return tag >> 3, start


def _varint(data: bytes, start: int) -> tuple[int, int]:
    """The varint at `start`, of at most five bytes, and the index after it."""
    value = 0
    for index, byte in enumerate(data[start : start + 5]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, start + index + 1
    raise _malformed()


def _malformed() -> ProtocolViolation:
    return ProtocolViolation("the peer sent a malformed message")


def _values(message: DataclassInstance) -> dict[str, Any]:
    """The arguments for the generated class; nested messages become dictionaries."""
    values = ((field.name, getattr(message, field.name)) for field in fields(message))
    return {
        name: _values(value) if is_dataclass(value) and not isinstance(value, type) else value
        for name, value in values
    }


def _message(kind: type[K], body: GeneratedMessage) -> K:
    return kind(**_fields(kind, body))


def _fields(kind: type[DataclassInstance], body: GeneratedMessage) -> dict[str, Any]:
    return {field.name: _value(body, field.name) for field in fields(kind)}


def _value(body: GeneratedMessage, name: str) -> Any:  # noqa: ANN401 - any field of any message
    value = getattr(body, name)
    descriptor = body.DESCRIPTOR.fields_by_name[name]
    if descriptor.enum_type is not None:
        return _step(value)
    if descriptor.is_repeated:
        return tuple(value)
    if descriptor.message_type is not None:
        return _message(getattr(messages, descriptor.message_type.name), value)
    return value if not descriptor.has_presence or body.HasField(name) else None


def _step(number: int) -> Step:
    try:
        return Step(number)
    except ValueError:
        raise ProtocolViolation(f"the peer sent a message with the unknown step {number}") from None
