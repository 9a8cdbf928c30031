"""Section `data`: the tables of a party and the preprocessing of their features."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator
from pydantic import field_validator as check_field

from florist.common.core.text import abbreviated
from florist.common.settings.field_types import FilePath
from florist.common.settings.formats import FORMATS, Format, FormatName
from florist.common.settings.section import Section

Scaling = Literal["linear", "log"]

#: The value of `date_format` for dates such as 2024-03-31 or 2024-03-31T18:30:00Z.
ISO_DATES = "iso"


def _check_delimiter(delimiter: str) -> str:
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise ValueError('must be one ASCII character, such as ";" or "\\t", and not a quote')
    return delimiter


def _check_columns(columns: object) -> object:
    """Return `auto` as it is, and a list of column names as a tuple."""
    if columns == "auto":
        return columns
    if not isinstance(columns, list | tuple):
        raise ValueError("must be `auto` or a list of columns, such as [age, city]")  # noqa: TRY004
    wrong = [name for name in columns if not isinstance(name, str) or not name]
    if wrong:
        raise ValueError(f"must list column names, not {abbreviated(wrong[0])}; put it in quotes")
    return tuple(columns)


def _as_text(value: object) -> object:
    """Return a number as text, as a table has it."""
    if isinstance(value, bool):
        # YAML also reads yes, no, on and off as truth values.
        raise ValueError('must be text: put it in quotes, such as "yes"')  # noqa: TRY004
    return str(value) if isinstance(value, int | float) else value


def _check_na_values(values: object) -> object:
    if not isinstance(values, list | tuple):
        raise ValueError('must be a list of texts, such as ["?", "-999"]')  # noqa: TRY004
    texts = tuple(_as_text(value) for value in values)
    if wrong := [text for text in texts if not isinstance(text, str)]:
        raise ValueError(f"must list texts, not {abbreviated(wrong[0])}; put it in quotes")
    return texts


def _check_date_format(date_format: str) -> str:
    if date_format != ISO_DATES and "%" not in date_format:
        raise ValueError("must be `iso` or a pattern such as %d.%m.%Y")
    return date_format


Delimiter = Annotated[str, AfterValidator(_check_delimiter)]
NaValues = Annotated[tuple[str, ...], BeforeValidator(_check_na_values)]
DateFormat = Annotated[str, AfterValidator(_check_date_format)]
Columns = Annotated[Literal["auto"] | tuple[str, ...], BeforeValidator(_check_columns)]


class Table(Section):
    """A table, with the settings of its format filled in."""

    path: FilePath = Field(
        description="Table with one row per person: a .csv, .tsv or .txt file (also compressed, "
        "as .gz) or a .parquet file. Text files are UTF-8, with a header unless the format has "
        "none. Or a folder of such files, all text or all Parquet, with the same columns; they are "
        "read in the order of their names, and names that start with a dot or an underscore are "
        "skipped."
    )
    format: FormatName = Field(
        default="plain",
        description="File format. plain: described by the keys below. criteo, avazu: the files "
        "published on Kaggle; their columns are known, so the keys below may be omitted.",
    )
    id_column: str = Field(
        min_length=1,
        description="Column with the IDs, which must be unique and non-empty. For criteo: "
        "row_number, or any other name if an ID was added as the first column.",
    )
    delimiter: Delimiter = Field(
        default=",",
        description='Character that separates the values of a CSV row; for tabs, write "\\t" in '
        "quotes.",
    )
    label: str | None = Field(
        default=None,
        min_length=1,
        description="Column with the labels, at the active party. null: no labels, or the label "
        "column of the format.",
    )
    positive_label: Annotated[str | None, BeforeValidator(_as_text)] = Field(
        default=None,
        min_length=1,
        description='Text of the label that is class 1, in quotes, such as "yes" or "<30"; every '
        "other text is class 0. null: the labels are 0 and 1 (or false and true), or classes of "
        "agreement.training.class_names, or with more than two classes any texts.",
    )
    na_values: NaValues = Field(
        default=(),
        description='Texts that mean a missing feature or label, in quotes, such as ["?", '
        '"-999"], in addition to empty and null ones. In numeric and date columns NA, N/A, NaN, '
        "NULL and None always do.",
    )
    numeric: Columns = Field(
        default="auto",
        description="Numeric feature columns, as a list. auto: all numeric columns except IDs and "
        "labels; in a CSV file, the columns in which every value is a number, empty or NA.",
    )
    categorical: Columns = Field(
        default="auto",
        description="Categorical feature columns, as a list. auto: all columns that are not IDs, "
        "labels, numeric or dates. If all lists are empty, the table has no features.",
    )
    dates: Columns = Field(
        default="auto",
        description="Columns with dates or times, as a list. Each becomes three numeric features: "
        "the day (counted from 2000-01-01, with the time of day as a fraction), the month and the "
        "day of the week. auto: the date and timestamp columns of a Parquet file, unless they are "
        "listed elsewhere or all features are listed; in a CSV file none, and dates are "
        "categories.",
    )
    date_format: DateFormat = Field(
        default=ISO_DATES,
        description="How dates are written as text. iso: such as 2024-03-31, 2024-03-31 18:30 or "
        "2024-03-31T18:30:00+02:00. Otherwise a pattern such as %d.%m.%Y or %m/%d/%Y %H:%M.",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, values: object) -> object:
        """Add what the format determines and the file does not set."""
        if not isinstance(values, dict) or not (known := _known_format(values.get("format"))):
            return values
        unset = {"label": None, "numeric": "auto", "categorical": "auto"}
        given = {
            key: value for key, value in values.items() if key not in unset or value != unset[key]
        }
        return known.settings() | given

    @check_field("id_column")
    @classmethod
    def _check_id_column(cls, column: str, info: ValidationInfo) -> str:
        known = _known_format(info.data.get("format"))
        if known and not known.allows_id(column):
            raise ValueError(f"must be {known.id_column!r} in this format, or omitted")
        return column

    @check_field("delimiter", "label")
    @classmethod
    def _check_format(cls, value: str | None, info: ValidationInfo) -> str | None:
        known = _known_format(info.data.get("format"))
        if known and value != (expected := known.settings()[str(info.field_name)]):
            raise ValueError(f"must be {expected!r} in this format, or omitted")
        return value

    @check_field("label")
    @classmethod
    def _check_label(cls, label: str | None, info: ValidationInfo) -> str | None:
        if label is not None and label == info.data.get("id_column"):
            raise ValueError("must differ from id_column")
        return label

    @check_field("positive_label")
    @classmethod
    def _check_positive_label(cls, text: str | None, info: ValidationInfo) -> str | None:
        if text is not None and _known_format(info.data.get("format")):
            raise ValueError("must be null in this format, whose labels are 0 and 1")
        return text

    @check_field("numeric", "categorical", "dates")
    @classmethod
    def _check_features(cls, columns: Columns, info: ValidationInfo) -> Columns:
        if columns == "auto":
            return columns
        known = _known_format(info.data.get("format"))
        others = [key for key in ("numeric", "categorical") if key != info.field_name]
        for index, column in enumerate(columns):
            shown = abbreviated(column)
            if known and column not in known.settings().get(str(info.field_name), ()):
                raise ValueError(f"this format has no such column {shown}; remove it")
            if column in columns[:index]:
                raise ValueError(f"lists {shown} twice; remove one")
            if column in (info.data.get("id_column"), info.data.get("label")):
                raise ValueError(f"{shown} is the ID or label column; remove it")
            for key in others:
                listed = info.data.get(key, "auto")
                if listed != "auto" and column in listed:
                    raise ValueError(f"{shown} is also listed under {key}; keep one")
        return columns


class HeldOutTable(Section):
    """A table of people who are not trained on, with the columns of the training table."""

    path: FilePath = Field(
        description="Table with the same columns as the training table: IDs, label and features "
        "are found by the same names."
    )
    format: Literal["same", FormatName] = Field(
        default="same",
        description="File format: plain, criteo or avazu; same: that of the training table.",
    )
    delimiter: str = Field(
        default="same",
        description="Character that separates the values of a CSV row. same: as in the training "
        "table.",
    )

    @check_field("delimiter")
    @classmethod
    def _check_delimiter(cls, delimiter: str, info: ValidationInfo) -> str:
        if delimiter == "same":
            return delimiter
        known = _known_format(info.data.get("format"))
        if known and delimiter != known.delimiter:
            raise ValueError(f"must be {known.delimiter!r} in this format, or omitted")
        return _check_delimiter(delimiter)


class PreprocessingSettings(Section):
    """How features are encoded for the model; fitted on the training table."""

    min_count: int = Field(
        default=1,
        ge=1,
        description="Categories that occur in fewer training rows than this are treated as "
        "unknown. 10 suits large tables.",
    )
    scaling: Scaling = Field(
        default="linear",
        description="How numbers are scaled to the range 0 to 1. linear: by the training minimum "
        "and maximum. log: the same, after sign(x) * log(1 + abs(x)), for long tails.",
    )
    bins: int = Field(
        default=32,
        ge=0,
        le=1024,
        description="Number of quantile bins of each numeric column, which the model treats as "
        "categories in addition to the scaled number; missing values have a bin of their own. "
        "0: none.",
    )


class Data(Section):
    """The tables of this party."""

    train: Table = Field(description="The table to align and train on.")
    test: HeldOutTable | None = Field(
        default=None,
        description="Table of held-out people on which the model is tested after each epoch.",
    )
    evaluation: HeldOutTable | None = Field(
        default=None,
        description="Table on which the finished model is evaluated. None of its people may be in "
        "the training table. The peer's table may have other people: neither party learns who is "
        "shared.",
    )
    preprocessing: PreprocessingSettings = Field(
        default=PreprocessingSettings(),
        description="How features are encoded for the model; fitted on the training table.",
    )

    @property
    def test_table(self) -> Table | None:
        """The test table, with the columns and format of the training table filled in."""
        return None if self.test is None else self._complete(self.test)

    @property
    def evaluation_table(self) -> Table | None:
        """The evaluation table, with the columns and format of the training table filled in."""
        return None if self.evaluation is None else self._complete(self.evaluation)

    def _complete(self, table: HeldOutTable) -> Table:
        changes: dict[str, object] = {"path": table.path}
        if table.format not in ("same", self.train.format):
            known = _known_format(table.format)
            changes |= {"format": table.format, "delimiter": known.delimiter if known else ","}
        if table.delimiter != "same":
            changes["delimiter"] = table.delimiter
        return self.train.model_copy(update=changes)


def _known_format(name: object) -> Format | None:
    return FORMATS.get(name) if isinstance(name, str) else None
