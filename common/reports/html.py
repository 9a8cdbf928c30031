"""Pages that need nothing but themselves: markup that cannot be injected, pictures, one style.

Pictures are inline SVG whose colours are the page's own, so that they follow its light or dark
scheme. No script, no resource from elsewhere; the page's own policy forbids both.
"""

from __future__ import annotations

import html
import re
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    Draw = Callable[[Figure], None]


# --- markup ---


class Html(str):
    """Finished markup. Every other text is escaped where it meets some."""

    __slots__ = ()


def markup(*parts: str) -> Html:
    return Html("".join(part if isinstance(part, Html) else _escaped(part) for part in parts))


def _escaped(text: str) -> str:
    """As text or attribute; without what cannot be printed, or turns the direction of writing."""
    return html.escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text))


def tag(name: str, *children: str, **attributes: str) -> Html:
    return Html(f"{_opening(name, **attributes)}{markup(*children)}</{name}>\n")


def _opening(name: str, **attributes: str) -> str:
    shown = (
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{''.join(shown)}>"


def titled_section(title: str, body: Html) -> Html:
    anchor = title.lower().replace(" ", "-")
    return tag("section", tag("h2", title, id=anchor), body, aria_labelledby=anchor)


def card(label: str, value: str, note: str = "") -> Html:
    below = tag("dd", note, class_="muted") if note else ""
    return tag("div", tag("dt", label), tag("dd", value), below)


def figures_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """Figures in columns; the first cells name their rows."""
    head = tag("tr", *(tag("th", text, scope="col") for text in heads))
    body = (
        tag("tr", tag("th", first, scope="row"), *(tag("td", cell) for cell in cells))
        for first, *cells in rows
    )
    return tag("table", tag("thead", head), tag("tbody", *body), class_="figures")


def facts_table(facts: dict[str, str]) -> Html:
    rows = (
        tag("tr", tag("th", key, scope="row"), tag("td", value)) for key, value in facts.items()
    )
    return tag("table", tag("tbody", *rows), class_="facts")


_HEAD = Html("""
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
""")
_POLICY = Html("""
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'">
""")


def page(title: str, *parts: Html) -> str:
    """A whole file: these parts, one below the other."""
    return document(title, markup(_POLICY, tag("style", Html(stylesheet()))), *parts)


def document(title: str, head: Html, *parts: Html) -> str:
    """As `page`, of which `head` says where style and scripts are, and who forbids others."""
    whole_head = tag("head", _HEAD, head, tag("title", title))
    body = tag("body", tag("main", *parts))
    return f'<!DOCTYPE html>\n<html lang="en">\n{whole_head}\n{body}\n</html>\n'


def stylesheet() -> str:
    """The style of all pages."""
    light, dark = (
        "".join(f"--{name}:{colours[scheme]};" for name, colours in PALETTE.items())
        for scheme in (0, 1)
    )
    return (
        f"\n:root{{{light}}}\n@media (prefers-color-scheme: dark){{:root{{{dark}}}}}\n{_LAYOUT}\n"
    )


_LAYOUT = """\
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
 font:1rem/1.5 system-ui,"Segoe UI",Roboto,Helvetica,Arial,sans-serif;overflow-wrap:anywhere}
main{max-width:62rem;margin:0 auto;padding:1.5rem 1rem 3rem}
h1{font-size:1.7rem;line-height:1.2;margin:0}
h2{font-size:1.2rem;margin:2.5rem 0 .75rem;padding-bottom:.3rem;border-bottom:1px solid var(--rule)}
h3{font-size:1rem;margin:0}
p{max-width:44rem;margin:.5rem 0}
.muted,figcaption{color:var(--muted);font-size:.875rem}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(15rem,45%),1fr));
 gap:.75rem;margin:0}
.cards>div{background:var(--panel);border-radius:.5rem;padding:.75rem}
.cards dt{color:var(--muted);font-size:.875rem}
.cards dd{margin:0}
.cards dt+dd{font-size:clamp(1.1rem,4.5vw,1.45rem);font-weight:600;line-height:1.3}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(20rem,100%),1fr));
 gap:1.25rem 2rem;align-items:start}
figure{margin:0;break-inside:avoid}
svg{display:block;width:100%;height:auto;max-width:34rem;stroke-linejoin:round}
table{border-collapse:collapse;width:100%;font-size:.9375rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem min(.5rem,1.2vw);border-bottom:1px solid var(--rule);text-align:left;
 vertical-align:top}
th{font-weight:500}
thead th{color:var(--muted);font-size:.875rem;overflow-wrap:normal}
.figures td,.figures thead th+th{text-align:right}
.figures td{white-space:nowrap}
.facts{max-width:44rem}
.facts th{min-width:7rem}
.grid+*{margin-top:1.25rem}
summary{cursor:pointer;color:var(--muted);font-size:.875rem}
footer{margin-top:3rem;padding-top:.75rem;border-top:1px solid var(--rule)}"""


# --- pictures ---

#: Colours of the page in the light scheme, and in the dark one.
PALETTE = {
    "paper": ("#ffffff", "#14181f"),
    "panel": ("#f4f6f9", "#1d232d"),
    "ink": ("#1b222c", "#e3e8ef"),
    "muted": ("#586374", "#9aa6b6"),
    "rule": ("#d8dee7", "#343d4b"),
    "accent": ("#1f6fb5", "#63b0f2"),
    "pale": ("#9fc3e4", "#4878a6"),
    # Lines that share a plot; their markers tell them apart too.
    "line1": ("#0072c3", "#4ea8ff"),
    "line2": ("#d1590a", "#ff9a52"),
    "line3": ("#1a8a4a", "#4fd08a"),
    "line4": ("#c2255c", "#ff7aa8"),
    "line5": ("#7a3fc7", "#b99aff"),
    "line6": ("#8a6d00", "#e0c040"),
    "line7": ("#00838a", "#41cfd6"),
    "line8": ("#5c4a3d", "#c4ab98"),
}
COLOUR = {name: light for name, (light, _) in PALETTE.items()}

_STYLE: dict[Any, Any] = {  # matplotlib types its keys as one long Literal
    "svg.fonttype": "none",
    "svg.hashsalt": "florist",
    "text.parse_math": False,
    "font.size": 8.5,
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
}


def picture(
    name: str,
    caption: str,
    label: str,
    draw: Draw,
    *,
    width: float = 4.4,
    height: float = 2.5,
) -> Html:
    """A picture, its size in inches, with its caption; `label` is for those who cannot see it."""
    drawn = StringIO()
    with _house_style():
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        _drawn(draw, width, height).savefig(drawn, format="svg", transparent=True, metadata=nothing)
    svg = _embedded(drawn.getvalue(), name, label)
    return tag("figure", svg, tag("figcaption", caption))


def save_png(path: Path, draw: Draw, *, width: float, height: float) -> None:
    """The same as a file of its own, in the light scheme."""
    with _house_style():
        figure = _drawn(draw, width, height)
        figure.savefig(path, dpi=144, facecolor=COLOUR["paper"], metadata={"Software": None})


@contextmanager
def _house_style() -> Iterator[None]:
    with mpl.rc_context():
        mpl.rcdefaults()  # whatever the user's own style
        mpl.rcParams.update(_STYLE)
        yield


def _drawn(draw: Draw, width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    draw(figure)
    return figure


def _embedded(svg: str, name: str, label: str) -> Html:
    """The `<svg>` element for use inside a page: its size, fonts and colours are the page's.

    IDs begin with `name`, because several pictures share the page.
    """
    opening = re.search(r'<svg [^>]*viewBox="([\d. ]+)"[^>]*>', svg)
    assert opening, "matplotlib wrote no svg element"
    body = svg[opening.end() :].replace("xlink:href", "href")
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r" font-family: [^;\"]*;", "", body)
    body = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", body)
    for role, colour in COLOUR.items():
        body = body.replace(colour, f"var(--{role})")
    start = _opening(
        "svg", xmlns="http://www.w3.org/2000/svg", viewBox=opening[1], role="img", aria_label=label
    )
    return Html(start + body.rstrip())
