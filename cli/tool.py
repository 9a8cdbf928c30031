"""`florist`: set up, check and inspect parties; simulate; reproduce the paper.

Commands import what they need when they run, so that `florist --help` is fast.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from florist.cli.commitment import app as commitment
from florist.cli.console import LogFormat, report_error, set_up_output
from florist.cli.evidence import app as evidence
from florist.cli.experiments import app as experiments
from florist.cli.version import VersionOption
from florist.common.core.errors import ConfigurationError, FloristError, as_florist_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.api.preflight import Check

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Set up, check and inspect the parties of a run. `florist-party` runs a party.",
)
app.add_typer(commitment, name="commitment")
app.add_typer(evidence, name="evidence")
app.add_typer(experiments, name="experiments")
out = Console()


@app.callback()
def options(version: VersionOption = False) -> None:
    """Handle the options that all commands have in common."""


@app.command()
def init(
    directory: Annotated[
        Path, typer.Argument(help="Where to write; created if it does not exist.")
    ] = Path(),
    active: Annotated[str, typer.Option(help="Name of the party with the labels.")] = "bank",
    passive: Annotated[str, typer.Option(help="Name of the party with features.")] = "telco",
    address: Annotated[
        str, typer.Option(help="host:port at which the active party listens.")
    ] = "localhost:7443",
    observability: Annotated[
        str | None,
        typer.Option(help="host:port of each party's status page and metrics; default: none."),
    ] = None,
    sample_data: Annotated[
        bool, typer.Option(help="Also write two small tables of generated people.")
    ] = True,
) -> None:
    """Write all files for a first run: two commented configurations, certificates, sample data."""
    from florist.cli.init import Names, write_first_files  # noqa: PLC0415
    from florist.experiments.sample_data import ClickSample  # noqa: PLC0415

    sample = ClickSample() if sample_data else None
    names = Names(active, passive)
    for path in write_first_files(directory, names, address, sample, observability):
        out.print(f"[green]✓[/] {path}", soft_wrap=True)
    out.print(
        "\nNow run, in two terminals, in either order:\n"
        f"  florist-party --role active --config {directory / 'active.yml'}\n"
        f"  florist-party --role passive --config {directory / 'passive.yml'}"
    )


@app.command()
def certs(
    directory: Annotated[
        Path, typer.Argument(help="Folder of the authority; created if it does not exist.")
    ],
    party: Annotated[
        list[str] | None,
        typer.Option(
            help="Issue a certificate for this party (its name in both configurations); repeatable."
        ),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(help="Additional host name or IP address of the party; repeatable."),
    ] = None,
    days: Annotated[int, typer.Option(help="Days for which certificates are valid.")] = 365,
    force: Annotated[
        bool, typer.Option("--force", help="Replace existing files of the party.")
    ] = False,
) -> None:
    """Create a private certificate authority, if there is none, and certificates for parties.

    Whoever keeps the authority's key issues certificates for both parties. Give each party three
    files: authority.pem, its own .pem and its own .key; never the authority's key.
    """
    from florist.common.transport.certificates import (  # noqa: PLC0415
        AuthorityFiles,
        check_names,
        create_authority,
        issue,
    )

    check_names(directory, party or [], at or [])
    files = AuthorityFiles.in_directory(directory)
    if not files.certificate.exists():
        files = create_authority(directory, "FLORIST", days)
        out.print(
            f"[green]✓[/] {files.certificate}, {files.key} (keep this key secret)",
            soft_wrap=True,
        )
    for name in party or []:
        made = issue(files, name, at or [], directory, days, force=force)
        out.print(f"[green]✓[/] {made.certificate}, {made.key}", soft_wrap=True)


@app.command()
def preflight(
    config: Annotated[Path, typer.Option(help="This party's configuration file.")],
) -> None:
    """Check files, columns, IDs, certificates, address and, if the peer is up, the agreement."""
    from florist.api.preflight import preflight as check_all  # noqa: PLC0415

    checks = check_all(config, on_check=_print_check)
    if not all(check.passed for check in checks):
        raise typer.Exit(2)


def _print_check(check: Check) -> None:
    out.print("[green]✓[/]" if check.passed else "[red]✗[/]", end=" ")
    examples = f" (for example {check.examples})" if check.examples and out.is_terminal else ""
    out.print(
        f"{check.name}: {check.message}{examples}", markup=False, highlight=False, soft_wrap=True
    )


@app.command()
def rehearse(
    config: Annotated[Path, typer.Option(help="The active party's configuration file.")],
    peer_column: Annotated[
        list[str] | None,
        typer.Option(help="Column that plays one of the peer's; repeat. Default: every second."),
    ] = None,
    lacked: Annotated[
        float, typer.Option(min=0.01, max=0.99, help="Fraction of people that each party lacks.")
    ] = 0.5,
    rows: Annotated[
        int, typer.Option(min=100, help="Number of rows to sample, to save time.")
    ] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulation.")] = 0,
) -> None:
    """Simulate a run on your own table, and measure what your own features would reveal.

    Nothing is sent. Exit code 6 if a figure exceeds audit.stop_above or audit.stop_tpr_above.
    """
    from florist.cli.rehearsal import run_rehearsal  # noqa: PLC0415
    from florist.common.settings.loader import load_config  # noqa: PLC0415
    from florist.experiments.rehearsal import RehearsalPlan  # noqa: PLC0415

    plan = RehearsalPlan(tuple(peer_column or ()), lacked, rows, seed)
    run_rehearsal(load_config(config), plan, out)


@app.command()
def health(
    config: Annotated[Path, typer.Option(help="The configuration file of a running party.")],
    ready: Annotated[
        bool,
        typer.Option("--ready", help="Check that it is connected to its peer, or serving."),
    ] = False,
) -> None:
    """Check the health of a party running on this machine: exit code 0 if healthy, otherwise 1."""
    from florist.cli.health import check_health  # noqa: PLC0415

    found = check_health(config, "/readyz" if ready else "/healthz")
    out.print(found.message, markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(0 if found.is_healthy else 1)


@app.command()
def show(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
) -> None:
    """Show the results in a run directory."""
    from florist.api.runs import load_run  # noqa: PLC0415
    from florist.cli.show import describe_run  # noqa: PLC0415

    describe_run(load_run(run), out)


@app.command()
def audit(
    run: Annotated[Path, typer.Argument(help="A run directory, also of a run in progress.")],
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Repeat the attacks on the view that audit.keep_view kept, precisely."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Plot the findings of the whole run to this .png file.")
    ] = None,
) -> None:
    """Show what the peer could infer from what we sent, according to our self-audit."""
    from florist.api.audit import load_audit, repeat_audit  # noqa: PLC0415
    from florist.cli.audit import audit_json, describe_audit, draw_to  # noqa: PLC0415
    from florist.common.session.run_directory import RunDirectory  # noqa: PLC0415

    runs = RunDirectory(run)
    record = load_audit(runs)
    newest = record.last
    if again:
        windows = (figures for figures in newest if figures.over != "epochs")
        newest = [repeat_audit(runs, record), *windows]
    if plot is not None:
        draw_to(plot, record)
    if as_json:
        out.print_json(data=audit_json(record, newest))
        return
    describe_audit(record, newest, out)
    report = runs.training / "report.html"
    if report.exists():
        out.print(f"Report with a plot: {report}", soft_wrap=True)


@app.command()
def ledger(
    config: Annotated[Path, typer.Option(help="This party's configuration file.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Check that no entry was changed or removed.")
    ] = False,
    export: Annotated[
        Literal["json", "csv"] | None,
        typer.Option(help="Print all charges in this format instead."),
    ] = None,
) -> None:
    """Show what was released to the peer so far, what it cost, and what is left of the budget."""
    from florist.cli.ledger import (  # noqa: PLC0415
        as_csv,
        as_json,
        describe_ledger,
        describe_verification,
        load_ledger,
    )
    from florist.common.settings.loader import load_config  # noqa: PLC0415

    settings = load_config(config)
    contents = load_ledger(settings)
    if export is not None:
        typer.echo((as_json if export == "json" else as_csv)(contents.entries))
    elif verify:
        describe_verification(settings, contents, out)
    else:
        describe_ledger(settings, contents, out)


@app.command()
def dpia(
    config: Annotated[Path, typer.Option(help="The party's configuration file.")],
    output: Annotated[Path, typer.Option(help="The Markdown file to write.")] = Path("dpia.md"),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a draft of a data protection impact assessment, filled in from the configuration."""
    from florist.api.dpia import impact_assessment  # noqa: PLC0415
    from florist.common.settings.loader import load_config  # noqa: PLC0415
    from florist.common.transport.certificate_files import write_file  # noqa: PLC0415

    text = impact_assessment(load_config(config))
    if output.exists() and not force:
        raise ConfigurationError(f"{output}: exists already; replace with --force")
    write_file(output, text.encode(), mode=0o600)
    open_points = text.count("TODO")
    out.print(f"[green]✓[/] {output}: {open_points} points marked TODO are left to you")


