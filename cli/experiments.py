"""`florist experiments`: reproduce the paper, and measure the choice of the defaults."""

from __future__ import annotations

import os
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from florist.cli.console import LogFormat, set_up_output

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.table import Table

    from florist.experiments.grid import Failure
    from florist.experiments.paper.reproduction import Reproduction
    from florist.experiments.paper.results import Results

app = typer.Typer(
    no_args_is_help=True, help="Reproduce the paper's experiments and compare the results."
)


class ScaleName(StrEnum):
    """Keys of `SCALES`."""

    small = "small"
    paper = "paper"


@app.command("list")
def list_recipes() -> None:
    """List the recipes: one for each table and figure of the paper that shows measurements."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - keeps --help fast
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from florist.experiments.paper.recipes import RECIPES, SCALES, count_trials  # noqa: PLC0415

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("recipe", "in the paper", "shows"):
        table.add_column(heading, no_wrap=heading == "recipe")
    table.add_column("trials", justify="right")
    for recipe in RECIPES.values():
        table.add_row(recipe.name, recipe.source, recipe.shows, count_trials([recipe]))
    table.add_section()
    table.add_row(
        "all", "", "all of the above; shared trials run once", count_trials(RECIPES.values())
    )
    table.caption = "trials at scale " + ", ".join(SCALES)
    Console().print(table)


@app.command()
def paper(
    recipe: Annotated[
        list[str] | None,
        typer.Option(help="A recipe of `florist experiments list`; repeatable. Default: all."),
    ] = None,
    scale: Annotated[
        ScaleName,
        typer.Option(help="small: half an hour on two cores; paper: full size, takes days."),
    ] = ScaleName.small,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="criteo=FILE or avazu=FILE: Kaggle's training file, or a sample of its rows; "
            "repeatable. Default: generated data."
        ),
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder for the report and all results.")] = Path(
        "paper-experiments"
    ),
    jobs: Annotated[int, typer.Option(min=0, help="Parallel trials; 0: one per core.")] = 0,
) -> None:
    """Reproduce the paper's tables and figures: writes report.html, plots and all numbers.

    If the command is interrupted, run it again to resume.
    """
    from florist.experiments.paper.recipes import SCALES, chosen  # noqa: PLC0415 - keeps --help fast
    from florist.experiments.paper.reproduction import parse_files, reproduce  # noqa: PLC0415

    progress = set_up_output(LogFormat.auto, verbose=False)
    recipes, files = chosen(recipe or []), parse_files(data or [])
    workers = jobs or len(os.sched_getaffinity(0))
    print_reproduction(reproduce(recipes, SCALES[scale], files, output, workers, progress))


def print_reproduction(outcome: Reproduction) -> None:
    """Print which of the paper's conclusions hold, the report's path and the failed trials.

    Raises:
        typer.Exit: some trials failed.
    """
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast

    console = Console()
    console.print(_claims(outcome.study.results))
    console.print(f"Report: {outcome.report}")
    _exit_with(outcome.failures)


@app.command("default")
def choice_of_default(
    data: Annotated[
        Path | None,
        typer.Option(help="Criteo's training file, or a sample of its rows; default: generated."),
    ] = None,
    real: Annotated[
        Path | None,
        typer.Option(
            help="Folder with public data of two organisations: sba_loans, default_credit, "
            "diabetes130 and bank_marketing, each in a sub-folder; default: without them."
        ),
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder for the tables and all results.")] = Path(
        "default-experiments"
    ),
    jobs: Annotated[int, typer.Option(min=0, help="Parallel trials; 0: one per core.")] = 0,
    data_set: Annotated[
        list[str] | None,
        typer.Option(help="Only `clicks` or a data set of --real; repeatable. Default: all."),
    ] = None,
) -> None:
    """Measure what the choice of the defaults is based on: utility against the strongest attack.

    Takes hours on two cores. If the command is interrupted, run it again to resume.
    """
    from florist.experiments.default_study import study_defaults  # noqa: PLC0415 - loads torch

    progress = set_up_output(LogFormat.auto, verbose=False)
    cores = len(os.sched_getaffinity(0))
    text, failures = study_defaults(data, real, output, jobs or cores, progress, data_set or ())
    typer.echo(text)
    _exit_with(failures)


@app.command("two-parties")
def runs_of_two_parties(
    real: Annotated[
        Path,
        typer.Option(
            help="Folder with public data of two organisations: sba_loans, default_credit, "
            "diabetes130 and bank_marketing, each in a sub-folder."
        ),
    ],
    output: Annotated[Path, typer.Option(help="Folder for the table and all results.")] = Path(
        "two-party-experiments"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds per data set.")] = 3,
    rows: Annotated[
        int | None,
        typer.Option(
            min=100,
            help="Rows to sample from each data set; default: all, but 60,000 of sba_loans.",
        ),
    ] = None,
    data_set: Annotated[
        list[str] | None, typer.Option(help="Only this data set; repeatable. Default: all four.")
    ] = None,
) -> None:
    """Train with two real processes and default settings; compare with what needs no union.

    Each seed splits the people between two parties, which align and train over mutual TLS on
    localhost. The same learner is trained on the people whom both parties have, and on the active
    party's own rows and features. If the command is interrupted, run it again to resume.
    """
    from florist.cli.party_processes import run_both_parties  # noqa: PLC0415 - loads torch
    from florist.common.core.errors import ConfigurationError  # noqa: PLC0415
    from florist.experiments.two_parties import (  # noqa: PLC0415
        DATA_SETS,
        Plan,
        TwoPartyStudy,
        as_markdown,
    )

    chosen = data_set or list(DATA_SETS)
    if unknown := [name for name in chosen if name not in DATA_SETS]:
        raise ConfigurationError(
            f"--data-set {unknown[0]}: unknown; choose one of: {', '.join(DATA_SETS)}"
        )
    plan = Plan({name: rows or DATA_SETS[name] for name in chosen}, tuple(range(seeds)))
    progress = set_up_output(LogFormat.auto, verbose=False)
    cores = len(os.sched_getaffinity(0))
    study = TwoPartyStudy(real, output, run_both_parties, cores, progress)
    typer.echo(as_markdown(study.results(plan)))
    _exit_with(study.failures)


@app.command("sizes")
def sizes_of_unions(
    epsilon: Annotated[float, typer.Option(min=0.001, help="ε of each union.")] = 1.0,
    delta: Annotated[float, typer.Option(min=0.0, max=1.0, help="δ of each union.")] = 1e-9,
    unions: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Number of unions with the same peer; repeatable."),
    ] = None,
    targets: Annotated[
        int, typer.Option(min=1, help="People whom the attacker tries in the same unions.")
    ] = 8,
) -> None:
    """Measure whether repeated unions reveal by their sizes whom the peer has.

    The attacker chooses the people that take part in each union. Counts are exact or private; the
    last column is what (nε, nδ)-privacy allows any attack to achieve.
    """
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - keeps --help fast
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from florist.common.core.errors import ConfigurationError  # noqa: PLC0415
    from florist.experiments.repeated_unions import (  # noqa: PLC0415
        HEADS,
        SizesPlan,
        as_rows,
        measure_sizes,
    )

    if not 0 < delta < 1:
        raise ConfigurationError("--delta: must be above 0 and below 1")
    plan = SizesPlan(epsilon, delta, targets=targets)
    if unions:
        plan = replace(plan, unions=tuple(sorted(set(unions))))
    table = Table(*HEADS, box=SIMPLE_HEAD, title="Folded AUC / TPR at 1% false positives")
    for row in as_rows(measure_sizes(plan)):
        table.add_row(*row)
    Console().print(table)


def _exit_with(failures: Iterable[Failure]) -> None:
    """Print failed trials; exit with code 1 if there are any."""
    failed = [f"✗ {failure}" for failure in failures]
    for line in failed:
        typer.secho(line, fg="red")
    if failed:
        raise typer.Exit(1)


def _claims(results: Results) -> Table:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - keeps --help fast
    from rich.table import Table  # noqa: PLC0415

    from florist.experiments.paper.claims import check_all  # noqa: PLC0415

    table = Table(title="The paper's conclusions", box=SIMPLE_HEAD)
    for heading in ("", "data", "conclusion", "measured"):
        table.add_column(heading)
    for claim, verdicts in check_all(results):
        for dataset, verdict in verdicts.items():
            if verdict.holds is not None:
                mark = "[green]✓[/]" if verdict.holds else "[red]✗[/]"
                table.add_row(mark, dataset, claim.text, verdict.evidence)
    return table
