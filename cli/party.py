"""`florist-party`: run one organisation's side of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from florist.cli.console import CONTEXT, LogFormat, log, log_to_file, report_error, set_up_output
from florist.cli.stop_signals import stop_signals
from florist.cli.version import VersionOption
from florist.common.core.errors import (
    ConfigurationError,
    FloristError,
    InternalError,
    as_florist_error,
)
from florist.common.core.interrupts import INTERRUPTS
from florist.common.core.process_limits import raise_open_file_limit, refuse_tls_1_2
from florist.common.core.roles import RoleName
from florist.common.session.stage_state import STAGE_SUMMARIES, StageChoice, StageOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.core.progress import Progress
    from florist.common.session.stage_state import StageName
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.role import Role


EPILOG = """
[bold]First run[/bold]: `florist init`, then in two terminals
`florist-party --config active.yml` and `florist-party --config passive.yml`, in either order.

[bold]Exit codes[/bold]: 0 finished · 2 this party's configuration, data, or the agreement ·
3 the peer cannot be reached, refuses, or is lost · 4 the peer violated the protocol ·
5 the peer stopped and gave its reason · 6 this party's audit policy · 7 too few or
too many people are shared · 70 a bug · 130 stopped by the operator.
"""

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)


@app.command(epilog=EPILOG)
def party(
    config: Annotated[
        Path, typer.Option(help="This party's YAML file; `florist init` writes a commented one.")
    ],
    role: Annotated[
        RoleName | None,
        typer.Option(
            help="active: has the labels, listens. passive: has features, connects. Default: the "
            "configuration's `role`."
        ),
    ] = None,
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
    progress = set_up_output(log_format, verbose=verbose)
    options = StageOptions(
        plaintext=insecure_plaintext,
        force=force,
        log_file=log_file,
        accept_difference=accept_difference,
    )
    show_result = _log_result if log_format is LogFormat.json else _print_result
    raise typer.Exit(run(role, stage, config, options, progress, show_result))


def run(
    role: RoleName | None,
    stage: StageChoice,
    config: Path,
    options: StageOptions,
    progress: Progress,
    show_result: Callable[[StageName, Path], None] | None = None,
) -> int:
    """Run the stages, report the error that ended them, if any, and return the exit code.

    `show_result` is called after each stage; by default it prints tables.
    """
    from florist.common.stages.run_stages import run_stages  # noqa: PLC0415 - keeps --help fast

    ended = EndReport()
    try:
        if options.log_file is not None:
            log_to_file(options.log_file)
        party, settings = _load(config, role, stage, options)
        names = settings.party
        CONTEXT.set(party=names.name, peer=names.peer, role=party.name)
        if stage == "serve":
            INTERRUPTS.limit += settings.serving.drain_timeout
        run_stages(
            party,
            settings,
            stage,
            options,
            progress,
            on_start=lambda name: CONTEXT.set(stage=name),
            on_complete=show_result or _print_result,
            on_failure=ended,
        )
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - a bug is reported as one
        ended(error)
    return ended.exit_code


class EndReport:
    """Reports the error that ended the run, once: the status page may stay for a while after it."""

    def __init__(self) -> None:
        self.exit_code = 0

    def __call__(self, error: BaseException) -> None:
        if self.exit_code:
            return
        if isinstance(error, FloristError) and INTERRUPTS.is_due:
            error = KeyboardInterrupt()  # the signal was about to take effect: the peer was quicker
        reported = as_florist_error(error)
        if not isinstance(error, FloristError | KeyboardInterrupt):
            log.error("a bug in FLORIST:", exc_info=error)
            reported = InternalError(f"unexpected {type(error).__name__}")
        report_error(reported)
        self.exit_code = reported.exit_code


def _load(
    path: Path, role: RoleName | None, stage: StageChoice, options: StageOptions
) -> tuple[Role, PartyConfig]:
    """Load the configuration; if it is invalid, tell the peer so, as far as it can be read."""
    from florist.api.party import ROLES, resolve_role  # noqa: PLC0415 - keeps --help fast
    from florist.common.session.start_notice import tell_peer  # noqa: PLC0415
    from florist.common.settings.loader import load_config, load_contact  # noqa: PLC0415

    try:
        config = load_config(path)
        return resolve_role(role, config), config
    except ConfigurationError as error:
        contact = load_contact(path)
        name = role if contact is None else contact.role or role
        if contact is not None and name is not None and stage != "serve":
            tell_peer(ROLES[name], contact, error, plaintext=options.plaintext)
        raise


def _print_result(stage: StageName, result: Path) -> None:
    """Print the result of a stage as tables."""
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast

    from florist.cli.show import describe_stage  # noqa: PLC0415
    from florist.common.session.run_directory import RunDirectory  # noqa: PLC0415

    describe_stage(RunDirectory(result.parent), stage, Console())


def _log_result(stage: StageName, result: Path) -> None:
    """Log the result of a stage on one line: with JSON lines, nothing else is written."""
    from florist.common.session.run_directory import RunDirectory  # noqa: PLC0415
    from florist.common.stages.outcome import read_outcome  # noqa: PLC0415

    outcome = read_outcome(RunDirectory(result.parent), stage)
    facts = {"event": "stage-done", "stage": stage, "figures": outcome.figures}
    log.info("%s: %s", stage, outcome.text, extra=facts)


def main() -> NoReturn:
    """Run the command."""
    with stop_signals():
        app()
    raise AssertionError("a command ends with SystemExit")


if __name__ == "__main__":
    main()
