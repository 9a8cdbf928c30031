"""How a party ended stays visible to Prometheus after the process is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.observability import parsed
from tests.support.parties import Workspace

if TYPE_CHECKING:
    from pathlib import Path


def test_the_exit_code_outlives_the_party(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "pair")
    file = tmp_path / "bank.prom"
    workspace.configure("active", {"observability.textfile": str(file), "timeouts.connect": 1.0})

    def ended() -> dict[str, float]:
        return {name: value for (name, _), value in parsed(file.read_text()).items()}

    with workspace.start("active") as alone:
        assert alone.finish() == 3
    assert (ended()["florist_failed"], ended()["florist_exit_code"]) == (1, 3)

    workspace.configure("active", {"timeouts.connect": 60.0})
    with workspace.start("active") as active, workspace.start("passive") as passive:
        assert (active.finish(120), passive.finish(120)) == (0, 0)
    found = ended()
    assert (found["florist_failed"], found["florist_exit_code"]) == (0, 0)
    assert 0 < found["florist_privacy_budget_left"] < 1
