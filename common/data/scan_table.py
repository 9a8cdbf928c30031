"""The first pass over a table: everything needed before its rows can be encoded."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.data.content_fingerprint import ContentFingerprint
from florist.common.data.features import encoded_bytes
from florist.common.data.id_check import checking_ids
from florist.common.data.labels import LabelReader
from florist.common.data.preprocessing_fitter import PreprocessingFitter
from florist.common.data.table_ids import IdReader
from florist.common.data.table_reader import TableReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.data.feature_store import FeatureStore
    from florist.common.data.features import Features
    from florist.common.data.id_check import IdSummary
    from florist.common.data.preprocessing import Preprocessing
    from florist.common.data.raw_table import RawTable
    from florist.common.settings.agreement import Normalisation
    from florist.common.settings.data import PreprocessingSettings, Table
    from florist.common.storage.id_column import IdColumn


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TableScan:
    """The results of the first pass, and access to the rows for the second."""

    #: The number of rows and the fingerprint of the IDs.
    id_summary: IdSummary
    #: None unless requested.
    ids: IdColumn | None
    #: None unless requested.
    labels: LabelReader | None
    preprocessing: Preprocessing
    #: The fingerprint of each feature column, see `ContentFingerprint`.
    features: dict[str, str]
    _reader: TableReader
    _cache: _PartCache

    def __repr__(self) -> str:
        return f"TableScan({self.rows} rows, {self.preprocessing!r})"

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.id_summary.count

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the IDs."""
        return self.id_summary.fingerprint

    @property
    def stamp(self) -> str:
        """The state of the files when they were opened, which differs once one is modified."""
        return repr(self._reader.stamp)

    @property
    def source(self) -> str:
        """The path of the table, for messages."""
        return self._reader.source

    def encoded(self) -> Iterator[Features]:
        """Yield the features of all rows, part by part; call it only once.

        Raises:
            ConfigurationError: the table was modified since the scan.
        """
        lookups = self.preprocessing.lookups()
        parts = self._cache.drain() or self._reader.reread(self.preprocessing.features)
        for part in parts:
            yield self.preprocessing.transform(part, lookups)


def scan_table(
    table: Table,
    normalisation: Normalisation,
    settings: PreprocessingSettings,
    store: FeatureStore,
    *,
    known: Preprocessing | None = None,
    with_labels: bool = False,
    with_ids: bool = False,
) -> TableScan:
    """Check a table's IDs, read its labels and fit its preprocessing, part by part.

    Args:
        table: a table of the configuration.
        normalisation: the agreement's, for the IDs.
        settings: of the preprocessing.
        store: its memory limits what the raw and the encoded features take together. A table that
            fits is read only once; otherwise `TableScan.encoded` reads it again. Its storage is
            used to find repeated IDs.
        known: the preprocessing fitted to the training table, for any other table.
        with_labels: whether to read the labels.
        with_ids: whether to keep the checked IDs in memory.

    Raises:
        ConfigurationError: the table cannot be used; names the file, the column and the fix. Or
            the storage cannot be used.
    """
    reader = TableReader(table, features=known.features if known else None)
    labels = LabelReader.of_table(table) if with_labels else None
    fitter, cache = PreprocessingFitter(settings), _PartCache(store.memory, settings)
    content_fingerprint = ContentFingerprint()
    with checking_ids(store.storage) as check:
        ids = IdReader(table, normalisation, check, keep=with_ids)
        for content, features in reader.first_pass():
            ids.add(content)
            if labels:
                labels.add(content.column(table.label))
            if not known:
                fitter.add(features)
            content_fingerprint.add(features)
            cache.add(features)
        summary = ids.finish()
    if late := reader.found_late:
        cache.drop()
        fitter.forget(late)
        content_fingerprint.forget(late)
        for features in reader.reread(reader.late_features()):
            fitter.add(features)
            content_fingerprint.add(features)
    preprocessing = known or fitter.preprocessing(reader.features)
    names = (*preprocessing.numeric_columns, *preprocessing.categorical_columns)
    return TableScan(
        summary,
        ids.column(),
        labels,
        preprocessing,
        content_fingerprint.finish(names),
        reader,
        cache,
    )


class _PartCache:
    """Keeps the parts of a table if all of them fit in memory together with the encoded ones."""

    def __init__(self, memory: int, settings: PreprocessingSettings) -> None:
        self._left = memory
        self._has_bins = bool(settings.bins)
        self._parts: deque[RawTable] | None = deque()

    def add(self, part: RawTable) -> None:
        if self._parts is None:
            return
        columns = part.columns.num_columns
        if self._has_bins:
            columns += len(part.features.numeric)
        self._left -= part.columns.nbytes + encoded_bytes(len(part), columns)
        self._parts.append(part)
        if self._left < 0:
            self.drop()

    def drop(self) -> None:
        self._parts = None

    def drain(self) -> Iterator[RawTable] | None:
        """Yield the parts, releasing each; None if they did not fit."""
        if self._parts is None:
            return None
        return (self._parts.popleft() for _ in range(len(self._parts)))
