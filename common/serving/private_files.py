"""Small files that only their owner can read, created on first use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def private_file(path: Path, make: Callable[[], bytes]) -> bytes:
    """Read the file; if it does not exist, create it with the content that `make` returns.

    Raises:
        ConfigurationError: the file cannot be read or written, or other users can read it.
    """
    if path.exists():
        return _read(path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be written: {error.strerror}") from None
    content = make()
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    return content


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_mode & 0o077:
            raise ConfigurationError(f"{path}: other users can read it; run `chmod 600` on it")
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
