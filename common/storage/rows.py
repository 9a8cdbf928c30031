"""Read rows of equal width from a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from florist.common.core.errors import InternalError

if TYPE_CHECKING:
    from florist.common.storage.elements import Elements


def read_rows(file: BinaryIO, rows: int, width: int) -> Elements:
    """Read the next `rows` rows, which the file must contain.

    Raises:
        InternalError: the file ends early.
    """
    data = file.read(rows * width)
    if len(data) != rows * width:
        raise InternalError("a file of the alignment ends early: it was changed in the meantime")
    return np.frombuffer(data, dtype=np.uint8).reshape(rows, width)
