"""Configurations for tests, as dictionaries, and the errors that they cause."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from florist.common.core.errors import ConfigurationError
from florist.common.settings.loader import parse_config

if TYPE_CHECKING:
    from florist.common.settings.party_config import PartyConfig


#: The smallest valid configuration.
MINIMAL: dict[str, Any] = {
    "party": {"name": "clinic", "peer": "bank"},
    "network": {"address": "active.example:7000"},
    "data": {"train": {"path": "people.csv", "id_column": "id"}},
    "run_directory": "runs",
}


def with_value(dotted: str, value: object) -> dict[str, Any]:
    """Return a copy of MINIMAL with one key changed or added."""
    *above, last = dotted.split(".")
    changed: dict[str, Any] = yaml.safe_load(yaml.safe_dump(MINIMAL))
    section = changed
    for part in above:
        section = section.setdefault(part, {})
    section[last] = value
    return changed


def parse(values: object) -> PartyConfig:
    """Load a configuration that is in the folder /conf."""
    return parse_config(yaml.safe_dump(values), folder=Path("/conf"), source="party.yml")


def problem(values: object) -> str:
    """Return the error message for invalid values, without the file name."""
    with pytest.raises(ConfigurationError) as caught:
        parse(values)
    text = str(caught.value)
    assert text.startswith("party.yml: ")
    assert "party.yml" not in caught.value.for_peer
    return text.removeprefix("party.yml: ")


def problem_in_text(text: str) -> str:
    """Return the whole error message for an invalid text."""
    with pytest.raises(ConfigurationError) as caught:
        parse_config(text, folder=Path("/conf"), source="party.yml")
    return str(caught.value)
