"""The native kernels, if they were built and this CPU can run them; all works without them."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

#: Contiguous memory; numpy's types can express this only from Python 3.12.
Bytes: TypeAlias = bytes | bytearray | memoryview | npt.NDArray[np.generic]
#: An array of bytes.
ByteArray: TypeAlias = npt.NDArray[np.uint8]


class Kernels(Protocol):
    """Functions on whole arrays that release the GIL; `native/*.h` documents each."""

    def available(self) -> bool: ...
    def key_streams(self, keys: Bytes, number: int, out: Bytes, /) -> None: ...
    def tweaked_hashes(
        self, key: Bytes, blocks: Bytes, offset: Bytes, first: int, out: Bytes, /
    ) -> None: ...
    def encrypt_rows(self, key: Bytes, keys: Bytes, rows: Bytes, out: Bytes, /) -> None: ...
    def transpose_bits(self, columns: Bytes, out: Bytes, /) -> None: ...
    def column_hashes(self, columns: Bytes, blocks: int, point: Bytes, out: Bytes, /) -> None: ...


def _load() -> tuple[Kernels | None, str]:
    try:
        # The import itself may fail.
        from florist.common.oblivious_transfer import _native  # noqa: PLC0415
    except ImportError as error:
        return None, str(error)
    return (_native, "") if _native.available() else (None, "this CPU has no AES instructions")


#: None if the kernels cannot be used; then `why_missing` says why.
native, why_missing = _load()
