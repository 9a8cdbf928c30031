"""Looks at IDs as they pass: is one missing, or there twice? And what is their fingerprint?"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from florist.common.data.ids import IdColumn, quick_digests
from florist.common.data.quoting import quoted_few
from florist.common.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class IdFacts:
    """Of a column of IDs, of which none is empty or there twice."""

    count: int
    #: As `fingerprint`.
    fingerprint: str


class IdCheck:
    """Takes the IDs of a column in parts, and keeps eight bytes of each."""

    def __init__(self) -> None:
        self._fingerprint = Fingerprint()
        self._digests: list[npt.NDArray[np.uint64]] = []
        self._empty = 0
        self._first_empty = 0

    @property
    def count(self) -> int:
        """IDs so far."""
        return self._fingerprint.count

    def add(self, ids: IdColumn) -> None:
        """The next IDs."""
        empty = np.flatnonzero(ids.offsets[1:] == ids.offsets[:-1])
        if len(empty) and not self._empty:
            self._first_empty = self.count + int(empty[0]) + 1
        self._empty += len(empty)
        self._digests.append(quick_digests(ids))
        self._fingerprint.add(ids)

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
        digests = np.concatenate([*self._digests, np.empty(0, np.uint64)])
        self._digests.clear()
        digests.sort()
        shared = np.unique(digests[1:][digests[1:] == digests[:-1]])
        if len(shared):
            _refuse_repeated(where, shared, again())
        return IdFacts(self.count, self._fingerprint.hexdigest())


def _refuse_repeated(where: str, shared: npt.NDArray[np.uint64], parts: Iterable[IdColumn]) -> None:
    """Equal digests make a suspect; only equal IDs are refused."""
    suspects = [part.take(np.flatnonzero(np.isin(quick_digests(part), shared))) for part in parts]
    texts = (each.decode() for part in suspects for each in part)
    counts = pa.array(texts, pa.large_string()).value_counts()
    repeated = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(repeated):
        rows = pc.sum(repeated.field("counts")).as_py()
        raise ConfigurationError(
            f"{where}: IDs there more than once: {len(repeated):,}, in {rows:,} rows: "
            f"{quoted_few(repeated.field('values'), 5)}; keep one row of each"
        )


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
