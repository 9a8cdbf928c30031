"""Running one stage, or all of them in their order, for one party."""

from __future__ import annotations

import logging
from threading import Event
from typing import TYPE_CHECKING, Literal

from florist.common.core.errors import ConfigurationError
from florist.common.core.progress import NoProgress
from florist.common.observability.textfile import recording_end
from florist.common.session.open_session import own_credentials
from florist.common.session.run_directory import RunDirectory
from florist.common.session.stage_state import (
    CHOICES,
    STAGES,
    StageChoice,
    StageName,
    StageOptions,
)
from florist.common.stages.observe import observing
from florist.common.stages.outcome import read_outcome
from florist.common.stages.outdated import report_plan
from florist.common.stages.stage import StageContext
from florist.common.stages.stage_table import STAGE_TABLE, incomplete_stages
from florist.common.stages.start_report import WatchedStart
from florist.common.stages.validation import validate_run
from florist.common.storage.manifest import damages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from florist.common.core.progress import Progress
    from florist.common.data.id_check import IdSummary
    from florist.common.session.alignment_result import TableName
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.role import Role

log = logging.getLogger("florist.stages")


def run_stage(
    name: StageName,
    role: Role,
    config: PartyConfig,
    options: StageOptions,
    progress: Progress,
    checked_ids: Mapping[TableName, IdSummary] | None = None,
) -> Path:
    """Run one stage to its end and return the folder with its result.

    `checked_ids` is what `validate_run` returned.

    Raises:
        FloristError: see `Stage.run`.
    """
    stage = STAGE_TABLE[name].load()
    context = StageContext(role, config, options, progress, checked_ids=checked_ids or {})
    return stage(context).run()


def run_stages(  # noqa: PLR0913 - most are optional
    role: Role,
    config: PartyConfig,
    choice: StageChoice = "all",
    options: StageOptions | None = None,
    progress: Progress | None = None,
    *,
    on_start: Callable[[str], None] = lambda _name: None,
    on_complete: Callable[[StageName, Path], None] = lambda _name, _result: None,
    on_failure: Callable[[BaseException], None] = lambda _error: None,
    until: Event | None = None,
) -> None:
    """Run one stage, all incomplete stages, or the prediction service.

    What all stages need is checked before the first one connects. If this party cannot start, its
    peer is told. The status page is served meanwhile if `observability.address` is set, and for
    `observability.linger` seconds longer.

    Args:
        role: this party's role.
        config: this party's configuration.
        choice: one of `CHOICES`.
        options: plaintext and force; by default neither.
        progress: where the steps report their progress; by default nowhere.
        on_start: called before each stage with its name, also before "serve".
        on_complete: called after each stage with its name and the folder with its result.
        on_failure: called with the error that ends the run, before the status page is closed; not
            called if there is none.
        until: ends the prediction service when set; Ctrl-C and SIGTERM end it too.

    Raises:
        ConfigurationError: the choice is unknown, or a file or setting is not usable.
        FloristError: what ended a stage, here or at the peer.
    """
    options = options or StageOptions()
    starting = WatchedStart(role, plaintext=options.plaintext)
    starting.has_connected = choice == "serve"  # there, the peer expects no session
    with (
        starting.telling_peer(config),  # also if the status page cannot be served
        observing(starting, config, progress or NoProgress(), on_failure=on_failure) as watch,
        recording_end(role.name, config),
        starting.telling_peer(config),  # before the status page lingers
    ):
        plan = _plan(config, choice, options)
        if not plan:
            _require_intact_results(config)
            log.info("all stages are complete; use --force to start over")
        if choice == "all" and not options.force:
            report_plan(config, plan)
        if plan and choice != "serve":
            own_credentials(config, plaintext=options.plaintext)
        checked_ids = validate_run(role, config, options, plan)
        for name in watch.stages(plan):
            on_start(name)
            starting.has_connected = name == "serve"
            if name == "serve":
                watch.role.serve(
                    config, until or Event(), plaintext=options.plaintext, watch=watch.service
                )
            else:
                result = run_stage(name, watch.role, config, options, watch.progress, checked_ids)
                watch.completed(name, read_outcome(RunDirectory(result.parent), name).text)
                on_complete(name, result)


def _require_intact_results(config: PartyConfig) -> None:
    """Verify the results of all stages, none of which is going to read them.

    Raises:
        DamagedFile: a file is missing or not as it was written; the others are logged.
    """
    runs = RunDirectory(config.run_directory)
    found = [
        damage.error(runs.if_damaged(damage))
        for folder in (*map(runs.result, STAGES), runs.evaluation_alignment)
        for damage in damages(folder)
    ]
    for error in found[1:]:
        log.warning("%s", error.reason)
    if found:
        raise found[0]


def _plan(
    config: PartyConfig, choice: StageChoice, options: StageOptions
) -> Sequence[StageName | Literal["serve"]]:
    if choice not in CHOICES:
        raise ConfigurationError(f"stage {choice!r} is unknown; known are: {', '.join(CHOICES)}")
    return incomplete_stages(config, force=options.force) if choice == "all" else [choice]
