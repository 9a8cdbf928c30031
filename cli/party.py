"""`florist-party`: one organisation's side of a run."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from florist.active_party.role import ACTIVE
from florist.cli.console import LogFormat, log, report_error, set_up_output
from florist.cli.show import describe, describe_evaluation, describe_training
from florist.cli.stop_signals import stop_signals
from florist.common.core.errors import FloristError, InternalError, as_florist_error
from florist.common.session.run_directory import RunDirectory
from florist.common.session.stage_state import StageName, StageOptions
from florist.common.settings.loader import load_config
from florist.common.stages.run_stages import StageChoice, run_stages
from florist.passive_party.role import PASSIVE

if TYPE_CHECKING:
    from florist.common.core.progress import Progress


class RoleOption(StrEnum):
    """Which side this is."""

    active = "active"
    passive = "passive"


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
        StageChoice,
        typer.Option(
            help="align: the private set union. train: the model, on the union. evaluate: what it "
            "is worth, without knowing who is shared. all: these, without what is finished "
            "already. serve: predictions with the trained model, until "
            "stopped; at the passive party an HTTP service for its own applications."
        ),
    ] = "all",
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
    role: RoleOption, stage: StageChoice, config: Path, options: StageOptions, progress: Progress
) -> int:
    """Run the stages asked for; report what ends them; return the exit code."""
    try:
        settings = load_config(config)
        run_stages(ROLES[role], settings, stage, options, progress, on_complete=_describe)
    except (FloristError, KeyboardInterrupt) as error:
        reported = as_florist_error(error)
    except Exception as error:  # noqa: BLE001 - the last resort: a bug is reported as one
        log.exception("a bug in FLORIST:", exc_info=error)
        reported = InternalError(f"unexpected {type(error).__name__}")
    else:
        return 0
    report_error(reported)
    return reported.exit_code


def _describe(stage: StageName, result: Path) -> None:
    """Print the result of a stage."""
    match stage:
        case "align":
            describe(RunDirectory(result.parent).load_alignment().summary)
        case "train":
            describe_training(result)
        case "evaluate":
            describe_evaluation(result)


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
