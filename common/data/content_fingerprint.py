"""Fingerprints of the features of a table, to notice that it was changed: one per column.

They depend on the values and their order, not on the file's format or on how it is read. They are
tags of AES-GMAC under a public key, which take a tenth of the time of a cryptographic hash: they
find changes, but prove nothing to others. Whoever has the fingerprint of a column with few possible
values can guess them, so keep it as private as the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy.typing as npt

    from florist.common.data.raw_table import RawTable

_KEY = b"florist/features"
_NONCE = bytes(12)


class _Tag:
    """The tag of a sequence of bytes, added in parts of any size."""

    def __init__(self) -> None:
        self._mac = Cipher(AES(_KEY), GCM(_NONCE)).encryptor()

    def add(self, values: npt.NDArray[np.generic]) -> None:
        self._mac.authenticate_additional_data(np.ascontiguousarray(values).data.cast("B"))

    def hexdigest(self) -> str:
        """Return the tag; nothing can be added afterwards."""
        self._mac.finalize()
        return self._mac.tag.hex()


class _Column:
    """The values of one column: numbers, or the lengths and the bytes of texts."""

    def __init__(self) -> None:
        self._values = _Tag()
        self._lengths: _Tag | None = None

    def add(self, column: pa.ChunkedArray) -> None:
        for chunk in column.chunks:
            if not len(chunk):
                continue
            if chunk.type == pa.float64():
                filled = pc.fill_null(chunk, np.nan) if chunk.null_count else chunk
                self._values.add(filled.to_numpy())
            else:
                self._add_texts(chunk)

    def _add_texts(self, texts: pa.StringArray) -> None:
        _, offsets, data = texts.buffers()
        bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
        if self._lengths is None:
            self._lengths = _Tag()
        self._lengths.add(np.diff(bounds))
        if bounds[-1] > bounds[0]:
            self._values.add(np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]])

    def hexdigest(self) -> str:
        lengths = "" if self._lengths is None else self._lengths.hexdigest()
        return self._values.hexdigest() + lengths


class ContentFingerprint:
    """Collects the fingerprints of the feature columns of a table, which is read in parts."""

    def __init__(self) -> None:
        self._columns: dict[str, _Column] = {}

    def add(self, part: RawTable) -> None:
        """Add the next rows."""
        for name, column in zip(part.columns.column_names, part.columns.columns, strict=True):
            self._columns.setdefault(name, _Column()).add(column)

    def forget(self, columns: Collection[str]) -> None:
        """Discard what was collected for these columns."""
        for name in columns:
            self._columns.pop(name, None)

    def finish(self, names: Collection[str]) -> dict[str, str]:
        """Return the fingerprints of these columns, in hexadecimal; call it once."""
        return {name: self._columns[name].hexdigest() for name in names}


def array_fingerprint(values: npt.NDArray[np.generic]) -> str:
    """Return the fingerprint of numbers in their order, in hexadecimal."""
    tag = _Tag()
    tag.add(values)
    return tag.hexdigest()
