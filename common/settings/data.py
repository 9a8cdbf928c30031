"""Section `data`: the tables of a party and how their features are preprocessed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator
from pydantic import field_validator as check_field

from florist.common.core.text import abbreviated
from florist.common.settings.field_types import FilePath
from florist.common.settings.formats import FORMATS, Format, FormatName
from florist.common.settings.section import Section

Scaling = Literal["linear", "log"]


def _check_delimiter(delimiter: str) -> str:
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise ValueError('must be one ASCII character, such as ";" or "\\t", and not a quote')
    return delimiter


def _check_columns(columns: object) -> object:
    """`auto`, or names as a tuple."""
    if columns == "auto":
        return columns
    if not isinstance(columns, list | tuple):
        raise ValueError("must be `auto` or a list of columns, such as [age, city]")  # noqa: TRY004
    wrong = [name for name in columns if not isinstance(name, str) or not name]
    if wrong:
        raise ValueError(f"must list column names, not {abbreviated(wrong[0])}; put it in quotes")
    return tuple(columns)


Delimiter = Annotated[str, AfterValidator(_check_delimiter)]
Columns = Annotated[Literal["auto"] | tuple[str, ...], BeforeValidator(_check_columns)]


class Table(Section):
    """One table of ours, its format's settings filled in."""

    path: FilePath = Field(
        description="File with one row per person: .csv, .tsv or .txt, these with .gz, or "
        ".parquet. Text is UTF-8, with a header unless the format has none. Or a folder of such "
        "files, all text or all Parquet and with the same columns: they are read one after the "
        "other, in the order of their names, without those that begin with a dot or an underscore."
    )
    format: FormatName = Field(
        default="plain",
        description="What kind of file it is. plain: the keys below tell. criteo and avazu: a file "
        "as Kaggle published it; its columns are known, and the keys below can be left out.",
    )
    id_column: str = Field(
        min_length=1,
        description="Column that holds the IDs: each there, and there once. Of criteo it is "
        "row_number, unless an ID was put first in each row: then any other name.",
    )
    delimiter: Delimiter = Field(
        default=",",
        description='Character between the values of a CSV row; for tabs, "\\t" in quotes.',
    )
    label: str | None = Field(
        default=None,
        min_length=1,
        description="Column that holds the labels, for the active party; null: none, or the "
        "format's own.",
    )
    numeric: Columns = Field(
        default="auto",
        description="Features that are numbers, as a list of columns. auto: all columns of numbers "
        "but IDs and labels; in a CSV file, those in which all values are numbers, empty or NA.",
    )
    categorical: Columns = Field(
        default="auto",
        description="Features that are categories, as a list of columns. auto: all columns that "
        "are not IDs, labels or numeric. Both lists empty: no features.",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, values: object) -> object:
        """What the format settles and the file leaves open."""
        if not isinstance(values, dict) or not (known := _known_format(values.get("format"))):
            return values
        left_open = {"label": None, "numeric": "auto", "categorical": "auto"}
        given = {
            key: value
            for key, value in values.items()
            if key not in left_open or value != left_open[key]
        }
        return known.settings() | given

    @check_field("id_column")
    @classmethod
    def _is_an_id(cls, column: str, info: ValidationInfo) -> str:
        known = _known_format(info.data.get("format"))
        if known and not known.allows_id(column):
            raise ValueError(f"must in this format be {known.id_column!r}, or left out")
        return column

    @check_field("delimiter", "label")
    @classmethod
    def _fits_format(cls, value: str | None, info: ValidationInfo) -> str | None:
        known = _known_format(info.data.get("format"))
        if known and value != (settled := known.settings()[str(info.field_name)]):
            raise ValueError(f"must in this format be {settled!r}, or left out")
        return value

    @check_field("label")
    @classmethod
    def _is_no_id(cls, label: str | None, info: ValidationInfo) -> str | None:
        if label is not None and label == info.data.get("id_column"):
            raise ValueError("must differ from id_column")
        return label

    @check_field("numeric", "categorical")
    @classmethod
    def _are_features(cls, columns: Columns, info: ValidationInfo) -> Columns:
        if columns == "auto":
            return columns
        known = _known_format(info.data.get("format"))
        numeric = info.data.get("numeric") if info.field_name == "categorical" else ()
        for index, column in enumerate(columns):
            shown = abbreviated(column)
            if known and column not in known.settings()[str(info.field_name)]:
                raise ValueError(f"this format has no such column {shown}; remove it")
            if column in columns[:index]:
                raise ValueError(f"lists {shown} twice; remove one")
            if column in (info.data.get("id_column"), info.data.get("label")):
                raise ValueError(f"{shown} is the ID or label column; remove it")
            if numeric and numeric != "auto" and column in numeric:
                raise ValueError(f"{shown} is also listed under numeric; keep one")
        return columns


class HeldOutTable(Section):
    """Where the rows for tests are; their columns are those of the training table."""

    path: FilePath = Field(
        description="File with the same columns as the training table: the IDs, the label and the "
        "features are found by the same names."
    )
    format: Literal["same", FormatName] = Field(
        default="same",
        description="What kind of file it is. same: as the training table; or plain, criteo, "
        "avazu.",
    )
    delimiter: str = Field(
        default="same",
        description="Character between the values of a CSV row. same: as in the training table.",
    )

    @check_field("delimiter")
    @classmethod
    def _is_a_delimiter(cls, delimiter: str, info: ValidationInfo) -> str:
        if delimiter == "same":
            return delimiter
        known = _known_format(info.data.get("format"))
        if known and delimiter != known.delimiter:
            raise ValueError(f"must in this format be {known.delimiter!r}, or left out")
        return _check_delimiter(delimiter)


class PreprocessingSettings(Section):
    """How features become what a model takes; learned from the training table."""

    min_count: int = Field(
        default=1,
        ge=1,
        description="Categories in fewer training rows than this count as one and the same, "
        "together with those in none. 10 suits large tables.",
    )
    scaling: Scaling = Field(
        default="linear",
        description="How numbers get between 0 and 1. linear: from the least to the greatest in "
        "training. log: the same, after sign(x) * log(1 + abs(x)), for long tails.",
    )


class Data(Section):
    """Our tables."""

    train: Table = Field(description="The table to align and to train on.")
    test: HeldOutTable | None = Field(
        default=None, description="The table of people held out, to measure the model with."
    )
    evaluation: HeldOutTable | None = Field(
        default=None,
        description="The table of our people to evaluate the finished model on, none of whom is in "
        "the training table. They need not be the peer's people too: neither learns who is.",
    )
    preprocessing: PreprocessingSettings = Field(
        default=PreprocessingSettings(),
        description="How features become what a model takes; learned from the training table.",
    )

    @property
    def test_table(self) -> Table | None:
        """The test table, described in full."""
        return None if self.test is None else self._in_full(self.test)

    @property
    def evaluation_table(self) -> Table | None:
        """The evaluation table, described in full."""
        return None if self.evaluation is None else self._in_full(self.evaluation)

    def _in_full(self, table: HeldOutTable) -> Table:
        changes: dict[str, object] = {"path": table.path}
        if table.format not in ("same", self.train.format):
            known = _known_format(table.format)
            changes |= {"format": table.format, "delimiter": known.delimiter if known else ","}
        if table.delimiter != "same":
            changes["delimiter"] = table.delimiter
        return self.train.model_copy(update=changes)


def _known_format(name: object) -> Format | None:
    return FORMATS.get(name) if isinstance(name, str) else None
