"""Arguments of `run_party`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from florist.api.party import run_party
from florist.common.core.errors import ConfigurationError
from tests.support.parties import Workspace

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("role", "stage", "message"),
    [("leader", "all", "known are: active, passive"), ("active", "fly", "'fly' is unknown")],
)
def test_an_unknown_role_or_stage_lists_the_known_ones(
    tmp_path: Path,
    role: Any,  # noqa: ANN401 - deliberately wrong
    stage: Any,  # noqa: ANN401
    message: str,
) -> None:
    config = Workspace.create(tmp_path).config("active")
    with pytest.raises(ConfigurationError, match=message):
        run_party(role, config, stage)
