"""The first pass over a table: all that must be known of it before its rows can be encoded."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.data.features import encoded_bytes
from florist.common.data.id_check import checking_ids
from florist.common.data.labels import LabelReader
from florist.common.data.preprocessing_fitter import PreprocessingFitter
from florist.common.data.table_ids import IdReader
from florist.common.data.table_reader import TableReader
from florist.common.data.tables import FeatureColumns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.data.feature_store import FeatureStore
    from florist.common.data.features import Features
    from florist.common.data.preprocessing import Preprocessing
    from florist.common.data.tables import RawTable
    from florist.common.settings.agreement import Normalisation
    from florist.common.settings.data import PreprocessingSettings, Table
    from florist.common.storage.id_column import IdColumn


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TableScan:
    """What the first pass found, and the way to the rows for the second."""

    rows: int
    #: Of the IDs.
    fingerprint: str
    #: None where they were not asked for.
    ids: IdColumn | None
    #: None where they were not asked for.
    labels: LabelReader | None
    preprocessing: Preprocessing
    _parts: TableReader
    _kept: _Kept

    def __repr__(self) -> str:
        return f"TableScan({self.rows} rows, {self.preprocessing!r})"

    @property
    def source(self) -> str:
        return self._parts.source

    def encoded(self) -> Iterator[Features]:
        """The features of all rows, part by part; can be had once.

        Raises:
            ConfigurationError: the file is another by now.
        """
        lookups = self.preprocessing.lookups()
        parts = self._kept.all() or self._parts.again(self.preprocessing.features)
        for part in parts:
            yield self.preprocessing.transform(part, lookups)


def scan_table(
    table: Table,
    normalisation: Normalisation,
    settings: PreprocessingSettings,
    room: FeatureStore,
    *,
    known: Preprocessing | None = None,
    with_labels: bool = False,
    with_ids: bool = False,
) -> TableScan:
    """Check a table's IDs, read its labels and learn its preprocessing, never having it whole.

    Args:
        table: the configuration's.
        normalisation: the agreement's, for the IDs.
        settings: by which to learn.
        room: its memory is what the raw features and the encoded ones may take together. A table
            that is so small is read once; of a larger one no part is kept, and `encoded` reads it
            again. In its storage is what it takes to find IDs that are there twice.
        known: what was learned from the training table, for any other one.
        with_labels: whether to read them.
        with_ids: whether to keep them in memory, once they are checked.

    Raises:
        ConfigurationError: as `read_table`, `read_labels` and `Preprocessing.fit`; or the storage
            cannot be used.
    """
    parts = TableReader(table, features=known.features if known else None)
    labels = LabelReader(parts.source, table.label) if with_labels else None
    fitter, kept = PreprocessingFitter(settings), _Kept(room.memory)
    with checking_ids(room.storage) as check:
        ids = IdReader(table, normalisation, check, keep=with_ids)
        for content, features in parts.first_pass():
            ids.add(content)
            if labels:
                labels.add(content.column(table.label))
            if not known:
                fitter.add(features)
            kept.add(features)
        found = ids.facts()
    if parts.found_late:
        kept.drop()
    learned = known or _learned(fitter, parts)
    return TableScan(found.count, found.fingerprint, ids.column(), labels, learned, parts, kept)


def _learned(fitter: PreprocessingFitter, parts: TableReader) -> Preprocessing:
    """From all rows, after the first pass."""
    if late := parts.found_late:
        fitter.forget(late)
        for features in parts.again(FeatureColumns((), late)):
            fitter.add(features)
    return fitter.preprocessing(parts.features)


class _Kept:
    """Parts that need not be read again, if all of them fit in memory, encoded ones beside them."""

    def __init__(self, memory: int) -> None:
        self._left = memory
        self._parts: deque[RawTable] | None = deque()

    def add(self, part: RawTable) -> None:
        if self._parts is None:
            return
        self._left -= part.columns.nbytes + encoded_bytes(len(part), part.columns.num_columns)
        self._parts.append(part)
        if self._left < 0:
            self.drop()

    def drop(self) -> None:
        self._parts = None

    def all(self) -> Iterator[RawTable] | None:
        """Each is let go of once it is given; None if not all were kept."""
        if self._parts is None:
            return None
        return (self._parts.popleft() for _ in range(len(self._parts)))
