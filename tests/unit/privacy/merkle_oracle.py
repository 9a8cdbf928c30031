"""The tree by its definition in RFC 9162: recursive, on lists."""

from __future__ import annotations

from hashlib import sha256


def node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


def top(hashes: list[bytes]) -> bytes:
    if len(hashes) == 1:
        return hashes[0]
    split = _split(len(hashes))
    return node(top(hashes[:split]), top(hashes[split:]))


def siblings(leaf: int, hashes: list[bytes]) -> list[bytes]:
    if len(hashes) == 1:
        return []
    split = _split(len(hashes))
    if leaf < split:
        return [*siblings(leaf, hashes[:split]), top(hashes[split:])]
    return [*siblings(leaf - split, hashes[split:]), top(hashes[:split])]


def _split(count: int) -> int:
    return 1 << (count - 1).bit_length() - 1
