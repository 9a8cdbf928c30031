"""Plots for reports: inline SVG that follows the page's light or dark scheme, and PNG files."""

from __future__ import annotations

import re
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING, Any, Literal

from florist.common.reports.html import PALETTE, Html, opening_tag, tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Draw = Callable[[Figure], None]

#: The light scheme's colours. In inline SVG they are replaced by the page's variables.
COLOUR = {name: light for name, (light, _) in PALETTE.items()}

_STYLE: dict[Any, Any] = {  # matplotlib types its keys as one long Literal
    "svg.fonttype": "none",
    "svg.hashsalt": "florist",
    "text.parse_math": False,
    "font.size": 10.5,
    "text.color": COLOUR["ink"],
    "axes.edgecolor": COLOUR["muted"],
    "axes.labelcolor": COLOUR["muted"],
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": COLOUR["rule"],
    "grid.linewidth": 0.6,
    "xtick.color": COLOUR["muted"],
    "ytick.color": COLOUR["muted"],
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 1.6,
}


def svg_plot(
    name: str,
    caption: str,
    label: str,
    draw: Draw,
    *,
    width: float = 4.4,
    height: float = 2.8,
) -> Html:
    """Make a figure with a caption; sizes are in inches. `label` describes it to screen readers."""
    drawn = StringIO()
    with _house_style():
        no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure = _drawn(draw, width, height)
        figure.savefig(drawn, format="svg", transparent=True, metadata=no_metadata)
    svg = _embedded(drawn.getvalue(), name, label)
    return tag("figure", svg, tag("figcaption", caption))


def save_png(path: Path, draw: Draw, *, width: float, height: float) -> None:
    """Save a plot as a PNG file, in the light scheme."""
    with _house_style():
        figure = _drawn(draw, width, height)
        figure.savefig(path, dpi=144, facecolor=COLOUR["paper"], metadata={"Software": None})


def whole_numbers(axes: Axes, which: Literal["x", "y"], most: int | None = None) -> None:
    """Label an axis with whole numbers only, at most about `most` of them."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - takes most of a second

    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(most or "auto", integer=True))


@contextmanager
def _house_style() -> Iterator[None]:
    import matplotlib as mpl  # noqa: PLC0415 - takes most of a second

    with mpl.rc_context():
        mpl.rcdefaults()  # ignore the user's own style
        mpl.rcParams.update(_STYLE)
        yield


def _drawn(draw: Draw, width: float, height: float) -> Figure:
    from matplotlib.figure import Figure  # noqa: PLC0415 - takes most of a second

    figure = Figure(figsize=(width, height), layout="constrained")
    draw(figure)
    return figure


def _embedded(svg: str, name: str, label: str) -> Html:
    """Return the `<svg>` element for use inside a page, with the page's fonts and colours.

    IDs get the prefix `name`, because several plots share the page.
    """
    opening = re.search(r'<svg [^>]*viewBox="([\d. ]+)"[^>]*>', svg)
    assert opening, "matplotlib wrote no <svg> element"
    body = svg[opening.end() :].replace("xlink:href", "href")
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r" font-family: [^;\"]*;", "", body)
    body = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", body)
    for role, colour in COLOUR.items():
        body = body.replace(colour, f"var(--{role})")
    start = opening_tag(
        "svg", xmlns="http://www.w3.org/2000/svg", viewBox=opening[1], role="img", aria_label=label
    )
    return Html(start + body.rstrip())
