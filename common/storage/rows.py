"""Rows of equal width in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from florist.common.core.errors import InternalError

if TYPE_CHECKING:
    from florist.common.storage.elements import Elements


def read_rows(file: BinaryIO, rows: int, width: int) -> Elements:
    """The next `rows` rows of a file that holds them."""
    data = file.read(rows * width)
    if len(data) != rows * width:
        raise InternalError("a file of the alignment ends early: it was changed meanwhile")
    return np.frombuffer(data, dtype=np.uint8).reshape(rows, width)
