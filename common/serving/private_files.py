"""Small files that only their owner may read: made once, then kept."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def private_file(path: Path, make: Callable[[], bytes]) -> bytes:
    """What the file holds; where there is none, it is made from what `make` gives.

    Raises:
        ConfigurationError: it cannot be read or written, or others can read it.
    """
    if path.exists():
        return _read(path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None
    content = make()
    with os.fdopen(made, "wb") as file:
        file.write(content)
    return content


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_mode & 0o077:
            raise ConfigurationError(f"{path}: others can read it; `chmod 600` it")
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
