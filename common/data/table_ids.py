"""Read the IDs of a table in parts, as often as needed, without keeping them in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from florist.common.core.text import quoted
from florist.common.data.column_values import as_ids, without_nulls
from florist.common.data.id_check import Fingerprint, IdCheck, checking_ids
from florist.common.data.table_errors import changed
from florist.common.data.table_files import open_table
from florist.common.settings.formats import ROW_NUMBER
from florist.common.storage.id_column import IdColumn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.data.id_check import IdSummary
    from florist.common.settings.agreement import Normalisation
    from florist.common.settings.data import Table
    from florist.common.storage.files import Storage

#: The characters that `strip` removes. They are listed here because the Unicode tables of libraries
#: change between releases, and both parties must get the same bytes.
WHITE_SPACE = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)

#: The default number of rows per part.
_ROWS = 1 << 17


class IdReader:
    """Reads the IDs of a table, or takes them from rows that somebody else reads; checks them.

    IDs are always text: `007` is not `7`. Integers of a Parquet file become their decimal digits.
    No normalisation applies a Unicode normal form.
    """

    def __init__(
        self,
        table: Table,
        normalisation: Normalisation,
        check: IdCheck | None = None,
        *,
        keep: bool = False,
    ) -> None:
        """Start without IDs.

        Args:
            table: a table of the configuration.
            normalisation: the agreement's.
            check: for these IDs only; by default in memory, with eight bytes per ID.
            keep: whether to keep the added IDs in memory, for `column`.
        """
        self._table = table
        self._normalisation = normalisation
        self._column = id_column_name(table)
        self._where = f"{table.path}, column {quoted(table.id_column)}"
        self._check = check or IdCheck()
        self._kept: list[IdColumn] | None = [] if keep else None

    def add(self, content: pa.Table) -> None:
        """Take the IDs of the next rows.

        Raises:
            ConfigurationError: an ID has no exact text form.
        """
        ids = self._ids(content, self._check.count)
        self._check.add(ids)
        if self._kept is not None:
            self._kept.append(ids)

    def add_all(self) -> None:
        """Read the IDs of all rows from the file.

        Raises:
            ConfigurationError: the file cannot be read or has no rows, or an ID has no exact text
                form.
        """
        self._check.add_all(self.read())

    def finish(self) -> IdSummary:
        """Complete the check; call it once, after all rows.

        Raises:
            ConfigurationError: some IDs are empty or repeated; how many, and the fix. The message
                may quote IDs, so it is for this party's operator only.
        """
        where = f"{self._where} (normalisation `{self._normalisation}`)"
        return self._check.finish(where, self.read)

    def column(self) -> IdColumn | None:
        """Return the added IDs, which it no longer holds afterwards; None if they were not kept."""
        return None if self._kept is None else IdColumn.joined(self._kept)

    def read(self, rows: int = _ROWS) -> Iterator[IdColumn]:
        """Read the IDs from the file, `rows` at a time, without checking them.

        Raises:
            ConfigurationError: as `add_all`.
        """
        files = open_table(self._table)
        names = [files.names[0] if self._column is None else self._column]
        done = 0
        for content, _ in files.batches(names, rows):
            yield self._ids(content, done)
            done += content.num_rows

    def _ids(self, content: pa.Table, before: int) -> IdColumn:
        if self._column is None:
            return _row_numbers(content.num_rows, first=before + 1)
        texts = content.column(self._column)
        # Copied, so that Arrow can reuse its memory for the next part: it does not return it.
        return IdColumn.joined([normalised_ids(texts, self._where, self._normalisation)])


class TableIds:
    """The checked IDs of a table, in batches."""

    def __init__(
        self,
        table: Table,
        normalisation: Normalisation,
        storage: Storage,
        known: IdSummary | None = None,
    ) -> None:
        """Read the IDs once to check them.

        Args:
            table: a table of the configuration.
            normalisation: the agreement's.
            storage: for the check of many IDs.
            known: the result of an earlier check, which is then not repeated. `batches` still
                notices a table that was modified since.

        Raises:
            ConfigurationError: the file cannot be read or has no rows, IDs are empty or repeated,
                or the storage cannot be used. The message may quote IDs, so it is for this party's
                operator only.
        """
        self._source = table.path
        if known is not None:
            self._ids, self._summary = IdReader(table, normalisation), known
            return
        with checking_ids(storage) as check:
            self._ids = IdReader(table, normalisation, check)
            self._ids.add_all()
            self._summary = self._ids.finish()

    def __len__(self) -> int:
        return self._summary.count

    def __repr__(self) -> str:
        return f"TableIds({len(self)} IDs)"

    @property
    def fingerprint(self) -> str:
        """See `Fingerprint`."""
        return self._summary.fingerprint

    def batches(self, rows: int) -> Iterator[IdColumn]:
        """Read all IDs, `rows` at a time; the last batch may have fewer.

        Raises:
            ConfigurationError: the table was modified since it was checked.
        """
        read = Fingerprint()
        for batch in self._ids.read(rows):
            read.add(batch)
            if read.count > len(self):
                raise changed(self._source)
            yield batch
        if read.hexdigest() != self.fingerprint:
            raise changed(self._source)


def id_column_name(table: Table) -> str | None:
    """Return the name of the ID column; None if the row numbers are the IDs."""
    is_numbered = table.format != "plain" and table.id_column == ROW_NUMBER
    return None if is_numbered else table.id_column


def normalised_ids(texts: pa.ChunkedArray, where: str, normalisation: Normalisation) -> IdColumn:
    """Convert a column to normalised IDs, keeping empty and repeated ones.

    Raises:
        ConfigurationError: starts with `where`; the column has no exact text form.
    """
    column = _normalised(as_ids(texts, where), normalisation)
    return IdColumn.from_arrow(without_nulls(column).combine_chunks())


def _normalised(column: pa.ChunkedArray, normalisation: Normalisation) -> pa.ChunkedArray:
    if normalisation == "none":
        return column
    column = pc.utf8_trim(column, characters=WHITE_SPACE)
    # A-Z only: how other letters are lowered depends on the release of Unicode.
    return pc.ascii_lower(column) if normalisation == "strip-lower" else column


def _row_numbers(rows: int, first: int) -> IdColumn:
    numbers = pa.array(np.arange(first, first + rows))
    return IdColumn.from_arrow(numbers.cast(pa.large_string()))
