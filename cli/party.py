"""`florist-party`: run one organisation's side of a run."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from florist.cli.console import LogFormat, log, log_to_file, report_error, set_up_output
from florist.cli.version import VersionOption
from florist.common.core.errors import FloristError, InternalError, as_florist_error
from florist.common.core.process_limits import raise_open_file_limit, refuse_tls_1_2
from florist.common.session.stage_state import STAGE_SUMMARIES, StageChoice, StageOptions

if TYPE_CHECKING:
    from florist.common.core.progress import Progress
    from florist.common.session.stage_state import StageName


class RoleOption(StrEnum):
    """The side that this party takes."""

    active = "active"
    passive = "passive"


EPILOG = """
[bold]First run[/bold]: `florist init`, then in two terminals
`florist-party --role active --config active.yml` and
`florist-party --role passive --config passive.yml`, in either order.

[bold]Exit codes[/bold]: 0 finished · 2 this party's configuration, data, or the agreement ·
3 the peer cannot be reached, refuses, or is lost · 4 the peer violated the protocol ·
5 the peer stopped and gave its reason · 6 this party's audit policy · 7 too few or
too many people are shared · 70 a bug · 130 stopped by the operator.
"""

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)


@app.command(epilog=EPILOG)
def party(
    role: Annotated[
        RoleOption,
        typer.Option(help="active: has the labels, listens. passive: has features, connects."),
    ],
    config: Annotated[
        Path, typer.Option(help="This party's YAML file; `florist init` writes a commented one.")
    ],
    stage: Annotated[
        StageChoice,
        typer.Option(
            help="".join(f"{name}: {summary}. " for name, summary in STAGE_SUMMARIES.items())
            + "all: these in their order, skipping finished stages. serve: serve predictions with "
            "the trained model until stopped; the passive party offers an HTTP service to its own "
            "applications."
        ),
    ] = "all",
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Start over and replace existing results; required on both sides."
        ),
    ] = False,
    accept_difference: Annotated[
        str | None,
        typer.Option(
            metavar="REASON",
            help="Align although our table differs little from the previous one with this peer; "
            "the privacy ledger records the reason.",
        ),
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option(help="auto: progress bars on a terminal, otherwise text lines.")
    ] = LogFormat.auto,
    log_file: Annotated[
        Path | None,
        typer.Option(
            help="Also append the log to this file, as JSON lines; its SHA-256 becomes part of "
            "the evidence of each stage."
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more.")] = False,
    insecure_plaintext: Annotated[
        bool,
        typer.Option(
            "--insecure-plaintext",
            help="No TLS and no check of the peer's identity: for tests on one machine only.",
        ),
    ] = False,
    version: VersionOption = False,
) -> None:
    """Run one party of a two-party run.

    Both organisations start this program, each with its own role, and connect over mutually
    authenticated TLS. They learn the size of the union and of each set, and the ranks of their OWN
    people in the union. Neither is told which of its people the other also has; if nobody is
    shared, or a whole set, the sizes reveal it.
    """
    del version
    refuse_tls_1_2()
    raise_open_file_limit()
    from florist.cli.stop_signals import stop_signals  # noqa: PLC0415 - keeps --help fast

    progress = set_up_output(log_format, verbose=verbose)
    options = StageOptions(
        plaintext=insecure_plaintext,
        force=force,
        log_file=log_file,
        accept_difference=accept_difference,
    )
    with stop_signals():
        code = run(role, stage, config, options, progress)
    raise typer.Exit(code)


def run(
    role: RoleOption, stage: StageChoice, config: Path, options: StageOptions, progress: Progress
) -> int:
    """Run the stages, report the error that ended them, if any, and return the exit code."""
    from florist.api.party import ROLES  # noqa: PLC0415 - keeps --help fast
    from florist.common.settings.loader import load_config  # noqa: PLC0415
    from florist.common.stages.run_stages import run_stages  # noqa: PLC0415

    try:
        if options.log_file is not None:
            log_to_file(options.log_file)
        settings = load_config(config)
        run_stages(ROLES[role.value], settings, stage, options, progress, on_complete=_describe)
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
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast

    from florist.cli.show import describe_stage  # noqa: PLC0415
    from florist.common.session.run_directory import RunDirectory  # noqa: PLC0415

    describe_stage(RunDirectory(result.parent), stage, Console())


def main() -> None:
    """Run the command."""
    app()


if __name__ == "__main__":
    main()
