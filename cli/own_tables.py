"""`florist init` with the organisations' own tables: what their configurations need is read off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import quoted, quoted_few
from florist.common.data.labels import LabelReader
from florist.common.data.table_files import open_table
from florist.common.settings.data import Table

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.core.roles import RoleName
    from florist.common.data.table_files import TableFiles

#: Characters that may separate the values of a text file, the most likely first.
_DELIMITERS = (",", ";", "\t", "|")
#: Rows that are read to tell the ID and the label.
_ROWS = 1 << 17
#: Texts of a label that mean class 1, if the other text does not.
_POSITIVE = ("yes", "y", "true", "t", "positive", "pos", "1")
#: More classes than this are probably not a label.
_MAX_CLASSES = 16


@dataclass(frozen=True, slots=True)
class OwnTable:
    """One party's table, and the keys of the configuration that describe it."""

    path: Path
    id_column: str
    settings: dict[str, object]


@dataclass(frozen=True, slots=True)
class Hints:
    """What the operator says about the tables; None and empty: find it out."""

    #: One name for both tables, or the active party's and the passive party's.
    id_columns: tuple[str, ...] = ()
    label: str | None = None
    positive_label: str | None = None

    def id_column(self, role: RoleName) -> str | None:
        """Return the given name of this party's ID column."""
        if not self.id_columns:
            return None
        return self.id_columns[0 if role == "active" else -1]


def inspect_own_tables(
    active: Path | None, passive: Path | None, hints: Hints
) -> dict[RoleName, OwnTable]:
    """Find the delimiters, the ID columns and the label of two tables, or of one's own table only.

    The ID column is the one in which all values of the first rows differ; if there are several, the
    one that has the same name in both tables. The label is the only other column of the active
    party's table, or must be given.

    Raises:
        ConfigurationError: a table cannot be read, or something must be given.
    """
    paths: dict[RoleName, Path | None] = {"active": active, "passive": passive}
    sheets = {
        role: _Sheet.read(path.absolute()) for role, path in paths.items() if path is not None
    }
    both = set.intersection(*(set(sheet.unique_columns()) for sheet in sheets.values()))
    ids = {
        role: _id_column(sheet, hints.id_column(role), both, role) for role, sheet in sheets.items()
    }
    label: dict[str, object] = {}
    agreed: dict[str, object] = {}
    if "active" in sheets:
        label, agreed = _label_settings(sheets["active"], ids["active"], hints)
    return {
        role: OwnTable(
            sheet.table.path,
            ids[role],
            {
                "data.train.delimiter": sheet.table.delimiter,
                **(label if role == "active" else {}),
                **agreed,
            },
        )
        for role, sheet in sheets.items()
    }


@dataclass(frozen=True, slots=True)
class _Sheet:
    """The first rows of a table."""

    table: Table
    files: TableFiles
    rows: pa.Table

    @classmethod
    def read(cls, path: Path) -> _Sheet:
        """Read the first rows, by the delimiter that gives the most columns."""
        tables = (
            Table(path=path, id_column="unknown", delimiter=delimiter) for delimiter in _DELIMITERS
        )
        candidates = [(table, open_table(table)) for table in tables]
        table, files = max(candidates, key=lambda found: len(found[1].names))
        rows, _ = next(files.batches(files.names, _ROWS))
        return cls(table, files, rows)

    def unique_columns(self) -> list[str]:
        """Return the columns of text or integers whose values are non-empty and all differ."""
        return [name for name in self.files.names if self._is_unique(self.rows.column(name))]

    @staticmethod
    def _is_unique(column: pa.ChunkedArray) -> bool:
        kind = column.type
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or _is_large(kind)):
            return False
        texts = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
        if texts.null_count or pc.any(pc.equal(texts, "")).as_py():
            return False
        return bool(pc.count_distinct(texts).as_py() == len(texts))


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind))


def _id_column(sheet: _Sheet, given: str | None, both: set[str], role: RoleName) -> str:
    path, names = sheet.table.path, sheet.files.names
    if given is not None:
        if given not in names:
            raise ConfigurationError(
                f"{path}: has no column {quoted(given)}; give --id-column one of "
                f"{quoted_few(names, 8)}"
            )
        return given
    unique = sheet.unique_columns()
    common = [name for name in unique if name in both]
    for found in (common, unique):
        if len(found) == 1:
            return found[0]
    if not unique:
        raise ConfigurationError(
            f"{path}: has no column whose values all differ, so it has no IDs: give each person "
            "one row, or name the column with --id-column to see which rows repeat"
        )
    raise ConfigurationError(
        f"{path}: several columns could be the IDs: {quoted_few(common or unique, 8)}; choose one "
        f"with --id-column. If the names differ, give it twice: the active party's first (this is "
        f"the {role} party's table)"
    )


def _label_settings(
    sheet: _Sheet, id_column: str, hints: Hints
) -> tuple[dict[str, object], dict[str, object]]:
    """Return the keys of the label at the active party, and those that both parties agree on."""
    path = sheet.table.path
    others = [name for name in sheet.files.names if name != id_column]
    label = hints.label or (others[0] if len(others) == 1 else None)
    if label is None:
        raise ConfigurationError(
            f"{path}: which column is the label? Give --label one of {quoted_few(others, 8)}"
        )
    if label not in others:
        raise ConfigurationError(
            f"{path}: has no column {quoted(label)} besides the ID; give --label one of "
            f"{quoted_few(others, 8)}"
        )
    texts = _label_texts(sheet, label)
    own: dict[str, object] = {"data.train.label": label}
    if hints.positive_label is not None:
        return own | {"data.train.positive_label": hints.positive_label}, {}
    if len(texts) == 2 and not {text.lower() for text in texts} <= {"0", "1", "false", "true"}:
        positive = [text for text in texts if text.lower() in _POSITIVE]
        if len(positive) != 1:
            raise ConfigurationError(
                f"{path}, column {quoted(label)}: contains {quoted_few(texts, 2)}; say which one "
                "is to be predicted with --positive-label"
            )
        return own | {"data.train.positive_label": positive[0]}, {}
    if 3 <= len(texts) <= _MAX_CLASSES:
        return own, _class_settings(sheet, label, texts)
    return own, {}  # two classes, or what a run rejects with the reason


def _label_texts(sheet: _Sheet, label: str) -> list[str]:
    column = sheet.rows.column(label).cast(pa.large_string())
    texts = pc.unique(pc.utf8_trim_whitespace(column.drop_null())).to_pylist()
    return sorted(text for text in texts if text)


def _class_settings(sheet: _Sheet, label: str, texts: list[str]) -> dict[str, object]:
    """Return the agreement on three classes or more; their names only if they are needed."""
    classes = {"agreement.training.classes": len(texts)}
    reader = LabelReader(str(sheet.table.path), label)
    reader.add(sheet.rows.column(label))
    try:
        reader.labels(len(texts))
    except ConfigurationError:
        return classes | {"agreement.training.class_names": texts}
    return dict(classes)
