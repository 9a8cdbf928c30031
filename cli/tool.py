"""`florist`: set up, check and inspect parties; simulate; reproduce the paper.

Commands import what they need when they run, so that `florist --help` is fast.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer
from rich.console import Console

from florist.cli.certs import app as certs
from florist.cli.commitment import app as commitment
from florist.cli.console import LogFormat, report_error, set_up_output
from florist.cli.evidence import app as evidence
from florist.cli.experiments import app as experiments
from florist.cli.stop_signals import stop_signals
from florist.cli.version import VersionOption
from florist.common.core.errors import (
    ConfigurationError,
    FloristError,
    Interrupted,
    as_florist_error,
)
from florist.common.core.roles import RoleName

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
app.add_typer(certs, name="certs")
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
    role: Annotated[
        RoleName | None,
        typer.Option(
            help="Write this party's configuration only, without keys and sample data: for a run "
            "of two organisations."
        ),
    ] = None,
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
    active_table: Annotated[
        Path | None, typer.Option(help="Your own table with the labels, instead of sample data.")
    ] = None,
    passive_table: Annotated[
        Path | None, typer.Option(help="Your own table with features; needs --active-table.")
    ] = None,
    id_column: Annotated[
        list[str] | None,
        typer.Option(
            help="Column with the IDs in your own tables. Default: found by its values. Twice: "
            "first in the active, then in the passive party's table."
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(help="Column with the labels. Default: the only one besides the IDs."),
    ] = None,
    positive_label: Annotated[
        str | None,
        typer.Option(help='Label that is predicted, such as "<30"; every other one is class 0.'),
    ] = None,
) -> None:
    """Write all files for a first run: two commented configurations, certificates, sample data.

    With --active-table and --passive-table, the configurations are for your own tables: delimiter,
    ID column, label and classes are found by reading them.
    """
    from florist.cli.init import Names, write_first_files, write_own_files  # noqa: PLC0415
    from florist.cli.own_tables import Hints, inspect_own_tables  # noqa: PLC0415
    from florist.experiments.sample_data import ClickSample  # noqa: PLC0415

    own = None
    tables = active_table, passive_table
    needed = tables if role is None else tables[:1] if role == "active" else tables[1:]
    if None not in needed and sum(table is not None for table in tables) == len(needed):
        hints = Hints(tuple(id_column or ()), label, positive_label)
        own = inspect_own_tables(active_table, passive_table, hints)
    elif active_table or passive_table or id_column or label or positive_label:
        options = "both --active-table and --passive-table" if role is None else f"--{role}-table"
        raise ConfigurationError(f"for your own tables, give {options}")
    names = Names(active, passive)
    if role is None:
        sample = ClickSample() if sample_data and own is None else None
        written = write_first_files(directory, names, address, sample, observability, own)
    else:
        table = None if own is None else own[role]
        written = write_own_files(directory, role, names, address, observability, table)
    for path in written:
        out.print(f"[green]✓[/] {path}", soft_wrap=True)
    for each, table in (own or {}).items():
        found = {"data.train.id_column": table.id_column, **table.settings}
        keys = ", ".join(f"{key}: {value!r}" for key, value in found.items())
        text = f"  {each}: {table.path}; {keys}"
        out.print(text, markup=False, highlight=False, soft_wrap=True)
    if role is not None:
        out.print(
            f"\nNow create the key of {names[role]} in {directory / 'certificates'} "
            "(`florist certs --help`),\n"
            "agree with your peer on the section `agreement`, and check everything:\n"
            f"  florist preflight --config {directory / f'{role}.yml'}",
            soft_wrap=True,
        )
        return
    out.print(
        "\nNow run, in two terminals, in either order:\n"
        f"  florist-party --config {directory / 'active.yml'}\n"
        f"  florist-party --config {directory / 'passive.yml'}"
    )


@app.command()
def preflight(
    config: Annotated[Path, typer.Option(help="This party's configuration file.")],
    role: Annotated[
        RoleName | None, typer.Option(help="Default: the configuration's `role`.")
    ] = None,
) -> None:
    """Check files, columns, IDs, certificates, address and, if the peer is up, the agreement."""
    from florist.api.preflight import preflight as check_all  # noqa: PLC0415

    checks = check_all(config, on_check=_print_check, role=role)
    if not all(check.passed for check in checks):
        raise typer.Exit(2)


def _print_check(check: Check) -> None:
    failed = "[dim]-[/]" if check.skipped else "[red]✗[/]"
    out.print("[green]✓[/]" if check.passed else failed, end=" ")
    examples = f" (for example {check.examples})" if check.examples and out.is_terminal else ""
    out.print(
        f"{check.name}: {check.message}{examples}", markup=False, highlight=False, soft_wrap=True
    )


@app.command()
def inspect(
    config: Annotated[Path, typer.Option(help="This party's configuration file.")],
) -> None:
    """Show how the columns of your tables are read, and what looks like a mistake.

    The output quotes values of your tables: it is for you only. The line about the IDs quotes none;
    compare it with your peer's before you align.
    """
    from florist.cli.inspect import inspect_tables  # noqa: PLC0415
    from florist.common.settings.loader import load_config  # noqa: PLC0415

    warnings = inspect_tables(load_config(config), out)
    out.print(f"{warnings} warning{'' if warnings == 1 else 's'}", highlight=False)


@app.command()
def doctor(
    config: Annotated[Path | None, typer.Option(help="This party's configuration file.")] = None,
    log: Annotated[
        list[Path] | None, typer.Option(help="A log file of this party; repeatable.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write the report to this file instead of printing it.")
    ] = None,
) -> None:
    """Describe this installation and your setup for a support request, without private data.

    Contains no keys, IDs, values, names, paths or host names. Read it before you send it.
    """
    from florist.api.doctor.report import doctor as describe  # noqa: PLC0415
    from florist.common.transport.certificate_files import write_file  # noqa: PLC0415

    text = describe(config, log or [])
    if output is None:
        typer.echo(text, nl=False)
        return
    write_file(output, text.encode(), mode=0o600)
    out.print(f"[green]✓[/] {output}: read it before you send it", soft_wrap=True)


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


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def supervise(
    command: Annotated[
        list[str],
        typer.Argument(help="The command, after `--`: florist-party --role ROLE --config FILE …"),
    ],
    restarts: Annotated[
        int, typer.Option(min=0, help="Restarts in succession before giving up.")
    ] = 20,
    log_format: Annotated[LogFormat, typer.Option(help="As for florist-party.")] = LogFormat.auto,
) -> None:
    """Run a party, and start it again if it ends with an exit code that a restart can resolve.

    Ends with the party's last exit code. For containers and other places without a supervisor that
    knows exit codes. SIGTERM and SIGINT end the party, which is then not started again.
    """
    from florist.cli.supervise import Restarts  # noqa: PLC0415
    from florist.cli.supervise import supervise as run_supervised  # noqa: PLC0415

    set_up_output(log_format, verbose=False)
    raise typer.Exit(run_supervised(command, Restarts(restarts)))


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
def verify(run: Annotated[Path, typer.Argument(help="A run directory.")]) -> None:
    """Check that no file of a run is damaged or lost, without changing anything.

    Prints one line per problem, with the consequence and what to do. Exit code 2 if there are any.
    """
    from florist.api.verify import verify_run  # noqa: PLC0415

    found = verify_run(run)
    for problem in found.problems:
        out.print("[red]✗[/]", problem, highlight=False, soft_wrap=True)
    if found.unverified:
        names = ", ".join(found.unverified)
        out.print(f"Not verified, since they have no digest: {names}", soft_wrap=True)
    if found.problems:
        raise typer.Exit(2)
    out.print(f"[green]✓[/] {found.files} files are as they were written", highlight=False)


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
def export(
    run: Annotated[Path, typer.Argument(help="A run directory, after training.")],
    output: Annotated[
        Path,
        typer.Option(help="The .onnx file to write; a .json file with the same name describes it."),
    ],
    export_format: Annotated[
        Literal["onnx"], typer.Option("--format", help="The format to export to.")
    ] = "onnx",
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
) -> None:
    """Export your half of the model for other programs, and check that it computes the same.

    The files contain the categories, ranges and quantiles of your table. Do not give them to your
    peer, who has the other half.
    """
    from florist.api.export import export_onnx  # noqa: PLC0415

    del export_format  # there is only one
    made = export_onnx(run, output, force=force)
    out.print(f"[green]✓[/] {made.model}: gives the same results as the original", soft_wrap=True)
    out.print(f"[green]✓[/] {made.description}: how its inputs are encoded", soft_wrap=True)


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
    target: Annotated[Path, typer.Option("--output", help="The .parquet or .csv file to write.")],
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


def main() -> NoReturn:
    """Run the command; an error becomes one line and an exit code."""
    set_up_output(LogFormat.auto, verbose=False)
    with stop_signals():
        raise SystemExit(reported(app))


def reported(command: Callable[[], object]) -> int:
    """Run a command, report its error, if any, and return the exit code."""
    try:
        command()
    except (FloristError, KeyboardInterrupt) as error:
        known = as_florist_error(error)
    except SystemExit as end:
        if end.code != Interrupted.exit_code:
            raise
        known = Interrupted("stopped by the operator")  # typer has caught KeyboardInterrupt
    else:
        return 0
    report_error(known)
    return known.exit_code
