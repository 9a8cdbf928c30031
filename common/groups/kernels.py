"""The native kernels, if they were built; everything works without them, but more slowly."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

#: Contiguous memory; numpy's types can express this only from Python 3.12.
Bytes: TypeAlias = bytes | bytearray | npt.NDArray[np.generic]


class Kernels(Protocol):
    """Functions on whole arrays that release the GIL; `native/*.h` documents each."""

    def ifma_available(self) -> bool: ...
    def avx2_available(self) -> bool: ...
    def x25519_avx2(self, points: Bytes, scalar: Bytes, out: Bytes, /) -> None: ...
    def expand_messages(self, data: Bytes, offsets: Bytes, dst: Bytes, out: Bytes, /) -> None: ...
    def elligator2_map(self, uniform: Bytes, out: Bytes, /) -> None: ...
    def on_curve_batch(self, points: Bytes, random: Bytes, /) -> bool: ...

    # The same, eight at a time; only if `ifma_available()`.
    def x25519_ifma(self, points: Bytes, scalar: Bytes, out: Bytes, /) -> None: ...
    def expand_messages_ifma(
        self, data: Bytes, offsets: Bytes, dst: Bytes, out: Bytes, /
    ) -> None: ...
    def elligator2_map_ifma(self, uniform: Bytes, out: Bytes, /) -> None: ...
    def on_curve_batch_ifma(self, points: Bytes, random: Bytes, /) -> bool: ...


def _load() -> tuple[Kernels | None, str]:
    try:
        from florist.common.groups import _native  # noqa: PLC0415 - the import itself may fail
    except ImportError as error:
        return None, str(error)
    return _native, ""


#: None if the extension is missing; then `why_missing` is the message of the import error.
native, why_missing = _load()
