"""Errors that every kind of table file can raise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import quoted

if TYPE_CHECKING:
    from pathlib import Path


#: A compressed table may expand to this many times its size, and to `FREE_EXPANSION` bytes anyway.
MAX_EXPANSION = 250
FREE_EXPANSION = 1 << 30


def expansion_limit(file_bytes: int) -> int:
    """Return the number of bytes to which a compressed file of this size may expand."""
    return max(FREE_EXPANSION, MAX_EXPANSION * file_bytes)


def expands_too_much(path: Path, file_bytes: int, fix: str) -> ConfigurationError:
    """Make the error for a compressed file that exceeds `expansion_limit`."""
    return ConfigurationError(
        f"{path}: expands to more than {expansion_limit(file_bytes):,} bytes from {file_bytes:,} "
        f"compressed ones, which no ordinary table does; {fix}"
    )


def unreadable(path: Path, problem: object) -> ConfigurationError:
    """Make the error for an unreadable file; `problem` is the error of the system or of Arrow."""
    return ConfigurationError(
        f"{path}: cannot be read: {quoted(str(problem), 200)}; check its format and write it again"
    )


def no_rows(path: Path) -> ConfigurationError:
    """Make the error for a table without rows."""
    return ConfigurationError(f"{path}: has no rows; a table needs at least one")


def changed(source: object) -> ConfigurationError:
    """Make the error for a table that was modified between two passes over it."""
    return ConfigurationError(
        f"{source}: was modified while it was being read; run again, and do not modify the table "
        "during a run"
    )
