"""Plots like the paper's: lines by ratio of synthetic data, number of samples, or step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from florist.common.reports.plots import COLOUR, save_png, svg_plot, whole_numbers
from florist.experiments.paper.numbers import AUC_CHANGES, SAMPLES, DatasetName
from florist.experiments.paper.recipes import (
    FLORIST,
    FULL,
    METHODS,
    PARTIAL,
    Condition,
    Lacking,
    RecipeKind,
    baseline_full,
    sampled_labels,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from matplotlib.figure import Figure

    from florist.common.reports.html import Html
    from florist.common.training.history import EpochFigures
    from florist.experiments.paper.recipes import Recipe
    from florist.experiments.paper.results import Results, What

OURS, PAPERS = "measured here", "the paper"

#: Size in inches.
WIDTH, HEIGHT = 4.6, 3.5


@dataclass(frozen=True, slots=True)
class Line:
    """The line of a method or a source: y by x, in the order of x."""

    name: str
    points: Mapping[float, float]
    #: Standard deviations, if there are several seeds.
    spreads: Mapping[float, float] = field(default_factory=dict)
    #: Whether to draw no markers.
    smooth: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """The contents of one plot."""

    #: Name of the file, and prefix of element IDs in a page.
    name: str
    caption: str
    x: str
    y: str
    lines: tuple[Line, ...]
    #: Name and value of a horizontal line: an upper bound, or chance.
    level: tuple[str, float] | None = None


def plots_of(recipe: Recipe, results: Results) -> list[Plot]:
    """Return the plots of a recipe; none if nothing was measured."""
    found = {
        RecipeKind.attack_table: _attacks,
        RecipeKind.change_table: _change,
        RecipeKind.samples_table: _samples,
        RecipeKind.utility: _utility,
        RecipeKind.convergence: _convergence,
    }[recipe.kind](recipe, results)
    return [plot for plot in found if any(line.points for line in plot.lines)]


def as_picture(plot: Plot) -> Html:
    """Render a plot for the HTML report."""
    lines = "; ".join(
        f"{line.name} from {_first(line):.3f} to {_last(line):.3f}"
        for line in plot.lines
        if line.points
    )
    label = f"Line plot of {plot.y} over {plot.x}: {lines}."
    return svg_plot(
        plot.name, plot.caption, label, lambda f: _draw(f, plot), width=WIDTH, height=HEIGHT
    )


def write_png(plot: Plot, folder: Path) -> Path:
    """Write a plot to a PNG file."""
    path = folder / f"{plot.name}.png"
    save_png(path, lambda figure: _draw(figure, plot), width=WIDTH, height=HEIGHT)
    return path


# --- contents ---


def _attacks(recipe: Recipe, results: Results) -> Iterator[Plot]:
    """Plot other ratios than the paper's, if they were measured for other recipes."""
    lines = [
        _by_ratio(results, recipe.dataset, recipe.lacking, method, "attack_auc")
        for method in METHODS[recipe.lacking]
    ]
    if any(len(line.points) > 1 for line in lines):
        symbol = recipe.lacking.symbol
        caption = f"The same attack by {symbol}; 0.5 is chance, lower values also reveal data."
        x = f"{symbol}, ratio of synthetic data"
        yield Plot(recipe.name, caption, x, "attack AUC", tuple(lines), ("chance", 0.5))


def _utility(recipe: Recipe, results: Results) -> Iterator[Plot]:
    symbol = recipe.lacking.symbol
    captions = {
        "auc": f"AUC on the test rows by {symbol}: higher is better.",
        "ace": f"ACE on the test rows by {symbol}: lower is better.",
    }
    whats: tuple[What, ...] = ("auc", "ace")
    for what in whats:
        lines = [
            _by_ratio(results, recipe.dataset, recipe.lacking, method, what)
            for method in (PARTIAL, *METHODS[recipe.lacking])
        ]
        full = results.find(baseline_full(recipe.dataset), what)
        level = None if full is None else (FULL, full.value)
        x = f"{symbol}, ratio of synthetic data"
        yield Plot(f"{recipe.name}-{what}", captions[what], x, what.upper(), tuple(lines), level)


def _by_ratio(
    results: Results, dataset: DatasetName, lacking: Lacking, method: str, what: What
) -> Line:
    figures = {
        ratio: figure
        for ratio in results.ratios(dataset, lacking, method)
        if (figure := results.find(Condition(dataset, lacking, method, ratio), what))
    }
    return Line(
        method,
        {ratio: figure.value for ratio, figure in figures.items()},
        {ratio: figure.spread for ratio, figure in figures.items() if figure.spread is not None},
    )