@app.command()
def purge(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    everything: Annotated[
        bool, typer.Option("--all", help="Delete the whole run, results and evidence included.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete the secrets and intermediate files of a run, after listing them.

    Keeps models, reports and evidence unless --all is given. Files that are not FLORIST's stay.
    """
    from florist.cli.purge import describe_plan  # noqa: PLC0415
    from florist.common.session.purge import plan_purge  # noqa: PLC0415
    from florist.common.session.purge import purge as delete  # noqa: PLC0415
    from florist.common.session.run_directory import RunDirectory  # noqa: PLC0415

    plan = plan_purge(RunDirectory(run), everything=everything)
    describe_plan(plan, out)
    if not plan.files and not everything:
        out.print("There is nothing to delete.")
        return
    if not yes:
        typer.confirm("Delete these files?", abort=True)
    delete(plan)
    out.print(f"[green]✓[/] deleted {len(plan.files)} files", highlight=False)


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
    target: Annotated[Path, typer.Option("--output", help="The .parquet file to write.")],
    force: Annotated[
        bool, typer.Option("--force", help="Start over and replace the output.")
    ] = False,
) -> None:
    """Predict all rows of a file of any size; the active party must be serving.

    If the command is interrupted, run it again to resume.
    """
    from florist.common.settings.loader import load_config  # noqa: PLC0415
    from florist.common.training.devices import set_threads  # noqa: PLC0415
    from florist.passive_party.predict_files import predict_file  # noqa: PLC0415

    progress = set_up_output(LogFormat.auto, verbose=False)
    settings = load_config(config)
    set_threads(settings.serving.threads)
    rows = predict_file(settings, source, target, progress, force=force)
    out.print(f"[green]✓[/] {rows:,} predictions in {target}", soft_wrap=True)


@app.command()
def demo(
    directory: Annotated[Path, typer.Option(help="Where to write; emptied first.")] = Path(
        "demo-run"
    ),
) -> None:
    """Run two parties as two processes on this machine, and show what each one learned."""
    from florist.cli.demo import run_demo  # noqa: PLC0415
    from florist.experiments.sample_data import ClickSample  # noqa: PLC0415

    run_demo(directory, ClickSample(), out)


@app.command()
def simulate(
    config: Annotated[Path, typer.Option(help="The grid: people, methods, ratios, settings.")],
    output: Annotated[
        Path | None,
        typer.Option(help="Folder for the results; default: next to the configuration."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Parallel trials; 0: one per core.")] = 0,
) -> None:
    """Compare methods by simulating both parties on people whose true data are known.

    If the command is interrupted, run it again to resume.
    """
    from florist.cli.simulate import run_grid  # noqa: PLC0415

    progress = set_up_output(LogFormat.auto, verbose=False)
    if not run_grid(config, output, jobs or len(os.sched_getaffinity(0)), progress, out):
        raise typer.Exit(1)


def main() -> None:
    """Run the command; an error becomes one line and an exit code."""
    set_up_output(LogFormat.auto, verbose=False)
    raise SystemExit(reported(app))


def reported(command: Callable[[], object]) -> int:
    """Run a command, report its error, if any, and return the exit code."""
    try:
        command()
    except (FloristError, KeyboardInterrupt) as error:
        known = as_florist_error(error)
        report_error(known)
        return known.exit_code
    return 0
