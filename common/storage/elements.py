"""Arrays of encoded group elements: the form in which they are computed, stored and sent."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

#: `n` contiguous elements: a C-contiguous uint8 array of shape (n, width of an element).
Elements = npt.NDArray[np.uint8]


def is_array_of(elements: object, width: int) -> bool:
    """Whether this is such an array, with elements of `width` bytes."""
    return (
        isinstance(elements, np.ndarray)
        and elements.dtype == np.uint8
        and elements.ndim == 2
        and elements.shape[1] == width
        and elements.flags.c_contiguous
    )
