"""Running one stage, or all of them in their order, for one party."""

from __future__ import annotations

import logging
from threading import Event
from typing import TYPE_CHECKING, Literal

from florist.common.core.errors import ConfigurationError
from florist.common.core.progress import NoProgress
from florist.common.session.stage_state import CHOICES, StageChoice, StageName, StageOptions
from florist.common.stages.observe import observing
from florist.common.stages.stage import StageContext
from florist.common.stages.stage_table import STAGE_TABLE, incomplete_stages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from florist.common.core.progress import Progress
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.role import Role

log = logging.getLogger("florist.stages")


def run_stage(
    name: StageName, role: Role, config: PartyConfig, options: StageOptions, progress: Progress
) -> Path:
    """Run one stage to its end and return the folder with its result.

    Raises:
        FloristError: see `Stage.run`.
    """
    stage = STAGE_TABLE[name].load()
    return stage(StageContext(role, config, options, progress)).run()


def run_stages(  # noqa: PLR0913 - most are optional
    role: Role,
    config: PartyConfig,
    choice: StageChoice = "all",
    options: StageOptions | None = None,
    progress: Progress | None = None,
    *,
    on_start: Callable[[str], None] = lambda _name: None,
    on_complete: Callable[[StageName, Path], None] = lambda _name, _result: None,
    until: Event | None = None,
) -> None:
    """Run one stage, all incomplete stages, or the prediction service.

    The status page is served meanwhile if `observability.address` is set.

    Args:
        role: this party's role.
        config: this party's configuration.
        choice: one of `CHOICES`.
        options: plaintext and force; by default neither.
        progress: where the steps report their progress; by default nowhere.
        on_start: called before each stage with its name, also before "serve".
        on_complete: called after each stage with its name and the folder with its result.
        until: ends the prediction service when set; Ctrl-C and SIGTERM end it too.

    Raises:
        ConfigurationError: the choice is unknown, or a file or setting is not usable.
        FloristError: what ended a stage, here or at the peer.
    """
    options = options or StageOptions()
    with observing(role, config, progress or NoProgress()) as watch:
        plan = _plan(config, choice, options)
        if not plan:
            log.info("all stages are complete; use --force to start over")
        for name in watch.stages(plan):
            on_start(name)
            if name == "serve":
                watch.role.serve(
                    config, until or Event(), plaintext=options.plaintext, watch=watch.service
                )
            else:
                on_complete(name, run_stage(name, watch.role, config, options, watch.progress))


def _plan(
    config: PartyConfig, choice: StageChoice, options: StageOptions
) -> Sequence[StageName | Literal["serve"]]:
    if choice not in CHOICES:
        raise ConfigurationError(f"stage {choice!r} is unknown; known are: {', '.join(CHOICES)}")
    return incomplete_stages(config, force=options.force) if choice == "all" else [choice]
