"""The stages of a run in their order: where the code of each is, and when it is needed."""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from florist.common.session.run_directory import RunDirectory
from florist.common.session.stage_state import STAGES, StageState

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.session.stage_state import StageName
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.stage import Stage


@dataclass(frozen=True, slots=True)
class StageEntry:
    """One stage."""

    #: Where its class is, as `module:class`. Imported on first use: most stages load torch.
    import_path: str
    #: Whether a run of all stages includes it.
    is_needed: Callable[[PartyConfig], bool] = lambda _: True

    def load(self) -> type[Stage[Any, Any]]:
        """Import the stage's class."""
        found: type[Stage[Any, Any]] = pkgutil.resolve_name(self.import_path)
        return found


STAGE_TABLE: dict[StageName, StageEntry] = {
    "align": StageEntry("florist.common.stages.align:AlignStage"),
    "train": StageEntry("florist.common.stages.train:TrainStage"),
    "evaluate": StageEntry(
        "florist.common.stages.evaluate:EvaluateStage",
        is_needed=lambda config: config.agreement.evaluation.table,
    ),
}


def incomplete_stages(config: PartyConfig, *, force: bool = False) -> list[StageName]:
    """Return the stages that a run of all stages still has to do; with `force`, all of them."""
    runs = RunDirectory(config.run_directory)
    return [
        name
        for name in STAGES
        if STAGE_TABLE[name].is_needed(config)
        and not StageState(runs, name, force=force).is_complete
    ]
