"""Sizes of memory, as a configuration gives them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator


def size_in_bytes(text: str) -> int:
    """What `512MB` or `2GiB` means.

    Raises:
        ValueError: it means nothing.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([MG])(i?)B", text)
    if not found:
        raise ValueError("must be a number with its unit, such as 512MB or 2GB")
    number, letter, is_binary = found.groups()
    base = 1024 if is_binary else 1000
    return int(float(number) * base ** {"M": 2, "G": 3}[letter])


def _check_size(text: str) -> str:
    size_in_bytes(text)
    return text


def _check_process(text: str) -> str:
    if size_in_bytes(text) < 256_000_000:
        raise ValueError("must be 256MB at least")
    return text


#: Of some data; it may be 0MB.
DataSize = Annotated[str, AfterValidator(_check_size)]
#: Of a whole process.
MemorySize = Annotated[str, AfterValidator(_check_process)]
