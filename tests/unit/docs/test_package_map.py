"""The picture of the packages shows the layers that the import contract enforces."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_picture_shows_every_layer_in_order() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = (
        contract["layers"]
        for contract in contracts
        if contract.get("containers") == ["florist.common"]
    )
    picture = (ROOT / "docs" / "images" / "packages.svg").read_text(encoding="utf-8")
    names = re.findall(r'class="n">(\w+)<', picture)
    start = names.index("common") + 1
    assert names[start : start + len(layers)] == layers
    folders = {path.name for path in (ROOT / "common").iterdir() if (path / "__init__.py").exists()}
    assert set(layers) == folders
