"""`florist`: the tool around a party: set up, check, look, try."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from florist.cli.console import LogFormat, report_error, set_up_output
from florist.cli.experiments import app as experiments
from florist.cli.health import ask
from florist.cli.init import VALID_DAYS, Names, write_first_files
from florist.cli.preflight import check_all, print_findings
from florist.cli.show import describe, describe_evaluation, describe_training
from florist.common.core.errors import FloristError, as_florist_error
from florist.common.session.run_directory import RunDirectory
from florist.common.settings.loader import load_config
from florist.common.transport.certificates import AuthorityFiles, create_authority, issue
from florist.experiments.sample_data import ClickSample

if TYPE_CHECKING:
    from collections.abc import Callable

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Set up, check and look at the parties of a run. The run itself is `florist-party`.",
)
app.add_typer(experiments, name="experiments")
out = Console()


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="Where to write; made if absent.")] = Path(),
    active: Annotated[str, typer.Option(help="Name of the party with the labels.")] = "bank",
    passive: Annotated[str, typer.Option(help="Name of the party with features.")] = "telco",
    address: Annotated[
        str, typer.Option(help="host:port where the active party listens.")
    ] = "localhost:7443",
    observability: Annotated[
        str | None,
        typer.Option(help="host:port of each party's status page and metrics; by default none."),
    ] = None,
    sample_data: Annotated[
        bool, typer.Option(help="Also write two small tables of made-up people.")
    ] = True,
) -> None:
    """Write all a first run needs: two commented configurations, certificates, sample tables."""
    sample = ClickSample() if sample_data else None
    names = Names(active, passive)
    for path in write_first_files(directory, names, address, sample, observability):
        out.print(f"[green]✓[/] {path}", soft_wrap=True)
    out.print(
        "\nNow, in two terminals, in either order:\n"
        f"  florist-party --role active --config {directory / 'active.yml'}\n"
        f"  florist-party --role passive --config {directory / 'passive.yml'}"
    )


@app.command()
def certs(
    directory: Annotated[Path, typer.Argument(help="Where the authority is, or is to be.")],
    party: Annotated[
        list[str] | None,
        typer.Option(help="A certificate for this party; its name as in both configurations."),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(help="A host name or IP address of the party, besides its name."),
    ] = None,
    days: Annotated[int, typer.Option(help="How long they are valid.")] = VALID_DAYS,
    force: Annotated[bool, typer.Option("--force", help="Replace files of that name.")] = False,
) -> None:
    """Make a private authority, unless it is there, and a certificate for each party named.

    Whoever keeps the authority's key issues for both. Give each party three files: authority.pem,
    its own .pem and its own .key; never the authority's key.
    """
    files = AuthorityFiles.in_directory(directory)
    if not files.certificate.exists():
        files = create_authority(directory, "FLORIST", days)
        out.print(
            f"[green]✓[/] {files.certificate}, {files.key} (keep this key to yourself)",
            soft_wrap=True,
        )
    for name in party or []:
        made = issue(files, name, at or [], directory, days, force=force)
        out.print(f"[green]✓[/] {made.certificate}, {made.key}", soft_wrap=True)


@app.command()
def preflight(
    config: Annotated[Path, typer.Option(help="This party's configuration file.")],
) -> None:
    """Check files, columns, IDs, certificates, address and, when the peer is up, the agreement."""
    if not print_findings(check_all(config), out):
        raise typer.Exit(2)


@app.command()
def health(
    config: Annotated[Path, typer.Option(help="The configuration file of a party that runs.")],
    ready: Annotated[
        bool, typer.Option("--ready", help="Also whether it is at work with its peer, or serves.")
    ] = False,
) -> None:
    """Ask a running party of this machine how it is; exit code 0 if well, 1 if not."""
    found = ask(config, "/readyz" if ready else "/healthz")
    out.print(found.words, markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(0 if found.is_well else 1)


@app.command()
def show(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
) -> None:
    """Show what a run holds."""
    runs = RunDirectory(run)
    describe(runs.load_alignment().summary, out)
    if runs.training.exists():
        describe_training(runs.training, out)
    if runs.evaluation.exists():
        describe_evaluation(runs.evaluation, out)


@app.command()
def audit(
    run: Annotated[Path, typer.Argument(help="A run directory, finished or not.")],
    again: Annotated[
        bool,
        typer.Option("--again", help="Attack once more what audit.keep_view kept, with more care."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the figures of the whole run to this .png file.")
    ] = None,
) -> None:
    """Show what the peer could tell from what we sent, by our own audit during training."""
    from florist.cli import audit as audits  # noqa: PLC0415 - loads torch

    runs = RunDirectory(run)
    record = audits.load_audit(runs)
    newest = [audits.audit_again(runs, record)] if again else record.last
    if plot is not None:
        audits.draw_to(plot, record)
    if as_json:
        out.print_json(data=audits.as_json(record, newest))
        return
    audits.describe_audit(record, newest, out)
    report = runs.training / "report.html"
    if report.exists():
        out.print(f"Report, with a plot: {report}", soft_wrap=True)


@app.command()
def predict(
    config: Annotated[Path, typer.Option(help="The passive party's configuration file.")],
    source: Annotated[
        Path,
        typer.Option(
            "--input",
            help="Rows as in the training table: .csv or .parquet, or a folder of such files.",
        ),
    ],
    target: Annotated[Path, typer.Option("--output", help="Where predictions go: .parquet.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the output; begin anew.")] = False,
) -> None:
    """Predict all rows of a file, of any size, with the help of the peer that serves.

    A run that was stopped goes on where it was when it is started again.
    """
    from florist.common.training.devices import set_threads  # noqa: PLC0415 - loads torch
    from florist.passive_party.predict_files import predict_file  # noqa: PLC0415

    progress = set_up_output(LogFormat.auto, verbose=False)
    settings = load_config(config)
    set_threads(settings.serving.threads)
    rows = predict_file(settings, source, target, progress, force=force)
    out.print(f"[green]✓[/] {rows:,} predictions in {target}", soft_wrap=True)


@app.command()
def demo(
    directory: Annotated[Path, typer.Option(help="Where its files go; emptied first.")] = Path(
        "demo-run"
    ),
) -> None:
    """Run two parties as two processes on this machine, and show what each learned."""
    from florist.cli.demo import run_demo  # noqa: PLC0415 - loads torch

    run_demo(directory, ClickSample(), out)


@app.command()
def simulate(
    config: Annotated[Path, typer.Option(help="The grid: people, methods, ratios, settings.")],
    output: Annotated[
        Path | None,
        typer.Option(help="Folder of the results; beside the configuration unless given."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Trials at once; 0: one per core.")] = 0,
) -> None:
    """Try methods on people whose truth is known: both parties in one process, audited.

    A grid that was stopped goes on where it was when it is started again.
    """
    from florist.cli.simulate import run_grid  # noqa: PLC0415 - loads torch

    progress = set_up_output(LogFormat.auto, verbose=False)
    if not run_grid(config, output, jobs or len(os.sched_getaffinity(0)), progress, out):
        raise typer.Exit(1)


def main() -> None:
    """Entry point: errors of ours become one line and an exit code."""
    set_up_output(LogFormat.auto, verbose=False)
    raise SystemExit(reported(app))


def reported(command: Callable[[], object]) -> int:
    """Run a command; report what it raises; its exit code."""
    try:
        command()
    except (FloristError, KeyboardInterrupt) as error:
        known = as_florist_error(error)
        report_error(known)
        return known.exit_code
    return 0
