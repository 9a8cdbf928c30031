"""Messages to bytes and back. The only module that knows the generated code.

A message and its counterpart in `florist.proto` have the same field names; the table below pairs
them, and nothing is written out per message.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import DecodeError

from florist.common import messages
from florist.common.errors import ProtocolViolation
from florist.common.messages import MAX_MESSAGE_BYTES, Step
from florist.protos import florist_pb2 as pb

if TYPE_CHECKING:
    from florist.common.messages import Message, ServingMessage

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


def encode(message: Message) -> bytes:
    """The envelope that holds `message`, as bytes."""
    entry = _ENTRY_OF[type(message)]
    values: dict[str, Any] = {entry: _values(message)}
    return _within_limit(pb.Envelope(**values).SerializeToString())


def decode(data: bytes) -> Message:
    """The message in `data`.

    Raises:
        ProtocolViolation: too large, not an envelope, an empty one, or an unknown step.
    """
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
    twin = getattr(pb, type(message).__name__)
    return _within_limit(twin(**_values(message)).SerializeToString())


def decode_serving(kind: type[S], data: bytes) -> S:
    """The message of that kind in `data`.

    Raises:
        ProtocolViolation: too large, or no such message.
    """
    message: S = _message(kind, _parsed(getattr(pb, kind.__name__), data))
    return message


def _within_limit(data: bytes) -> bytes:
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(f"message of {len(data)} bytes; the limit is {MAX_MESSAGE_BYTES}")
    return data


def _parsed(kind: Any, data: bytes) -> Any:  # noqa: ANN401 - any generated class
    if len(data) > MAX_MESSAGE_BYTES:
        raise ProtocolViolation(f"the peer sent a message of {len(data)} bytes; the limit is 4 MiB")
    try:
        return kind.FromString(data)
    except DecodeError:
        raise ProtocolViolation("the peer sent bytes that are no FLORIST message") from None


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