def _change(recipe: Recipe, results: Results) -> Iterator[Plot]:
    group = results.on(recipe.dataset, Lacking.both)
    measured = group.changes(FLORIST)
    yield Plot(
        recipe.name,
        "Change of the AUC against baseline-partial; above 0, FLORIST is better.",
        f"{recipe.lacking.symbol}, ratio of synthetic data",
        "change of AUC, %",
        (Line(OURS, measured), Line(PAPERS, AUC_CHANGES[recipe.dataset])),
        (PARTIAL, 0.0),
    )


def _samples(recipe: Recipe, results: Results) -> Iterator[Plot]:
    numbers = sorted(
        condition.samples
        for condition in results
        if condition == sampled_labels(recipe.dataset, condition.samples)
    )
    columns: tuple[tuple[What, str, str], ...] = (
        ("auc", "AUC on the test rows: more labels, less noise.", "AUC"),
        (
            "attack_auc",
            "Attack AUC: how well averaged labels are distinguished from real ones.",
            "attack AUC",
        ),
    )
    for what, caption, y in columns:
        measured = {
            float(number): figure.value
            for number in numbers
            if (figure := results.find(sampled_labels(recipe.dataset, number), what))
        }
        papers = {float(number): getattr(figures, what) for number, figures in SAMPLES.items()}
        lines = (Line(OURS, measured), Line(PAPERS, papers))
        yield Plot(f"{recipe.name}-{what.replace('_', '-')}", caption, "labels averaged", y, lines)


def _convergence(recipe: Recipe, results: Results) -> Iterator[Plot]:
    ratios = results.ratios(recipe.dataset, recipe.lacking, FLORIST)
    trials = {
        f"{recipe.lacking.symbol} = {ratio}": results.trials(
            Condition(recipe.dataset, recipe.lacking, FLORIST, ratio)
        )[0]
        for ratio in ratios
    }
    yield Plot(
        f"{recipe.name}-training-loss",
        "Training loss by step, synthetic labels included.",
        "fraction of the training",
        "training loss",
        tuple(
            Line(
                name,
                {step / max(trial.losses): loss for step, loss in trial.losses.items()},
                smooth=True,
            )
            for name, trial in trials.items()
        ),
    )
    whats: tuple[tuple[str, Callable[[EpochFigures], float | None], str], ...] = (
        ("test loss", lambda figures: figures.log_loss, "Log loss on the test rows by epoch."),
        ("test AUC", lambda figures: figures.auc, "AUC on the test rows by epoch."),
    )
    for y, value_of, caption in whats:
        lines = tuple(
            Line(
                name,
                {
                    float(figures.epoch + 1): value
                    for figures in trial.epochs
                    if (value := value_of(figures)) is not None
                },
            )
            for name, trial in trials.items()
        )
        name = f"{recipe.name}-{y.lower().replace(' ', '-')}"
        yield Plot(name, caption, "epoch", y, lines)


# --- drawing ---

_MARKERS = "osD^vP*X"


def _draw(figure: Figure, plot: Plot) -> None:
    axes = figure.subplots()
    if plot.level is not None:
        name, value = plot.level
        axes.axhline(value, color=COLOUR["muted"], linewidth=1.2, linestyle="--", label=name)
    others = [line for line in plot.lines if line.name != PARTIAL]
    for line in plot.lines:
        if not line.points:
            continue
        number = others.index(line) if line in others else None
        colour = COLOUR["ink" if number is None else f"line{number % 8 + 1}"]
        xs, ys = list(line.points), list(line.points.values())
        axes.errorbar(
            xs,
            ys,
            [line.spreads.get(x, 0.0) for x in xs] if line.spreads else None,
            color=colour,
            linewidth=1.3,
            linestyle=":" if line.name == PAPERS else "-",
            marker="" if line.smooth else "x" if number is None else _MARKERS[number % 8],
            markersize=4,
            capsize=2,
            label=line.name,
        )
    axes.set_xlabel(plot.x)
    axes.set_ylabel(plot.y)
    if plot.x in {"epoch", "labels averaged"}:
        whole_numbers(axes, "x")
    figure.legend(loc="outside lower center", ncols=3, fontsize=7.5, handlelength=2.4)


def _first(line: Line) -> float:
    return next(iter(line.points.values()))


def _last(line: Line) -> float:
    return list(line.points.values())[-1]
