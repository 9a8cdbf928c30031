"""Writing the files of a stage's result."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from florist.common.session.retention import if_damaged
from florist.common.storage.manifest import ListedFolder

if TYPE_CHECKING:
    from pathlib import Path


def json_text(facts: dict[str, Any], *, allow_nan: bool = True) -> str:
    """Return readable JSON with sorted keys.

    Raises:
        ValueError: a number is NaN or infinite and `allow_nan` is false.
    """
    return json.dumps(facts, indent=2, sort_keys=True, allow_nan=allow_nan) + "\n"


def write_json(path: Path, facts: dict[str, Any], *, allow_nan: bool = True) -> None:
    """Write readable JSON with sorted keys.

    Raises:
        ValueError: a number is NaN or infinite and `allow_nan` is false.
    """
    path.write_text(json_text(facts, allow_nan=allow_nan), encoding="utf-8")


def replace_file(path: Path, text: str) -> None:
    """Replace a file of a finished result, so that a reader sees the old or the new content.

    Raises:
        ConfigurationError: it cannot be written.
    """
    folder = path.parent
    files = ListedFolder(folder, if_damaged(f"{folder.name}/{path.name}"))
    files.write(path.name, text.encode())
