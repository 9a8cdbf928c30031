"""Looks at IDs as they pass: is one missing, or there twice? And what is their fingerprint?"""

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

#: Bytes of memory for digests that are sorted on disk.
_ROOM = 32_000_000

#: Parts that wait for the next step at most.
_AHEAD = 2

#: Repeated IDs that are looked for by name: there may be as many as rows.
_MOST_SUSPECTS = 1 << 16


@dataclass(frozen=True, slots=True)
class IdFacts:
    """Of a column of IDs, of which none is empty or there twice."""

    count: int
    #: As `fingerprint`.
    fingerprint: str


@contextmanager
def checking_ids(storage: Storage) -> Iterator[IdCheck]:
    """A check whose memory does not grow with the column: what does not fit is sorted on disk.

    Raises:
        ConfigurationError: the storage cannot be used.
    """
    with sorting(storage, _DIGEST_BYTES, _ROOM, 0) as sorter:
        yield IdCheck(sorter)


class IdCheck:
    """Takes the IDs of a column in parts, and keeps eight bytes of each, in memory or sorted."""

    def __init__(self, sorter: Sorter | None = None) -> None:
        """`sorter`, of rows of eight bytes, takes what is else kept in memory."""
        self._fingerprint = Fingerprint()
        self._sorter = sorter
        self._digests: list[npt.NDArray[np.uint64]] = []
        self._empty = 0
        self._first_empty = 0

    @property
    def count(self) -> int:
        """IDs so far."""
        return self._fingerprint.count

    def add(self, ids: IdColumn) -> None:
        """The next IDs."""
        self._keep(self._look(ids))

    def add_all(self, parts: Iterable[IdColumn]) -> None:
        """The same of each part; they are read, looked at and sorted side by side."""
        looks = map(self._look, prefetched(parts, _AHEAD))
        for digests in prefetched(looks, _AHEAD):
            self._keep(digests)

    def _look(self, ids: IdColumn) -> npt.NDArray[np.uint64]:
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

    def facts(self, where: str, again: Callable[[], Iterable[IdColumn]]) -> IdFacts:
        """Call it once, after all parts.

        Args:
            where: what a message begins with.
            again: gives the same parts once more, if some IDs must be told.

        Raises:
            ConfigurationError: some are empty or repeated; how many, and the fix.
        """
        if self._empty:
            raise ConfigurationError(
                f"{where}: IDs missing or empty: {self._empty:,} of {self.count:,}, the first in "
                f"row {self._first_empty:,} after the header; give each row an ID, or take the row "
                "out"
            )
        repeated = _repeated(self._in_order())
        if len(repeated):
            _refuse_repeated(where, repeated, again())
        return IdFacts(self.count, self._fingerprint.hexdigest())

    def _in_order(self) -> Iterator[npt.NDArray[np.uint64]]:
        """All digests in ascending order, in blocks."""
        if self._sorter:
            for block in self._sorter.blocks():
                yield np.ascontiguousarray(block).view(">u8")[:, 0].astype(np.uint64)
        else:
            digests = np.concatenate([*self._digests, np.empty(0, np.uint64)])
            self._digests.clear()
            digests.sort()
            yield digests


#: Of `quick_digests`.
_DIGEST_BYTES = 8


def _repeated(blocks: Iterable[npt.NDArray[np.uint64]]) -> npt.NDArray[np.uint64]:
    """The numbers that are there more than once in a sorted stream: the first of them, if many."""
    found = last = np.empty(0, np.uint64)
    for block in blocks:
        joined = np.concatenate([last, block])
        again = joined[1:][joined[1:] == joined[:-1]]
        if len(again):
            found = np.union1d(found, again)
        if len(found) > _MOST_SUSPECTS:
            break
        last = joined[-1:]
    return found[: _MOST_SUSPECTS + 1]


def _refuse_repeated(
    where: str, repeated: npt.NDArray[np.uint64], parts: Iterable[IdColumn]
) -> None:
    """Equal digests make a suspect; only equal IDs are refused."""
    counts: Counter[str] = Counter()
    for part in parts:
        suspects = part.take(np.flatnonzero(np.isin(quick_digests(part), repeated)))
        found = _texts(suspects).value_counts()
        values, times = found.field("values").to_pylist(), found.field("counts").to_pylist()
        counts.update(dict(zip(values, times, strict=True)))
    counts = Counter({text: count for text, count in counts.items() if count > 1})
    if counts:
        about = "at least " if len(repeated) > _MOST_SUSPECTS else ""
        raise ConfigurationError(
            f"{where}: IDs there more than once: {about}{len(counts):,}, in {counts.total():,} "
            f"rows: {quoted_few(list(counts), 5)}; keep one row of each"
        )


def _texts(ids: IdColumn) -> pa.LargeStringArray:
    """Of IDs that `IdColumn.take` gave."""
    buffers = pa.py_buffer(ids.offsets), pa.py_buffer(ids.data)
    return pa.LargeStringArray.from_buffers(len(ids), *buffers)


class Fingerprint:
    """SHA-256 of the exact IDs in their order, however they are parted."""

    def __init__(self) -> None:
        self.count = 0
        # All lengths and all bytes: together they can be read in one way only.
        self._lengths, self._bytes = sha256(), sha256()

    def add(self, ids: IdColumn) -> None:
        """The next IDs."""
        self.count += len(ids)
        self._lengths.update(np.diff(ids.offsets).astype("<i8").data)
        self._bytes.update(np.ascontiguousarray(ids.data[ids.offsets[0] : ids.offsets[-1]]).data)

    def hexdigest(self) -> str:
        """Equal only for equal columns."""
        whole = sha256(b"florist/ids/2" + self.count.to_bytes(8, "little"))
        whole.update(self._lengths.digest() + self._bytes.digest())
        return whole.hexdigest()


def fingerprint(ids: IdColumn) -> str:
    """That of a whole column (hex)."""
    whole = Fingerprint()
    whole.add(ids)
    return whole.hexdigest()
