"""`florist-party`: one organisation's side of a run."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from florist.active_party.role import ACTIVE
from florist.cli.console import LogFormat, log, report_error, set_up_output
from florist.cli.show import describe, describe_evaluation, describe_training
from florist.cli.stop_signals import stop_signals
from florist.common.core.errors import FloristError, InternalError, as_florist_error
from florist.common.session.run_directory import RunDirectory
from florist.common.session.stage_state import STAGES, StageOptions, StageState
from florist.common.settings.loader import load_config
from florist.common.stages.align import align
from florist.common.stages.observe import observing
from florist.passive_party.role import PASSIVE

if TYPE_CHECKING:
    from florist.common.core.progress import Progress
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.observe import Watch


class RoleOption(StrEnum):
    """Which side this is."""

    active = "active"
    passive = "passive"


class StageOption(StrEnum):
    """What to run."""

    all = "all"
    align = "align"
    train = "train"
    evaluate = "evaluate"
    serve = "serve"


ROLES = {RoleOption.active: ACTIVE, RoleOption.passive: PASSIVE}

EPILOG = """
[bold]A first run[/bold]: `florist init`, then in two terminals
`florist-party --role active --config active.yml` and
`florist-party --role passive --config passive.yml`; either may start first.

[bold]Exit codes[/bold]: 0 finished · 2 this party's configuration, data, or the agreement ·
3 the peer cannot be reached, refuses, or is lost · 4 the peer broke the protocol ·
5 the peer stopped and said why · 6 our own audit policy · 70 a bug ·
130 stopped by the operator.
"""

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)


@app.command(epilog=EPILOG)
def party(
    role: Annotated[
        RoleOption,
        typer.Option(help="active: has the labels, listens. passive: has features, dials."),
    ],
    config: Annotated[
        Path, typer.Option(help="This party's YAML file; `florist init` writes a commented one.")
    ],
    stage: Annotated[
        StageOption,
        typer.Option(
            help="align: the private set union. train: the model, on the union. evaluate: what it "
            "is worth, without knowing who is shared. all: these, without what is finished "
            "already. serve: predictions with the trained model, until "
            "stopped; at the passive party an HTTP service for its own applications."
        ),
    ] = StageOption.all,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Begin anew: replace what is finished or begun; on both sides."
        ),
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option(help="auto: bars on a terminal, text lines elsewhere.")
    ] = LogFormat.auto,
    verbose: Annotated[bool, typer.Option("--verbose", help="More log lines.")] = False,
    insecure_plaintext: Annotated[
        bool,
        typer.Option(
            "--insecure-plaintext",
            help="No TLS, no check of who the peer is: for tests on one machine only.",
        ),
    ] = False,
) -> None:
    """Run one party of a two-party run.

    Both organisations start this program, one with each role, and meet over mutually authenticated
    TLS. They learn the number of people in the union and in each set, and the place of their OWN
    people in the union; neither learns which of its people the other also has.
    """
    progress = set_up_output(log_format, verbose=verbose)
    options = StageOptions(plaintext=insecure_plaintext, force=force)
    with stop_signals():
        code = run(role, stage, config, options, progress)
    raise typer.Exit(code)


def run(
    role: RoleOption, stage: StageOption, config: Path, options: StageOptions, progress: Progress
) -> int:
    """Run the stages asked for; report what ends them; return the exit code."""
    try:
        settings = load_config(config)
        with observing(ROLES[role], settings, progress) as watch:
            run_stages(watch, stage, settings, options)
    except (FloristError, KeyboardInterrupt) as error:
        reported = as_florist_error(error)
    except Exception as error:  # noqa: BLE001 - the last resort: a bug is reported as one
        log.exception("a bug in FLORIST:", exc_info=error)
        reported = InternalError(f"unexpected {type(error).__name__}")
    else:
        return 0
    report_error(reported)
    return reported.exit_code


def run_stages(
    watch: Watch, stage: StageOption, config: PartyConfig, options: StageOptions
) -> None:
    """One stage, or all in their order."""
    role, progress = watch.role, watch.progress
    stages = _stages(config, options) if stage is StageOption.all else [stage]
    if not stages:
        log.info("all stages are finished; --force begins anew")
    for each in watch.stages(stages):
        match each:
            case StageOption.align:
                describe(align(role, config, options, progress)["train"].summary)
            case StageOption.train:
                from florist.common.stages.train import train  # noqa: PLC0415 - loads torch

                describe_training(train(role, config, options, progress))
            case StageOption.evaluate:
                from florist.common.stages.evaluate import evaluate  # noqa: PLC0415 - likewise

                describe_evaluation(evaluate(role, config, options, progress))
            case StageOption.serve:
                _serve(watch, config, options)


def _stages(config: PartyConfig, options: StageOptions) -> list[StageOption]:
    """All there is to do, in order: the stages that are not over."""
    runs = RunDirectory(config.run_directory)
    wanted = (name for name in STAGES if name != "evaluate" or config.agreement.evaluation.table)
    return [
        StageOption(name)
        for name in wanted
        if not StageState(runs, name, force=options.force).is_complete
    ]


def _serve(watch: Watch, config: PartyConfig, options: StageOptions) -> None:
    # Both load torch, and the second one a web server.
    if watch.role.name == "active":
        from florist.active_party.serving import serve  # noqa: PLC0415
    else:
        from florist.passive_party.http_service import serve  # noqa: PLC0415
    serve(config, Event(), plaintext=options.plaintext, watch=watch.service)


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
