"""`florist experiments`: the paper's tables and figures, measured again, and our own choice."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from florist.cli.console import LogFormat, set_up_output
from florist.common.settings.data import Table as TableFile
from florist.experiments.claims import check_all
from florist.experiments.recipes import RECIPES, SCALES, all_conditions, chosen

if TYPE_CHECKING:
    from collections.abc import Collection

    from florist.experiments.paper_results import Results
    from florist.experiments.recipes import Recipe

app = typer.Typer(
    no_args_is_help=True, help="Measure again what the paper reports, and show both side by side."
)


class ScaleName(StrEnum):
    """Keys of `SCALES`."""

    small = "small"
    paper = "paper"


@app.command("list")
def list_recipes() -> None:
    """Name the recipes: one for each table and figure of the paper that holds measurements."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("recipe", "in the paper", "shows"):
        table.add_column(heading, no_wrap=heading == "recipe")
    table.add_column("trials", justify="right")
    for recipe in RECIPES.values():
        table.add_row(recipe.name, recipe.source, recipe.shows, _trials([recipe]))
    table.add_section()
    table.add_row("all", "", "what several need, once", _trials(RECIPES.values()))
    table.caption = "trials at the scales " + ", ".join(SCALES)
    Console().print(table)


def _trials(recipes: Collection[Recipe]) -> str:
    return ", ".join(
        str(scale.seeds * len(all_conditions(recipes, scale))) for scale in SCALES.values()
    )


@app.command()
def paper(
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            help="A recipe of `florist experiments list`, again for more; all unless given."
        ),
    ] = None,
    scale: Annotated[
        ScaleName,
        typer.Option(help="small: half an hour on two cores; paper: its sizes, days of computing."),
    ] = ScaleName.small,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="criteo=FILE or avazu=FILE, again for both: Kaggle's training file or rows of it. "
            "What is not given is made up."
        ),
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder of the report and all results.")] = Path(
        "paper-experiments"
    ),
    jobs: Annotated[int, typer.Option(min=0, help="Trials at once; 0: one per core.")] = 0,
) -> None:
    """Measure the paper's tables and figures again: report.html, plots and all numbers.

    Started again, it runs only what is not there yet.
    """
    from florist.experiments.reproduction import (  # noqa: PLC0415 - loads torch
        parse_files,
        reproduce,
    )

    progress = set_up_output(LogFormat.auto, verbose=False)
    recipes, files = chosen(recipe or []), parse_files(data or [])
    workers = jobs or len(os.sched_getaffinity(0))
    outcome = reproduce(recipes, scale.value, files, output, workers, progress)
    console = Console()
    console.print(_claims(outcome.study.results))
    for failure in outcome.failures:
        console.print(f"✗ {failure}", style="red", markup=False)
    console.print(f"Report: {outcome.report}")
    if outcome.failures:
        raise typer.Exit(1)


@app.command("default")
def choice_of_default(
    data: Annotated[
        Path | None,
        typer.Option(help="Criteo's training file or rows of it; else people are made up."),
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder of the tables and all results.")] = Path(
        "default-experiments"
    ),
    jobs: Annotated[int, typer.Option(min=0, help="Trials at once; 0: one per core.")] = 0,
) -> None:
    """Measure what the choice of the defaults rests on: utility against the strongest attack.

    Takes hours on two cores; started again, it runs only what is not there yet.
    """
    from florist.experiments import front  # noqa: PLC0415 - loads torch
    from florist.experiments.people import Generated, PeopleSettings  # noqa: PLC0415
    from florist.experiments.trial import Audit  # noqa: PLC0415

    progress = set_up_output(LogFormat.auto, verbose=False)
    settings = (
        PeopleSettings(generated=Generated(people=120_000))
        if data is None
        else PeopleSettings(table=TableFile.model_validate({"path": data, "format": "criteo"}))
    )
    workers = jobs or len(os.sched_getaffinity(0))
    study = front.Study(settings, output / "trials", workers, progress)
    rows = study.rows(Audit(samples=100))
    text = front.as_markdown(rows)
    (output / "front.md").write_text(text, encoding="utf-8")
    for ratio in front.RATIOS:
        front.draw(rows, ratio, output / f"front-{ratio:g}.png")
    console = Console()
    console.print(text, markup=False)
    for failure in study.failures:
        console.print(f"✗ {failure}", style="red", markup=False)
    if study.failures:
        raise typer.Exit(1)


def _claims(results: Results) -> Table:
    table = Table(title="The paper's conclusions", box=SIMPLE_HEAD)
    for heading in ("", "data", "conclusion", "measured"):
        table.add_column(heading)
    for claim, verdicts in check_all(results):
        for dataset, verdict in verdicts.items():
            if verdict.holds is not None:
                mark = "[green]✓[/]" if verdict.holds else "[red]✗[/]"
                table.add_row(mark, dataset, claim.text, verdict.evidence)
    return table
