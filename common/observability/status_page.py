"""The live status page: its markup, which a script updates every second, its style, the script.

All are served by this party itself; the content security policy forbids anything else. The script
inserts texts as text, so a log line cannot become markup. When the run ends, the same page is
written to the run directory with its last values.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from florist.common.reports.html import (
    Html,
    document,
    markup,
    stylesheet,
    tag,
    titled_section,
)
from florist.common.reports.html import page as report_page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from florist.common.observability.snapshot import About

_HERE = Path(__file__).parent

SCRIPT = (_HERE / "status.js").read_bytes()

_LINKS = Html("""
<link rel="icon" href="data:,">
<link rel="stylesheet" href="status.css">
<script src="status.js" defer></script>
""")
_NO_SCRIPT = (
    "This page needs JavaScript; /metrics and /status.json have the same content without it."
)


def style() -> str:
    """Return the style sheet: the reports' and this page's own rules."""
    return stylesheet() + _own_style()


def _own_style() -> str:
    return (_HERE / "status.css").read_text(encoding="utf-8")


def page(about: About) -> str:
    """Return the whole page, without values."""
    return document(_title(about), _LINKS, *_body(about, tag("noscript", _banner(_NO_SCRIPT))))


def final_page(about: About, status: str, reports: Mapping[str, str]) -> str:
    """Return a page with the last status of a party: one file, whose script cannot load anything.

    Args:
        about: the party.
        status: the content of `/status.json`.
        reports: paths of reports by their titles, relative to the page.
    """
    links = [markup(tag("a", title, href=path), " ") for title, path in reports.items()]
    data = Html(status.replace("<", "\\u003c"))
    return report_page(
        _title(about),
        tag("style", Html(_own_style())),
        *_body(about, tag("p", *links, class_="links") if links else markup()),
        tag("script", data, type="application/json", id="final-status"),
        script=SCRIPT.decode(),
    )


def _title(about: About) -> str:
    return f"{about.party} · FLORIST"


def _body(about: About, note: Html) -> tuple[Html, ...]:
    return (
        _header(about),
        tag("p", id="silence", class_="banner", role="alert", hidden=""),
        note,
        _hidden_section("Progress", _progress()),
        _hidden_section("Requests", tag("dl", id="request-cards", class_="cards")),
        titled_section("Network", tag("dl", id="network-cards", class_="cards")),
        tag(
            "div",
            _hidden_section("Training", tag("div", id="curves")),
            _hidden_section("Self-audit", _audit()),
            class_="columns",
        ),
        titled_section("Log", tag("ol", id="log-lines", class_="log", tabindex="0")),
    )


def _banner(text: str) -> Html:
    return tag("p", text, class_="banner")


def _header(about: About) -> Html:
    peer = tag("span", about.peer, " ", tag("span", "…", id="peer-state"), class_="nowrap")
    return tag(
        "header",
        tag("h1", about.party, " ", tag("span", "…", id="state", class_="badge")),
        tag(
            "p",
            f"the {about.role} party · FLORIST {about.release} · ",
            tag("span", "…", id="uptime"),
            " · peer: ",
            peer,
            class_="muted",
        ),
        tag(
            "div",
            tag("p", tag("strong", "…", id="outcome-title")),
            tag("p", id="reason", hidden=""),
            tag("p", id="advice", class_="muted", hidden=""),
            tag("ul", id="results", hidden=""),
            id="outcome",
            class_="banner",
            role="status",
            hidden="",
        ),
    )


def _progress() -> Html:
    return tag(
        "div",
        tag("ol", id="stages", class_="stages"),
        tag("p", tag("strong", "…", id="where"), " ", tag("span", "", id="time-left")),
        tag(
            "details",
            tag("summary", "Steps of the protocol"),
            tag("div", id="steps"),
            id="steps-section",
            hidden="",
        ),
    )


def _audit() -> Html:
    verdict = tag(
        "p",
        "How well attacks on what we send distinguish real from synthetic data: ",
        tag("strong", "…", id="verdict"),
    )
    when = tag("p", "…", id="audited", class_="muted")
    heads = (tag("th", text, scope="col") for text in ("attack", "part of the run", "AUC"))
    table = tag(
        "table", tag("thead", tag("tr", *heads)), tag("tbody", id="attacks"), class_="attacks"
    )
    every = tag("details", tag("summary", "All attacks"), table)
    return tag("div", verdict, when, tag("div", id="strongest"), every)


def _hidden_section(title: str, body: Html) -> Html:
    """Make a section that the script shows once it has content."""
    name = title.lower()
    return tag("div", titled_section(title, body), id=f"{name}-section", hidden="")
