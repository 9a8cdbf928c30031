"""Calls of a branch as bytes: which there are, what they take, what they give.

Nothing in them can run: values are JSON, checked by their types, or plain bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, TypeAdapter

from florist.common.cluster.branch_messages import (
    BranchOrder,
    BranchResult,
    BranchStatus,
    ResumeState,
    UnionRecord,
)
from florist.common.core import errors
from florist.common.core.errors import FloristError, InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LENGTH = struct.Struct("<I")
_WELL, _BADLY = b"\1", b"\0"


@dataclass(frozen=True, slots=True)
class Signature:
    """Types of what a call takes and gives; `bytes` are passed as they are."""

    takes: tuple[Any, ...]
    gives: tuple[Any, ...]


Signatures = Mapping[str, Signature]

#: Of a `Branch`, by its head.
OF_HEAD: Signatures = {
    "recall": Signature((UnionRecord,), (ResumeState,)),
    "begin": Signature((BranchOrder, bytes), ()),
    "take_ids": Signature((int, bytes), (int,)),
    "end_ids": Signature((), ()),
    "listening_address": Signature((str, int), (str,)),
    "run": Signature((str, bytes), (BranchResult,)),
    "status": Signature((), (BranchStatus,)),
    "ranks": Signature((int,), (bytes,)),
    "stop": Signature((str,), ()),
    "forget": Signature((Path,), ()),
}
#: Of its mailbox, by siblings; the first argument is the attempt.
OF_SIBLINGS: Signatures = {
    "tell": Signature((bytes, str, int, int), ()),
    "rows": Signature((bytes, str, int, int), (int, bytes)),
}


def packed(types: Sequence[Any], values: Sequence[object]) -> bytes:
    """Values of these types, one after the other."""
    parts: list[bytes] = []
    for kind, value in zip(types, values, strict=True):
        data = value if isinstance(value, bytes) else _adapter(kind).dump_json(value)
        parts += [_LENGTH.pack(len(data)), data]
    return b"".join(parts)


def unpacked(types: Sequence[Any], data: bytes) -> list[Any]:
    """The values again."""
    values: list[Any] = []
    start = 0
    for kind in types:
        end = start + _LENGTH.size
        start, end = end, end + _LENGTH.unpack(data[start:end])[0]
        part = data[start:end]
        values.append(part if kind is bytes else _adapter(kind).validate_json(part))
        start = end
    return values


def asked(signatures: Signatures, method: str, arguments: Sequence[object]) -> bytes:
    """A call."""
    return packed((str, *signatures[method].takes), (method, *arguments))


def answered(
    signatures: Signatures, find: Callable[[str], Callable[..., object]], call: bytes
) -> bytes:
    """What the method that `find` finds gives to a call, or raises."""
    try:
        (method,) = unpacked((str,), call)
        signature = signatures[method]
        _, *arguments = unpacked((str, *signature.takes), call)
        given = find(method)(*arguments)
        values = given if len(signature.gives) > 1 else (given,) * len(signature.gives)
        return _WELL + packed(signature.gives, values)  # type: ignore[arg-type]
    except FloristError as error:
        told = _Failure(kind=type(error).__name__, reason=str(error), returns=error.returns)
    except Exception as error:  # noqa: BLE001 - the caller is told, sealed; Ray's logs are not
        reason = f"in a branch, {type(error).__name__}: {error}"
        told = _Failure(kind=InternalError.__name__, reason=reason, returns=False)
    return _BADLY + told.model_dump_json().encode()


def result(signature: Signature, answer: bytes) -> Any:  # noqa: ANN401 - as the signature says
    """What a call gave.

    Raises:
        FloristError: what it raised.
    """
    outcome, data = answer[:1], answer[1:]
    if outcome != _WELL:
        raise _Failure.model_validate_json(data).error()
    values = unpacked(signature.gives, data)
    return tuple(values) if len(values) > 1 else next(iter(values), None)


class _Failure(BaseModel):
    kind: str
    reason: str
    returns: bool

    def error(self) -> FloristError:
        kind = getattr(errors, self.kind, None)
        if not isinstance(kind, type) or not issubclass(kind, FloristError):
            kind = InternalError
        error = kind.__new__(kind)
        Exception.__init__(error, self.reason)
        error.returns = self.returns
        return error


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - any type
    return TypeAdapter(kind)
