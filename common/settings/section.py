"""The base class of every group of configuration keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A group of keys in a configuration: unknown keys and near-miss types are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True
    )

    #: Keys that an earlier release named differently: old dotted path -> new dotted path. Read from
    #: the class that is loaded from a file (`PartyConfig`, for example), not from its sections.
    renamed_keys: ClassVar[Mapping[str, str]] = {}
