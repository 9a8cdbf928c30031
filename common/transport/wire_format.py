"""Protobuf's encoding of a field of bytes, by hand: behind the fields before it, in one copy.

The generated code copies such a field several times over, which for a megabyte takes twenty times
as long as one copy. The bytes on the line are the same.
"""

from __future__ import annotations

_VARINT, _LENGTH_DELIMITED = 0, 2  # protobuf's wire types of integers, and of bytes and messages
_MORE = 0x80  # marks each byte of an integer but its last
_MAX_INTEGER, _MAX_LENGTH = 10, 5  # bytes of an integer of 64 bits, and of a length


def announced(number: int, length: int) -> bytes:
    """What precedes `length` bytes of field `number`."""
    return _integer(number << 3 | _LENGTH_DELIMITED) + _integer(length)


def split(body: memoryview, number: int) -> tuple[memoryview, memoryview] | None:
    """The encoded fields of a message before its last one, `number`, and the bytes of that one.

    None where the message is not so: nothing but integers before it, nothing behind it, and each
    field's number below 16.
    """
    end, sought = 0, number << 3 | _LENGTH_DELIMITED
    while end < len(body) and body[end] != sought:
        if body[end] & 7 != _VARINT or body[end] & _MORE:
            return None
        found = _integer_at(body, end + 1, _MAX_INTEGER)
        if found is None:
            return None
        _, end = found
    length = _integer_at(body, end + 1, _MAX_LENGTH)
    if length is None or sum(length) != len(body):
        return None
    return body[:end], body[length[1] :]


def _integer(value: int) -> bytes:
    encoded = bytearray()
    while value >= _MORE:
        encoded.append(value % _MORE | _MORE)
        value //= _MORE
    encoded.append(value)
    return bytes(encoded)


def _integer_at(data: memoryview, start: int, longest: int) -> tuple[int, int] | None:
    """An integer and where it ends, if it does within `longest` bytes."""
    value = 0
    for place, byte in enumerate(data[start : start + longest]):
        value |= (byte & ~_MORE) << 7 * place
        if not byte & _MORE:
            return value, start + place + 1
    return None
