"""Messages between a head and its branches as bytes: JSON, checked by its types, and raw bytes.

Nothing is pickled, so that no message can execute code.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, TypeAdapter

from florist.common.cluster.branch_messages import (
    BranchMessage,
    BulkMessage,
    HeadRequest,
    MemberRequest,
)
from florist.common.core.errors import FloristError, InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

M = TypeVar("M", bound=BranchMessage)

#: The length of the JSON, in front of it; the payload follows.
_LENGTH = struct.Struct("<I")
#: The first byte of a reply.
_SUCCEEDED, _FAILED = b"\1", b"\0"

_HEAD_REQUESTS: TypeAdapter[HeadRequest] = TypeAdapter(HeadRequest)
_MEMBER_REQUESTS: TypeAdapter[MemberRequest] = TypeAdapter(MemberRequest)


def encode(message: BranchMessage) -> bytes:
    """Return the message as bytes."""
    return b"".join(_parts(message))


def decode_head_request(data: bytes) -> HeadRequest:
    """Return the request of a head.

    Raises:
        InternalError: it is malformed, or not such a request.
    """
    with _malformed_as_error():
        text, payload = _split(data)
        return _with_payload(_HEAD_REQUESTS.validate_json(text), payload)


def decode_member_request(data: bytes) -> MemberRequest:
    """Return the request of another branch of the party.

    Raises:
        InternalError: it is malformed, or not such a request.
    """
    with _malformed_as_error():
        text, payload = _split(data)
        return _with_payload(_MEMBER_REQUESTS.validate_json(text), payload)


def encode_reply(answer: Callable[[], BranchMessage]) -> bytes:
    """Return what `answer` returns or raises, as bytes."""
    try:
        return b"".join((_SUCCEEDED, *_parts(answer())))
    except FloristError as error:
        failure = _Failure(
            kind=type(error).__name__, reason=str(error), will_reconnect=error.will_reconnect
        )
    except Exception as error:  # noqa: BLE001 - reported to the caller, sealed; not to Ray's logs
        reason = f"in a branch, {type(error).__name__}: {error}"
        failure = _Failure(kind=InternalError.__name__, reason=reason, will_reconnect=False)
    return _FAILED + failure.model_dump_json().encode()


def decode_reply(kind: type[M], data: bytes) -> M:
    """Return the reply, of type `kind`.

    Raises:
        FloristError: the error that the call raised.
        InternalError: the reply is malformed.
    """
    with _malformed_as_error():
        if data[:1] != _SUCCEEDED:
            raise _Failure.model_validate_json(data[1:]).error()
        text, payload = _split(data, start=1)
        return _with_payload(kind.model_validate_json(text), payload)


@contextmanager
def _malformed_as_error() -> Iterator[None]:
    """Turn the errors of malformed bytes into one that has none of them."""
    try:
        yield
    except (ValueError, RecursionError, struct.error) as error:  # pydantic's are ValueErrors
        problem = type(error).__name__
        raise InternalError(f"a malformed message between a head and a branch: {problem}") from None


def _parts(message: BranchMessage) -> tuple[bytes, bytes, bytes]:
    text = message.model_dump_json().encode()
    payload = message.payload if isinstance(message, BulkMessage) else b""
    return _LENGTH.pack(len(text)), text, payload


def _split(data: bytes, start: int = 0) -> tuple[bytes, bytes]:
    (length,) = _LENGTH.unpack_from(data, start)
    text = start + _LENGTH.size
    if length > len(data) - text:
        raise ValueError("a message is shorter than it says")
    return data[text : text + length], data[text + length :]


def _with_payload(message: M, payload: bytes) -> M:
    if isinstance(message, BulkMessage):
        return message.model_copy(update={"payload": payload})
    if payload:
        raise ValueError("bytes follow a message that has none")
    return message


class _Failure(BaseModel):
    """An error on its way to the caller."""

    kind: str
    reason: str
    will_reconnect: bool

    def error(self) -> FloristError:
        kinds = {kind.__name__: kind for kind in _error_classes(FloristError)}
        kind = kinds.get(self.kind, InternalError)
        error = kind.__new__(kind)  # constructors differ; the text is complete
        Exception.__init__(error, self.reason)
        error.will_reconnect = self.will_reconnect
        return error


def _error_classes(kind: type[FloristError]) -> Iterator[type[FloristError]]:
    yield kind
    for derived in kind.__subclasses__():
        yield from _error_classes(derived)
