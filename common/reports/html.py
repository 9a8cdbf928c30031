"""Self-contained HTML pages: markup that is escaped by default, and one style sheet.

Pages load no external resource, and reports contain no script; their content security policy
forbids both.
Plots are in `plots.py`, so that pages without plots do not load matplotlib.
"""

from __future__ import annotations

import html
from base64 import b64encode
from hashlib import sha256
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


def figures_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, stacks: bool = False
) -> Html:
    """Make a table of numbers; the first cell of each row is its heading.

    A table with many columns `stacks`: on a narrow screen, the cells of a row are below each other,
    each with the heading of its column.
    """
    head = tag("tr", *(tag("th", text, scope="col") for text in heads))
    cell_of = _labelled_cell if stacks else _plain_cell
    body = (
        tag("tr", tag("th", first, scope="row"), *map(cell_of, heads[1:], cells))
        for first, *cells in rows
    )
    look = "figures stacks" if stacks else "figures"
    table = tag("table", tag("thead", head), tag("tbody", *body), class_=look)
    return tag("div", table, class_="scrolls")


def _plain_cell(_label: str, text: str) -> Html:
    return tag("td", text)


def _labelled_cell(label: str, text: str) -> Html:
    """Make a cell that knows its column; only texts may be broken into lines, not numbers."""
    look = {"class_": "number"} if text[:1].isdigit() else {}
    return tag("td", text, data_label=label, **look)


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


def page(title: str, *parts: Html, script: str = "") -> str:
    """Make a complete, self-contained file of these parts.

    `script` is the only one that the page's policy allows to run; it cannot load anything.
    """
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    if script:
        digest = b64encode(sha256(script.encode()).digest()).decode()
        policy += f"; script-src 'sha256-{digest}'"
    head = markup(
        Html(opening_tag("meta", http_equiv="Content-Security-Policy", content=policy)),
        tag("style", Html(stylesheet())),
    )
    last = (Html(f"<script>{script}</script>"),) if script else ()
    return document(title, head, *parts, *last)


#: Makes the buttons of `code_block` work. A page that is not on this machine and has no TLS may not
#: use the clipboard's interface, but may copy what is selected.
COPY_SCRIPT = """
for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("pre");
    let copied = true;
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      getSelection().selectAllChildren(code);
      copied = document.execCommand("copy");
    }
    button.textContent = copied ? "Copied" : "Select and copy";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}
"""


def code_block(text: str) -> Html:
    """Show a command with a button that copies it, if the page has `COPY_SCRIPT`."""
    button = tag("button", "Copy", type="button", class_="copy", hidden="")
    lines = Html("\n".join(markup(line) for line in text.split("\n")))
    return tag("div", tag("pre", lines), button, class_="code")


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
main{max-width:66rem;margin:0 auto;padding:1.5rem 1rem 3rem}
h1{font-size:1.7rem;line-height:1.2;margin:0}
h2{font-size:1.2rem;margin:2.5rem 0 .75rem;padding-bottom:.3rem;border-bottom:1px solid var(--rule)}
h3{font-size:1rem;margin:0}
p{max-width:46rem;margin:.5rem 0}
a{color:var(--accent)}
.muted,figcaption{color:var(--muted);font-size:.875rem}
.conclusion{background:var(--panel);border-left:.25rem solid var(--accent);border-radius:.25rem;
 padding:.5rem 1rem;margin:1.25rem 0}
.conclusion p{max-width:none}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(15rem,45%),1fr));
 gap:.75rem;margin:0}
.cards>div{background:var(--panel);border-radius:.5rem;padding:.75rem}
.cards dt{color:var(--muted);font-size:.875rem}
.cards dd{margin:0}
.cards dt+dd{font-size:clamp(1.1rem,4.5vw,1.45rem);font-weight:600;line-height:1.3}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(25rem,100%),1fr));
 gap:1.25rem 2rem;align-items:start}
figure{margin:0;break-inside:avoid}
svg{display:block;width:100%;height:auto;max-width:31rem;stroke-linejoin:round}
.wide svg{max-width:36rem}
.scrolls{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9375rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem min(.5rem,1.2vw);border-bottom:1px solid var(--rule);text-align:left;
 vertical-align:top}
th{font-weight:500}
thead th{color:var(--muted);font-size:.875rem;overflow-wrap:normal}
.figures tbody th{overflow-wrap:normal}
.figures td,.figures thead th+th{text-align:right}
.figures td{white-space:nowrap}
.figures.stacks td:not(.number){white-space:normal;overflow-wrap:normal}
.facts{max-width:44rem}
.facts th{min-width:7rem}
pre{background:var(--panel);border-radius:.5rem;padding:.75rem;margin:.5rem 0;overflow-x:auto;
 font:.875rem/1.5 ui-monospace,Menlo,Consolas,monospace}
.code{display:flex;flex-direction:column-reverse}
.code pre{white-space:pre-wrap}
.code button{align-self:flex-end;font:inherit;font-size:.875rem;padding:.1rem .75rem;cursor:pointer;
 color:var(--ink);background:var(--paper);border:1px solid var(--rule);border-radius:.375rem}
[hidden]{display:none!important}
.grid+*{margin-top:1.25rem}
details{margin:.75rem 0}
summary{cursor:pointer;color:var(--muted);font-size:.875rem}
footer{margin-top:3rem;padding-top:.75rem;border-top:1px solid var(--rule)}
@media (max-width:40rem){
.stacks thead{position:absolute;clip-path:inset(50%);width:1px;height:1px;overflow:hidden}
.stacks,.stacks tbody,.stacks tr,.stacks th,.stacks td{display:block}
.stacks tr{padding:.5rem 0;border-bottom:1px solid var(--rule)}
.stacks th,.stacks td{padding:.1rem 0;border:0}
.stacks tbody th{font-weight:600}
.stacks td{display:flex;justify-content:space-between;gap:1rem}
.stacks td:empty{display:none}
.stacks td::before{content:attr(data-label);color:var(--muted);text-align:left;flex:none}
}"""
