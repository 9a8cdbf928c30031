"""The IDs of a table, read in parts as often as they are wanted: none of them stays in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import quoted
from florist.common.data.id_check import Fingerprint, IdCheck, checking_ids
from florist.common.data.tables import id_name, normalised_ids, row_numbers, table_file
from florist.common.storage.id_column import IdColumn

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from florist.common.data.id_check import IdFacts
    from florist.common.settings.agreement import Normalisation
    from florist.common.settings.data import Table
    from florist.common.storage.files import Storage

#: Read at once where it does not matter how many.
_ROWS = 1 << 17


class IdReader:
    """The IDs of a table as its rows come, from whoever reads them; they are checked."""

    def __init__(
        self,
        table: Table,
        normalisation: Normalisation,
        check: IdCheck | None = None,
        *,
        keep: bool = False,
    ) -> None:
        """Begin with none.

        Args:
            table: the configuration's.
            normalisation: the agreement's.
            check: for these IDs only; by default it is done in memory, eight bytes of each.
            keep: whether `column` is wanted; else they are not kept.
        """
        self._table = table
        self._normalisation = normalisation
        self._column = id_name(table)
        self._where = f"{table.path}, column {quoted(table.id_column)}"
        self._check = check or IdCheck()
        self._kept: list[IdColumn] | None = [] if keep else None

    def add(self, content: pa.Table) -> None:
        """The next rows.

        Raises:
            ConfigurationError: an ID has no exact text.
        """
        ids = self._ids(content, self._check.count)
        self._check.add(ids)
        if self._kept is not None:
            self._kept.append(ids)

    def add_all(self) -> None:
        """All rows, read from the file for the sake of their IDs; at least one.

        Raises:
            ConfigurationError: the file, what is wrong and the fix; or an ID has no exact text.
        """
        self._check.add_all(self.read())

    def facts(self) -> IdFacts:
        """After all rows, once.

        Raises:
            ConfigurationError: some IDs are empty or repeated; how many, and the fix.
        """
        where = f"{self._where} (normalisation `{self._normalisation}`)"
        return self._check.facts(where, self.read)

    def column(self) -> IdColumn | None:
        """All IDs that were added, once; None if they were not kept."""
        return None if self._kept is None else IdColumn.joined(self._kept)

    def read(self, rows: int = _ROWS) -> Iterator[IdColumn]:
        """The IDs from the file, `rows` at a time, unchecked; at least one.

        Raises:
            ConfigurationError: as `add_all`.
        """
        file = table_file(self._table)
        names = [file.names[0] if self._column is None else self._column]
        done = 0
        for content, _ in file.batches(names, rows):
            yield self._ids(content, done)
            done += content.num_rows
        if not done:
            file.read(names)  # it tells what is wrong

    def _ids(self, content: pa.Table, before: int) -> IdColumn:
        if self._column is None:
            return row_numbers(content.num_rows, first=before + 1)
        texts = content.column(self._column)
        # Copied, so that Arrow's memory is free for the next part: it keeps what it once had.
        return IdColumn.joined([normalised_ids(texts, self._where, self._normalisation)])


class TableIds:
    """IDs as `read_table_ids` gives them, in batches."""

    def __init__(self, table: Table, normalisation: Normalisation, storage: Storage) -> None:
        """Read them once, and check them, on disk if they are many.

        Raises:
            ConfigurationError: as `read_table_ids`; or the storage cannot be used.
        """
        self._source = table.path
        with checking_ids(storage) as check:
            self._ids = IdReader(table, normalisation, check)
            self._ids.add_all()
            self._facts = self._ids.facts()

    def __len__(self) -> int:
        return self._facts.count

    def __repr__(self) -> str:
        return f"TableIds({len(self)} IDs)"

    @property
    def fingerprint(self) -> str:
        return self._facts.fingerprint

    def batches(self, rows: int) -> Iterator[IdColumn]:
        """All IDs, `rows` at a time; the last batch may have fewer.

        Raises:
            ConfigurationError: the table was changed since it was checked.
        """
        read = Fingerprint()
        for batch in self._ids.read(rows):
            read.add(batch)
            if read.count > len(self):
                raise self._changed()
            yield batch
        if read.hexdigest() != self.fingerprint:
            raise self._changed()

    def _changed(self) -> ConfigurationError:
        return ConfigurationError(
            f"{self._source}: was changed while it was read; start again, and leave it alone until "
            "all is done"
        )
