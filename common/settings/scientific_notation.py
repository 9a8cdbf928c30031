"""Numbers such as 1e-3 and 1.5e3 in YAML files: YAML 1.1 parses them as strings."""

from __future__ import annotations

import re
from types import UnionType
from typing import Annotated, Union, get_args, get_origin

from pydantic import BaseModel

_SCIENTIFIC = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+")
#: Every whole number up to this one is exact as a float.
_MAX_EXACT = 2.0**53


def convert_scientific(value: object, annotation: object) -> object:
    """Convert strings in scientific notation to numbers wherever a number is expected.

    Args:
        value: a value from a YAML file; sections and lists are converted recursively, as copies.
        annotation: the type that is expected, such as a section or `float | None`.
    """
    options = _alternatives(annotation)
    if isinstance(value, dict):
        return _convert_section(value, options)
    if isinstance(value, list):
        items = [get_args(option)[0] for option in options if get_origin(option) is list]
        return [convert_scientific(item, items[0]) for item in value] if items else value
    if isinstance(value, str) and str not in options and _SCIENTIFIC.fullmatch(value):
        return _as_number(value, options)
    return value


def _convert_section(
    values: dict[object, object], options: tuple[object, ...]
) -> dict[object, object]:
    for option in options:
        if isinstance(option, type) and issubclass(option, BaseModel):
            fields = option.model_fields
            return {
                key: convert_scientific(value, fields[key].annotation)
                if isinstance(key, str) and key in fields
                else value
                for key, value in values.items()
            }
    return values


def _as_number(text: str, options: tuple[object, ...]) -> float | int | str:
    number = float(text)
    if float in options:
        return number
    if int in options and number.is_integer() and abs(number) <= _MAX_EXACT:
        return int(number)
    return text


def _alternatives(annotation: object) -> tuple[object, ...]:
    """Return the members of a union, without their metadata."""
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return tuple(each for member in get_args(annotation) for each in _alternatives(member))
    return (annotation,)
