"""The base classes of configuration sections and of stored files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

_SCIENTIFIC = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+")
#: Every whole number up to this one is exact as a float.
_MAX_EXACT = 2.0**53


class StrictModel(BaseModel):
    """A base class for files that FLORIST writes itself: unknown keys and wrong types are rejected.

    Unlike `Section` it accepts JSON arrays as tuples, and JSON objects as dataclasses.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class Section(StrictModel):
    """A group of configuration keys. Unknown keys and values of the wrong type are rejected."""

    #: Keys that an earlier release named differently: old dotted path -> new dotted path. The
    #: loader reads this table of the class that a whole file is loaded into, not of its sections.
    renamed_keys: ClassVar[Mapping[str, str]] = {}

    @field_validator("*", mode="before")
    @classmethod
    def _accept_scientific(cls, value: object, info: ValidationInfo) -> object:
        """Accept 1e-3 and 1.5e3 in numeric fields; YAML 1.1 parses them as strings."""
        return _as_number(value, cls.model_fields[str(info.field_name)].annotation)


def _as_number(value: object, annotation: object) -> object:
    """Convert scientific notation, alone or in a list, where `annotation` expects a number."""
    options = (annotation, *get_args(annotation))
    if isinstance(value, list):
        items = [get_args(option)[0] for option in options if get_origin(option) is list]
        if any(get_origin(option) is tuple for option in options):
            # A strict tuple accepts a list from JSON, but not after a validator of mode "before".
            return tuple(value)
        return [_as_number(item, items[0]) for item in value] if items else value
    if not isinstance(value, str) or not _SCIENTIFIC.fullmatch(value) or str in options:
        return value
    number = float(value)
    if float in options:
        return number
    if int in options and number.is_integer() and abs(number) <= _MAX_EXACT:
        return int(number)
    return value
