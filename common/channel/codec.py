"""Messages to bytes and back. The only module that knows the generated code.

A message and its counterpart in `florist.proto` have the same field names; the table below pairs
them, and nothing is written out per message.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from florist.common import messages
from florist.common.errors import ProtocolViolation
from florist.common.messages import MAX_MESSAGE_BYTES, Step
from florist.protos import florist_pb2 as pb

if TYPE_CHECKING:
    from florist.common.messages import Message

#: Full name of the one method, from the .proto itself.
METHOD = "/{}/{}".format(
    pb.DESCRIPTOR.services_by_name["Florist"].full_name,
    pb.DESCRIPTOR.services_by_name["Florist"].methods[0].name,
)

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
    values = {field.name: getattr(message, field.name) for field in fields(message)}
    body: Any = getattr(pb, type(message).__name__)(**values)
    data = pb.Envelope(**{entry: body}).SerializeToString()
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(f"message of {len(data)} bytes; the limit is {MAX_MESSAGE_BYTES}")
    return data


def decode(data: bytes) -> Message:
    """The message in `data`.

    Raises:
        ProtocolViolation: too large, not an envelope, an empty one, or an unknown step.
    """
    if len(data) > MAX_MESSAGE_BYTES:
        raise ProtocolViolation(f"the peer sent a message of {len(data)} bytes; the limit is 4 MiB")
    try:
        envelope = pb.Envelope.FromString(data)
    except DecodeError:
        raise ProtocolViolation("the peer sent bytes that are no FLORIST message") from None
    entry = envelope.WhichOneof("message")
    if entry is None:
        raise ProtocolViolation(
            "the peer sent an empty or unknown message; run the same release on both sides"
        )
    kind, body = _TYPE_OF[entry], getattr(envelope, entry)
    return kind(**{field.name: _value(body, field.name) for field in fields(kind)})


def _value(body: Any, name: str) -> Any:  # noqa: ANN401 - any field of any message
    value = getattr(body, name)
    descriptor = body.DESCRIPTOR.fields_by_name[name]
    if descriptor.enum_type is not None:
        return _step(value)
    if descriptor.is_repeated:
        return tuple(value)
    return value if not descriptor.has_presence or body.HasField(name) else None


def _step(number: int) -> Step:
    try:
        return Step(number)
    except ValueError:
        raise ProtocolViolation(f"the peer named step {number}, which does not exist") from None
