"""The base classes of configuration sections and of stored files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """The base class of files that FLORIST writes. Unknown keys and wrong types are rejected."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class Section(StrictModel):
    """A group of configuration keys. Unknown keys and values of the wrong type are rejected."""

    #: Keys that an earlier release named differently: old dotted path -> new dotted path. The
    #: loader reads this table of the class that a whole file is loaded into, not of its sections.
    renamed_keys: ClassVar[Mapping[str, str]] = {}
