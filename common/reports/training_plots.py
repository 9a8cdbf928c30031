"""The plots of a training report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from florist.common.reports.plots import COLOUR, svg_plot, whole_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

    from florist.common.reports.html import Html

#: A plot of losses has at most two points for each of these intervals: its lowest and highest loss.
INTERVALS = 750
#: Points of the smoothed line; each is the mean over a fiftieth of the run.
SMOOTHED_POINTS = 500


def draw_steps(
    figure: Figure, steps: npt.NDArray[np.intp], losses: npt.NDArray[np.float64], window: int
) -> None:
    """Draw the loss of each step and its moving average."""
    axes = figure.subplots()
    kept = thinned(losses)
    axes.plot(steps[kept], losses[kept], color=COLOUR["pale"], linewidth=0.7, label="each step")
    if window > 1:
        line = np.unique(np.linspace(0, len(losses) - 1, SMOOTHED_POINTS).astype(np.intp))
        smooth = smoothed(losses, window)
        axes.plot(steps[line], smooth[line], color=COLOUR["accent"], linewidth=2, label="mean")
        axes.legend(loc="upper right")
    axes.set_xlabel("training step")
    axes.set_ylabel("loss")
    whole_numbers(axes, "x", 6)
    axes.xaxis.set_major_formatter("{x:,.0f}")


def draw_epochs(figure: Figure, values: dict[int, float], name: str) -> None:
    """Draw a figure over the epochs."""
    axes = figure.subplots()
    axes.plot(list(values), list(values.values()), "o-", color=COLOUR["accent"], markersize=4)
    axes.set_xlabel("epoch")
    axes.set_ylabel(name)
    axes.margins(y=0.15)
    whole_numbers(axes, "x")


def draw_calibration(
    figure: Figure, predicted: npt.NDArray[np.float64], observed: npt.NDArray[np.float64]
) -> None:
    """Draw observed rates over predictions, beside the diagonal."""
    axes = figure.subplots()
    end = 1.05 * max(predicted.max(), observed.max())
    axes.plot([0, end], [0, end], "--", color=COLOUR["muted"], linewidth=0.9)
    axes.plot(predicted, observed, "o-", color=COLOUR["accent"], markersize=4)
    axes.set_xlabel("predicted probability")
    axes.set_ylabel("observed rate")


def draw_counts(
    figure: Figure, predicted: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]
) -> None:
    """Draw the number of rows of each bin."""
    axes = figure.subplots()
    axes.vlines(predicted, 0, counts, color=COLOUR["accent"], linewidth=2.5)
    axes.set_ylim(0, 1.15 * counts.max())
    whole_numbers(axes, "y", 5)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlim(left=0)
    axes.set_xlabel("predicted probability")
    axes.set_ylabel("test rows")


def bar_chart(name: str, caption: str, parts: Mapping[str, float], shown: list[str]) -> Html:
    """Make a chart of horizontal bars, each followed by its value as text."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        bars = axes.barh(list(parts), list(parts.values()), color=COLOUR["accent"], height=0.6)
        axes.bar_label(bars, shown, padding=4)
        axes.set_xlim(0, 1.6 * max(*parts.values(), 1e-9))
        axes.invert_yaxis()
        axes.tick_params(left=False, bottom=False, labelbottom=False)
        axes.tick_params(axis="y", labelcolor=COLOUR["ink"])
        axes.spines[:].set_visible(False)
        axes.grid(visible=False)

    values = ", ".join(f"{part} {text}" for part, text in zip(parts, shown, strict=True))
    label = f"Bar chart: {values}."
    return svg_plot(name, caption, label, draw, height=0.4 + 0.36 * len(parts))


def thinned(losses: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Return the indices to plot: all, or those of the lowest and highest loss of each interval."""
    everything = np.arange(len(losses))
    if len(losses) <= 2 * INTERVALS:
        return everything
    kept = [
        interval[extreme(losses[interval])]
        for interval in np.array_split(everything, INTERVALS)
        for extreme in (np.argmin, np.argmax)
    ]
    return np.unique(kept)


def smoothed(losses: npt.NDArray[np.float64], window: int) -> npt.NDArray[np.float64]:
    """Return the mean over `window` steps (an odd number) around each; fewer at both ends."""
    sums = np.concatenate(([0.0], np.cumsum(losses)))
    indices = np.arange(len(losses))
    start = np.maximum(indices - window // 2, 0)
    stop = np.minimum(indices + window // 2 + 1, len(losses))
    means: npt.NDArray[np.float64] = (sums[stop] - sums[start]) / (stop - start)
    return means
