"""Protobuf's encoding of a bytes field, written by hand so that the data is copied only once.

The generated code copies such a field several times; for a megabyte this takes twenty times as long
as one copy. The encoded bytes are the same.
"""

from __future__ import annotations

_VARINT, _LENGTH_DELIMITED = 0, 2  # protobuf's wire types of integers, and of bytes and messages
_MORE = 0x80  # set in every byte of a varint except the last
_MAX_INTEGER, _MAX_LENGTH = 10, 5  # maximum bytes of a 64-bit varint, and of a length


def field_prefix(number: int, length: int) -> bytes:
    """The tag and length that precede `length` bytes of field `number`."""
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(length)


def split(body: memoryview, number: int) -> tuple[memoryview, memoryview] | None:
    """Split a message into its encoded leading fields and the content of its last field, `number`.

    Returns None unless the bytes field `number` comes last, only integer fields precede it, and all
    field numbers are below 16.
    """
    end, sought = 0, number << 3 | _LENGTH_DELIMITED
    while end < len(body) and body[end] != sought:
        if body[end] & 7 != _VARINT or body[end] & _MORE:
            return None
        found = _varint_at(body, end + 1, _MAX_INTEGER)
        if found is None:
            return None
        _, end = found
    length = _varint_at(body, end + 1, _MAX_LENGTH)
    if length is None or sum(length) != len(body):
        return None
    return body[:end], body[length[1] :]


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= _MORE:
        encoded.append(value % _MORE | _MORE)
        value //= _MORE
    encoded.append(value)
    return bytes(encoded)


def _varint_at(data: memoryview, start: int, longest: int) -> tuple[int, int] | None:
    """The varint at `start` and the index after it; None if it is longer than `longest` bytes."""
    value = 0
    for index, byte in enumerate(data[start : start + longest]):
        value |= (byte & ~_MORE) << 7 * index
        if not byte & _MORE:
            return value, start + index + 1
    return None
