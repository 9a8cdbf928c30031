"""Known formats of published tables: the name of the format determines all columns."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

FormatName = Literal["plain", "criteo", "avazu"]

#: The ID column of a file without IDs: the IDs are 1, 2, 3, ... in the order of the rows.
ROW_NUMBER = "row_number"


@dataclass(frozen=True, slots=True)
class Format:
    """Everything about a table except its path."""

    id_column: str
    delimiter: str
    label: str
    numeric: tuple[str, ...]
    categorical: tuple[str, ...]

    def settings(self) -> dict[str, str | tuple[str, ...]]:
        """Return the configuration keys that the format determines, with their values."""
        return asdict(self)

    def allows_id(self, column: str) -> bool:
        """Whether `column` can be the ID column. A file without IDs may get one as first column."""
        if column == self.id_column:
            return True
        return self.id_column == ROW_NUMBER and column not in self.columns

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns except an ID, in the order of a file without a header."""
        return (self.label, *self.numeric, *self.categorical)

    def header(self, id_column: str) -> tuple[str, ...] | None:
        """Return the columns of a text file without a header; None if the file has a header."""
        if self.id_column != ROW_NUMBER:
            return None
        return self.columns if id_column == ROW_NUMBER else (id_column, *self.columns)


#: Kaggle, "Display Advertising Challenge" (2014): tab-separated, no header, no IDs.
CRITEO = Format(
    id_column=ROW_NUMBER,
    delimiter="\t",
    label="label",
    numeric=tuple(f"I{number}" for number in range(1, 14)),
    categorical=tuple(f"C{number}" for number in range(1, 27)),
)

#: Kaggle, "Click-Through Rate Prediction" (2014): all columns except `id` and `click` are
#: categories, including the hour (as YYMMDDHH).
AVAZU = Format(
    id_column="id",
    delimiter=",",
    label="click",
    numeric=(),
    categorical=(
        *("hour", "C1", "banner_pos", "site_id", "site_domain", "site_category"),
        *("app_id", "app_domain", "app_category"),
        *("device_id", "device_ip", "device_model", "device_type", "device_conn_type"),
        *(f"C{number}" for number in range(14, 22)),
    ),
)

FORMATS: dict[str, Format] = {"criteo": CRITEO, "avazu": AVAZU}
