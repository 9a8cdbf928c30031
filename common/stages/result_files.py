"""Writing the JSON files of a stage's result."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def write_json(path: Path, facts: dict[str, Any], *, allow_nan: bool = True) -> None:
    """Write readable JSON with sorted keys.

    Raises:
        ValueError: a number is NaN or infinite and `allow_nan` is false.
    """
    text = json.dumps(facts, indent=2, sort_keys=True, allow_nan=allow_nan)
    path.write_text(text + "\n", encoding="utf-8")
