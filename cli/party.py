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
from florist.common.align_stage import StageOptions, align
from florist.common.config import load_config
from florist.common.errors import FloristError, InternalError, as_florist_error
from florist.common.run_directory import RunDirectory
from florist.passive_party.role import PASSIVE

if TYPE_CHECKING:
    from florist.common.config import PartyConfig
    from florist.common.progress import Progress
    from florist.common.role import Role


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
        bool, typer.Option("--force", help="Replace a finished result in the run directory.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with a training run that was stopped; on both sides."),
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
    options = StageOptions(plaintext=insecure_plaintext, force=force, resume=resume)
    with stop_signals():
        code = run(role, stage, config, options, progress)
    raise typer.Exit(code)


def run(
    role: RoleOption, stage: StageOption, config: Path, options: StageOptions, progress: Progress
) -> int:
    """Run the stages asked for; report what ends them; return the exit code."""
    try:
        run_stages(ROLES[role], stage, load_config(config), options, progress)
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
    role: Role, stage: StageOption, config: PartyConfig, options: StageOptions, progress: Progress
) -> None:
    """One stage, or all in their order."""
    for each in _stages(config, options) if stage is StageOption.all else [stage]:
        match each:
            case StageOption.align:
                describe(align(role, config, options, progress)["train"].summary)
            case StageOption.train:
                from florist.common.train_stage import train  # noqa: PLC0415 - loads torch

                describe_training(train(role, config, options, progress))
            case StageOption.evaluate:
                from florist.common.evaluate_stage import evaluate  # noqa: PLC0415 - likewise

                describe_evaluation(evaluate(role, config, options, progress))
            case StageOption.serve:
                _serve(role, config, options)


def _stages(config: PartyConfig, options: StageOptions) -> list[StageOption]:
    """All there is to do: without what is finished, but the last, which then says so."""
    runs = RunDirectory(config.run_directory)
    results = {StageOption.align: runs.alignment, StageOption.train: runs.training}
    if config.agreement.evaluation.table:
        results[StageOption.evaluate] = runs.evaluation
    *before, last = results
    # A result beside checkpoints is that of a run whose peer was stopped before it had its own.
    goes_on = options.resume and runs.checkpoints.is_dir() and any(runs.checkpoints.iterdir())
    again = {StageOption.train} if goes_on else set()
    left = [
        stage for stage in before if options.force or stage in again or not results[stage].exists()
    ]
    return [*left, last]


def _serve(role: Role, config: PartyConfig, options: StageOptions) -> None:
    # Both load torch, and the second one a web server.
    if role.name == "active":
        from florist.active_party.serving import serve  # noqa: PLC0415
    else:
        from florist.passive_party.http_service import serve  # noqa: PLC0415
    serve(config, Event(), plaintext=options.plaintext)


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
