"""Sizes and times: memory in a configuration, such as 512MB, and both in messages."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator


def size_in_bytes(text: str) -> int:
    """Convert `512MB` or `2GiB` to bytes.

    Raises:
        ValueError: the text is not a number with one of the units MB, GB, MiB and GiB.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([MG])(i?)B", text)
    if not found:
        raise ValueError("must be a number with a unit, such as 512MB or 2GB")
    number, letter, is_binary = found.groups()
    base = 1024 if is_binary else 1000
    return int(float(number) * base ** {"M": 2, "G": 3}[letter])


def shown_bytes(count: int) -> str:
    """Return a number of bytes with a unit, such as `1.5 GB`."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"


def shown_seconds(seconds: float) -> str:
    """Return a time with a unit, such as `3 min`."""
    for unit, factor in (("h", 3600), ("min", 60)):
        if seconds >= 2 * factor:
            return f"{seconds / factor:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 2 else f"{seconds:.1f} s"


def _check_size(text: str) -> str:
    size_in_bytes(text)
    return text


def _check_process_size(text: str) -> str:
    if size_in_bytes(text) < 256_000_000:
        raise ValueError("must be at least 256MB")
    return text


#: Memory for data; may be 0MB.
DataSize = Annotated[str, AfterValidator(_check_size)]
#: Memory for a whole process; at least 256MB.
MemorySize = Annotated[str, AfterValidator(_check_process_size)]
