"""Check that IDs are unique and non-empty, and compute their fingerprint, in one pass."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from florist.common.core.errors import ConfigurationError
from florist.common.core.prefetch import prefetched
from florist.common.core.text import quoted_few
from florist.common.storage.external_sorter import sorting
from florist.common.storage.id_column import IdColumn, quick_digests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy.typing as npt

    from florist.common.storage.external_sorter import Sorter
    from florist.common.storage.files import Storage

#: Bytes of one digest, as `quick_digests` computes them.
_DIGEST_BYTES = 8

#: Memory in bytes for digests; more of them are sorted on disk.
_SORT_MEMORY = 32_000_000

#: Parts that are prefetched for the next step.
_PREFETCHED = 2

#: The maximum number of repeated digests whose IDs are looked up: there may be one per row.
_MAX_SUSPECTS = 1 << 16


@dataclass(frozen=True, slots=True)
class IdSummary:
    """The size and the fingerprint of a column of unique, non-empty IDs."""

    count: int
    #: See `Fingerprint`.
    fingerprint: str


@contextmanager
def checking_ids(storage: Storage) -> Iterator[IdCheck]:
    """Open a check whose memory use does not grow with the column: it sorts on disk if needed.

    Raises:
        ConfigurationError: the storage cannot be used.
    """
    with sorting(storage, _DIGEST_BYTES, _SORT_MEMORY, 0) as sorter:
        yield IdCheck(sorter)


class IdCheck:
    """Checks the IDs of a column part by part; keeps a digest of eight bytes of each."""

    def __init__(self, sorter: Sorter | None = None) -> None:
        """Keep the digests in `sorter` (of rows of eight bytes), or else in memory."""
        self._fingerprint = Fingerprint()
        self._sorter = sorter
        self._digests: list[npt.NDArray[np.uint64]] = []
        self._empty = 0
        self._first_empty = 0

    @property
    def count(self) -> int:
        """The number of IDs so far."""
        return self._fingerprint.count

    def add(self, ids: IdColumn) -> None:
        """Check the next IDs."""
        self._keep(self._inspect(ids))

    def add_all(self, parts: Iterable[IdColumn]) -> None:
        """Check all parts; reading, inspecting and sorting run in parallel."""
        inspected = map(self._inspect, prefetched(parts, _PREFETCHED))
        for digests in prefetched(inspected, _PREFETCHED):
            self._keep(digests)

    def _inspect(self, ids: IdColumn) -> npt.NDArray[np.uint64]:
        self._fingerprint.add(ids)
        empty = np.flatnonzero(ids.offsets[1:] == ids.offsets[:-1])
        if len(empty) and not self._empty:
            self._first_empty = self.count - len(ids) + int(empty[0]) + 1
        self._empty += len(empty)
        return quick_digests(ids)

    def _keep(self, digests: npt.NDArray[np.uint64]) -> None:
        if self._sorter:
            self._sorter.add(digests.astype(">u8").view(np.uint8).reshape(-1, _DIGEST_BYTES))
        else:
            self._digests.append(digests)

    def finish(self, where: str, reread: Callable[[], Iterable[IdColumn]]) -> IdSummary:
        """Complete the check; call it once, after all parts.

        Args:
            where: the start of an error message.
            reread: returns the same parts again; called only if IDs seem to be repeated.

        Raises:
            ConfigurationError: some IDs are empty or repeated; how many, and the fix.
        """
        if self._empty:
            raise ConfigurationError(
                f"{where}: missing or empty IDs: {self._empty:,} of {self.count:,}, the first in "
                f"row {self._first_empty:,} after the header; add the IDs or remove the rows"
            )
        repeated = _repeated(self._in_order())
        if len(repeated):
            _refuse_repeated(where, repeated, reread())
        return IdSummary(self.count, self._fingerprint.hexdigest())

    def _in_order(self) -> Iterator[npt.NDArray[np.uint64]]:
        """Yield the sorted digests, in blocks."""
        if self._sorter:
            for block in self._sorter.blocks():
                yield np.ascontiguousarray(block).view(">u8")[:, 0].astype(np.uint64)
        else:
            digests = np.concatenate([*self._digests, np.empty(0, np.uint64)])
            self._digests.clear()
            digests.sort()
            yield digests


def _repeated(blocks: Iterable[npt.NDArray[np.uint64]]) -> npt.NDArray[np.uint64]:
    """Return the repeated numbers of a sorted stream; only the first ones if there are many."""
    found = last = np.empty(0, np.uint64)
    for block in blocks:
        joined = np.concatenate([last, block])
        repeated = joined[1:][joined[1:] == joined[:-1]]
        if len(repeated):
            found = np.union1d(found, repeated)
        if len(found) > _MAX_SUSPECTS:
            break
        last = joined[-1:]
    return found[: _MAX_SUSPECTS + 1]


def _refuse_repeated(
    where: str, repeated: npt.NDArray[np.uint64], parts: Iterable[IdColumn]
) -> None:
    """Raise if IDs with these digests are repeated; different IDs may share a digest."""
    counts: Counter[str] = Counter()
    for part in parts:
        suspects = part.take(np.flatnonzero(np.isin(quick_digests(part), repeated)))
        found = _texts(suspects).value_counts()
        values, times = found.field("values").to_pylist(), found.field("counts").to_pylist()
        counts.update(dict(zip(values, times, strict=True)))
    counts = Counter({text: count for text, count in counts.items() if count > 1})
    if counts:
        about = "at least " if len(repeated) > _MAX_SUSPECTS else ""
        error = ConfigurationError(
            f"{where}: IDs that occur more than once: {about}{len(counts):,}, in "
            f"{counts.total():,} rows; keep one row per ID"
        )
        error.examples = quoted_few(list(counts), 5)
        raise error


def _texts(ids: IdColumn) -> pa.LargeStringArray:
    """Return the result of `IdColumn.take` as text."""
    buffers = pa.py_buffer(ids.offsets), pa.py_buffer(ids.data)
    return pa.LargeStringArray.from_buffers(len(ids), *buffers)


class Fingerprint:
    """SHA-256 of the exact IDs in their order, however they are divided into parts."""

    def __init__(self) -> None:
        self.count = 0
        # All lengths and all bytes: together they determine the IDs.
        self._lengths, self._bytes = sha256(), sha256()

    def add(self, ids: IdColumn) -> None:
        """Add the next IDs."""
        self.count += len(ids)
        self._lengths.update(np.diff(ids.offsets).astype("<i8").data)
        self._bytes.update(np.ascontiguousarray(ids.data[ids.offsets[0] : ids.offsets[-1]]).data)

    def hexdigest(self) -> str:
        """Return the fingerprint of all IDs so far: equal only for equal columns."""
        whole = sha256(b"florist/ids/2" + self.count.to_bytes(8, "little"))
        whole.update(self._lengths.digest() + self._bytes.digest())
        return whole.hexdigest()


def fingerprint(ids: IdColumn) -> str:
    """Return the fingerprint (hexadecimal) of a whole column."""
    whole = Fingerprint()
    whole.add(ids)
    return whole.hexdigest()
