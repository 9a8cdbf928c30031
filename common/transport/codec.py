"""Messages to bytes and back. The only module that knows the generated code.

A message and its counterpart in `florist.proto` have the same field names; the table below pairs
them, and nothing is written out per message.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import DecodeError

from florist.common.core.errors import ProtocolViolation
from florist.common.transport import messages
from florist.common.transport.messages import MAX_MESSAGE_BYTES, Step
from florist.common.transport.wire_format import announced, split
from florist.protos import florist_pb2 as pb

if TYPE_CHECKING:
    from florist.common.transport.messages import Data, Message, ServingMessage

S = TypeVar("S", bound="ServingMessage")


def _method(service: str, name: str) -> str:
    found = pb.DESCRIPTOR.services_by_name[service]
    return f"/{found.full_name}/{found.methods_by_name[name].name}"


#: Full names of the methods, from the .proto itself.
METHOD = _method("Florist", "Converse")
OPEN = _method("Prediction", "Open")
PREDICT = _method("Prediction", "Predict")
PREDICT_STREAM = _method("Prediction", "PredictStream")
#: Under which the health service knows predictions.
PREDICTION_SERVICE = pb.DESCRIPTOR.services_by_name["Prediction"].full_name

#: The envelope's entries: `set_chunk` → SetChunk. A .proto message without a twin fails here.
_TYPE_OF: dict[str, type[Message]] = {
    entry.name: getattr(messages, entry.message_type.name)
    for entry in pb.DESCRIPTOR.message_types_by_name["Envelope"].fields
    if entry.message_type is not None
}
_ENTRY_OF = {kind: entry for entry, kind in _TYPE_OF.items()}
_ENTRY_NUMBERS = {
    entry.name: entry.number for entry in pb.DESCRIPTOR.message_types_by_name["Envelope"].fields
}

#: What carries data may be as long as a message can be; nothing else comes near this.
MAX_OTHER_BYTES = 128 * 1024
_LENGTH_DELIMITED = 2  # protobuf's wire type of a message


class _Carrier:
    """The way to bytes and back of messages that carry data, in their one field of bytes.

    The generated code has the other fields; the data are put behind them, and taken from there.
    """

    def __init__(self, kind: type[Message | ServingMessage], *, as_view: bool) -> None:
        """With `as_view` the data of a message that came are a view of its bytes, not a copy."""
        self._kind = kind
        self._twin = getattr(pb, kind.__name__)
        declared = self._twin.DESCRIPTOR.fields
        (self._data,) = (each for each in declared if each.type == each.TYPE_BYTES)
        self._as_view = as_view

    def encode(self, message: Message | ServingMessage) -> tuple[bytes, Data]:
        """What precedes the data, and the data."""
        values = _values(message)
        data: Data = values.pop(self._data.name)
        head: bytes = self._twin(**values).SerializeToString()
        if data:
            head += announced(self._data.number, len(data))
        return head, data

    def decode(self, body: memoryview) -> Any | None:  # noqa: ANN401 - a message of its kind
        """None if the fields are not encoded as `encode` does it, or there are no data."""
        parts = split(body, self._data.number)
        if parts is None:
            return None
        head, data = parts
        empty: Any = _message(self._kind, _parsed(self._twin, bytes(head)))
        return replace(empty, **{self._data.name: data if self._as_view else bytes(data)})


_CARRIERS: dict[type[Message], _Carrier] = {
    messages.SetChunk: _Carrier(messages.SetChunk, as_view=False),
    messages.EmbeddingBlock: _Carrier(messages.EmbeddingBlock, as_view=True),
    messages.GradientBlock: _Carrier(messages.GradientBlock, as_view=True),
}
_CARRIER_OF_ENTRY = {_ENTRY_NUMBERS[_ENTRY_OF[kind]]: own for kind, own in _CARRIERS.items()}
_SERVING_CARRIERS: dict[type[Any], _Carrier] = {
    messages.PredictionRequest: _Carrier(messages.PredictionRequest, as_view=True),
}


def encode(message: Message) -> bytes:
    """The envelope that holds `message`, as bytes."""
    kind = type(message)
    carrier = _CARRIERS.get(kind)
    if carrier is None:
        return encode_plainly(message)
    head, data = carrier.encode(message)
    entry = announced(_ENTRY_NUMBERS[_ENTRY_OF[kind]], len(head) + len(data))
    return _within_limit(b"".join((entry, head, data)))


def encode_plainly(message: Message) -> bytes:
    """The same bytes, by the generated code alone."""
    values: dict[str, Any] = {_ENTRY_OF[type(message)]: _values(message)}
    return _within_limit(pb.Envelope(**values).SerializeToString())


def decode(data: bytes) -> Message:
    """The message in `data`.

    Raises:
        ProtocolViolation: too large, not an envelope, an empty one, or an unknown step.
    """
    _check_size(data)
    number, start = _entry(data) if data else (0, 0)
    carrier = _CARRIER_OF_ENTRY.get(number)
    if carrier is None and len(data) > MAX_OTHER_BYTES:
        raise ProtocolViolation(
            f"the peer sent a message of {len(data)} bytes that carries no data; the limit is "
            "128 KiB"
        )
    carried = carrier.decode(memoryview(data)[start:]) if carrier is not None else None
    return decode_plainly(data) if carried is None else carried


def decode_plainly(data: bytes) -> Message:
    """The same message, by the generated code alone; of an envelope of one entry."""
    envelope = _parsed(pb.Envelope, data)
    entry = envelope.WhichOneof("message")
    if entry is None:
        raise ProtocolViolation(
            "the peer sent an empty or unknown message; run the same release on both sides"
        )
    message: Message = _message(_TYPE_OF[entry], getattr(envelope, entry))
    return message


def encode_serving(message: ServingMessage) -> bytes:
    """A message of the service `Prediction`, which has no envelope."""
    carrier = _SERVING_CARRIERS.get(type(message))
    if carrier is None:
        return encode_serving_plainly(message)
    return _within_limit(b"".join(carrier.encode(message)))


def encode_serving_plainly(message: ServingMessage) -> bytes:
    """The same message, by the generated code alone.

    The same bytes too, but that a group's number comes behind the data: the order has no meaning.
    """
    twin = getattr(pb, type(message).__name__)
    return _within_limit(twin(**_values(message)).SerializeToString())


def decode_serving(kind: type[S], data: bytes) -> S:
    """The message of that kind in `data`.

    Raises:
        ProtocolViolation: too large, or no such message.
    """
    _check_size(data)
    carrier = _SERVING_CARRIERS.get(kind)
    carried: S | None = carrier.decode(memoryview(data)) if carrier is not None else None
    return decode_serving_plainly(kind, data) if carried is None else carried


def decode_serving_plainly(kind: type[S], data: bytes) -> S:
    """The same message, by the generated code alone."""
    message: S = _message(kind, _parsed(getattr(pb, kind.__name__), data))
    return message


def _within_limit(data: bytes) -> bytes:
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(f"message of {len(data)} bytes; the limit is {MAX_MESSAGE_BYTES}")
    return data


def _check_size(data: bytes) -> None:
    if len(data) > MAX_MESSAGE_BYTES:
        raise ProtocolViolation(f"the peer sent a message of {len(data)} bytes; the limit is 4 MiB")


def _parsed(kind: Any, data: bytes) -> Any:  # noqa: ANN401 - any generated class
    _check_size(data)
    try:
        return kind.FromString(data)
    except DecodeError:
        raise _not_a_message() from None


def _entry(data: bytes) -> tuple[int, int]:
    """The number of the one entry that an envelope is, and where its content begins.

    The parser would take any number of entries one after the other and keep room for each, though
    only the last counts: twenty times the memory of the bytes that came.
    """
    tag, start = _varint(data, 0)
    length, start = _varint(data, start)
    if tag & 7 != _LENGTH_DELIMITED or start + length != len(data):
        raise _not_a_message()
    return tag >> 3, start


def _varint(data: bytes, start: int) -> tuple[int, int]:
    """A number as protobuf writes it, and where it ends; none here needs more than five bytes."""
    value = 0
    for place, byte in enumerate(data[start : start + 5]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, start + place + 1
    raise _not_a_message()


def _not_a_message() -> ProtocolViolation:
    return ProtocolViolation("the peer sent bytes that are no FLORIST message")


def _values(message: Any) -> dict[str, Any]:  # noqa: ANN401 - any message
    """Field by field, as generated classes take them: a dict for a message within costs no copy."""
    values = ((field.name, getattr(message, field.name)) for field in fields(message))
    return {name: _values(value) if is_dataclass(value) else value for name, value in values}


def _message(kind: Any, body: Any) -> Any:  # noqa: ANN401 - any message, from its generated twin
    return kind(**{field.name: _value(body, field.name) for field in fields(kind)})


def _value(body: Any, name: str) -> Any:  # noqa: ANN401 - any field of any message
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
        raise ProtocolViolation(f"the peer named step {number}, which does not exist") from None
