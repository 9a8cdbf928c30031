"""Keys of earlier releases still work, with one warning that names old and new keys."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from florist.common.core.errors import ConfigurationError
from florist.common.settings.keys import describe_keys
from florist.common.settings.loader import parse_config
from florist.common.settings.party_config import PartyConfig
from florist.common.settings.renamed_keys import apply_renames

RENAMED = {"old": "new", "a.b": "c.d.e", "a.x": "a.y"}

CONFIG = """
party: {name: clinic, peer: bank}
network: {address: "active.example:7000"}
data: {train: {path: people.csv, id_column: id}}
run_directory: runs
"""


@pytest.fixture
def warnings(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logging.getLogger("florist"), "propagate", True)
    return caplog


def test_current_keys_stay_as_they_are(warnings: pytest.LogCaptureFixture) -> None:
    values: dict[object, object] = {"new": 1, "a": {"y": 2}, 3: None}
    assert apply_renames(values, RENAMED, "party.yml") == values
    assert not warnings.records


def test_one_warning_names_every_old_key(warnings: pytest.LogCaptureFixture) -> None:
    values: dict[object, object] = {"old": {"k": 1}, "a": {"b": 2, "x": 3, "z": 4}}
    moved = apply_renames(values, RENAMED, "party.yml")
    assert moved == {"new": {"k": 1}, "a": {"y": 3, "z": 4}, "c": {"d": {"e": 2}}}
    assert values == {"old": {"k": 1}, "a": {"b": 2, "x": 3, "z": 4}}
    [record] = warnings.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "party.yml: renamed keys: `old` is now `new`, `a.b` is now `c.d.e`, `a.x` is now `a.y`; "
        "the next release rejects the old names"
    )


def test_a_section_left_empty_goes() -> None:
    assert apply_renames({"a": {"b": 1}}, RENAMED, "f") == {"c": {"d": {"e": 1}}}


def test_old_and_new_key_together_are_an_error() -> None:
    values: dict[object, object] = {"old": 1, "new": 1, "a": {"x": 1, "y": 2}}
    with pytest.raises(ConfigurationError) as caught:
        apply_renames(values, RENAMED, "party.yml")
    assert str(caught.value).startswith(
        "party.yml: old and new names of the same key: `old` and `new`; `a.x` and `a.y`; keep"
    )


@pytest.mark.parametrize("values", [{"a": 1}, {"a": None}, {"a": ["b"]}])
def test_invalid_sections_are_left_to_validation(values: dict[object, object]) -> None:
    assert apply_renames(values, RENAMED, "f") == values


def test_the_timeouts_section_was_called_patience(warnings: pytest.LogCaptureFixture) -> None:
    text = f"{CONFIG}\npatience: {{silence: 5.0}}\n"
    config = parse_config(text, folder=Path("/conf"), source="party.yml")
    assert config.timeouts.silence == 5.0
    [record] = warnings.records
    assert "`patience` is now `timeouts`" in record.getMessage()
    both = f"{text}timeouts: {{connect: 60.0}}\n"
    with pytest.raises(ConfigurationError, match="`patience` and `timeouts`"):
        parse_config(both, folder=Path("/conf"), source="party.yml")


def test_new_names_exist_and_old_ones_do_not() -> None:
    known = {key.dotted for key in describe_keys(PartyConfig)}
    assert known >= set(PartyConfig.renamed_keys.values())
    assert not known & PartyConfig.renamed_keys.keys()
