"""Self-contained HTML pages: markup that is escaped by default, and one style sheet.

Pages contain no script and load no external resource; their content security policy forbids both.
Plots are in `plots.py`, so that pages without plots do not load matplotlib.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Colours of the page in the light scheme, and in the dark one.
PALETTE = {
    "paper": ("#ffffff", "#14181f"),
    "panel": ("#f4f6f9", "#1d232d"),
    "ink": ("#1b222c", "#e3e8ef"),
    "muted": ("#586374", "#9aa6b6"),
    "rule": ("#d8dee7", "#343d4b"),
    "accent": ("#1f6fb5", "#63b0f2"),
    "pale": ("#9fc3e4", "#4878a6"),
    # Lines that share a plot; their markers distinguish them too.
    "line1": ("#0072c3", "#4ea8ff"),
    "line2": ("#d1590a", "#ff9a52"),
    "line3": ("#1a8a4a", "#4fd08a"),
    "line4": ("#c2255c", "#ff7aa8"),
    "line5": ("#7a3fc7", "#b99aff"),
    "line6": ("#8a6d00", "#e0c040"),
    "line7": ("#00838a", "#41cfd6"),
    "line8": ("#5c4a3d", "#c4ab98"),
}

# --- markup ---


class Html(str):
    """Finished markup. Any other text is escaped when it is joined with markup."""

    __slots__ = ()


def markup(*parts: str) -> Html:
    """Join the parts, escaping those that are not markup."""
    return Html("".join(part if isinstance(part, Html) else _escaped(part) for part in parts))


def _escaped(text: str) -> str:
    """Escape a text or attribute; replace characters that are not printable or change direction."""
    return html.escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text))


def tag(name: str, *children: str, **attributes: str) -> Html:
    """Make an element. A trailing `_` in an attribute's name is dropped, others become `-`."""
    return Html(f"{opening_tag(name, **attributes)}{markup(*children)}</{name}>\n")


def opening_tag(name: str, **attributes: str) -> str:
    """Make the start of an element."""
    shown = (
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{''.join(shown)}>"


def titled_section(title: str, body: Html) -> Html:
    """Make a section with a heading, which links can point at."""
    anchor = title.lower().replace(" ", "-")
    return tag("section", tag("h2", title, id=anchor), body, aria_labelledby=anchor)


def card(label: str, value: str, note: str = "") -> Html:
    """Make an entry of a `<dl class="cards">`: a large value with its label and a note."""
    below = tag("dd", note, class_="muted") if note else ""
    return tag("div", tag("dt", label), tag("dd", value), below)


def figures_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """Make a table of numbers; the first cell of each row is its heading."""
    head = tag("tr", *(tag("th", text, scope="col") for text in heads))
    body = (
        tag("tr", tag("th", first, scope="row"), *(tag("td", cell) for cell in cells))
        for first, *cells in rows
    )
    return tag("table", tag("thead", head), tag("tbody", *body), class_="figures")


def facts_table(facts: dict[str, str]) -> Html:
    """Make a table of two columns, name and value."""
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
    """Make a complete, self-contained file of these parts."""
    return document(title, markup(_POLICY, tag("style", Html(stylesheet()))), *parts)


def document(title: str, head: Html, *parts: Html) -> str:
    """Make a complete page whose style, scripts and policy are given in `head`."""
    whole_head = tag("head", _HEAD, head, tag("title", title))
    body = tag("body", tag("main", *parts))
    return f'<!DOCTYPE html>\n<html lang="en">\n{whole_head}\n{body}\n</html>\n'


def stylesheet() -> str:
    """Return the style sheet of all pages."""
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
