"""The generated reference page of the configuration."""

from __future__ import annotations

from pathlib import Path

from florist.common.settings.keys import describe_keys
from florist.common.settings.party_config import PartyConfig
from tools.configuration_page import page


def test_every_key_has_a_description_with_its_choices() -> None:
    keys = list(describe_keys(PartyConfig))
    assert len({key.dotted for key in keys}) == len(keys) > 20
    for key in keys:
        assert key.meaning.endswith("."), key.dotted
        assert all(choice in key.meaning for choice in key.choices), key.dotted


def test_the_committed_page_is_up_to_date() -> None:
    committed = Path(__file__).parents[3] / "docs" / "reference" / "configuration.md"
    assert committed.read_text(encoding="utf-8") == page(), (
        "run: python -m tools.configuration_page > docs/reference/configuration.md"
    )
