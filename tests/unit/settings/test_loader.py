"""Files that cannot be loaded: the error names the file, the line and the fix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from florist.common.core.errors import ConfigurationError
from florist.common.settings.loader import load_config
from tests.support.settings import problem_in_text

if TYPE_CHECKING:
    from pathlib import Path


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nothing\.yml: no such file; `florist init`"):
        load_config(tmp_path / "nothing.yml")
    with pytest.raises(ConfigurationError, match="this is a folder"):
        load_config(tmp_path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_config(tmp_path / "a\0b")


def test_invalid_utf8(tmp_path: Path) -> None:
    file = tmp_path / "party.yml"
    file.write_bytes("party:\n  name: caf\u00e9\n".encode("latin-1"))
    with pytest.raises(ConfigurationError, match=r"party\.yml: line 2 is not valid UTF-8; save"):
        load_config(file)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("party: {name: a\nnetwork", "party.yml: line 2, column "),
        ("party:\n\tname: a", "party.yml: line 2, column 1: found character '\\t'"),
        ("a: 1\n--- \nb: 2", "party.yml: line 2, column 1: but found another document"),
        ("party: !!python/object:os.system {}", "could not determine a constructor"),
        ("a: *unknown", "line 1, column 4: found undefined alias"),
        ("{[a]: 1}", "line 1, column 2: found unhashable key"),
        ("a: 1\nb: \x07", "party.yml: line 2: contains a control character"),
        ("a: 2026-02-30", "invalid value"),
        ("[" * 1500, "nested too deeply"),
        ("", "party.yml: is empty; expected `role`, `party`, `network`"),
        ("# only a comment", "is empty"),
        ("- party", "party.yml: has no keys at the top level"),
        ("hello", "has no keys at the top level"),
    ],
)
def test_invalid_yaml(text: str, expected: str) -> None:
    assert expected in problem_in_text(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("party: 1\nnetwork: 2\nparty: 3\n", "line 3, column 1: duplicate key 'party'; remove one"),
        ("party:\n  name: a\n  'name': b\n", "line 3, column 3: duplicate key 'name'; remove one"),
        ("a: {b: 1, b: 2}", "line 1, column 11: duplicate key 'b'; remove one"),
    ],
)
def test_duplicate_keys(text: str, expected: str) -> None:
    assert expected in problem_in_text(text)
