"""The live status page: its markup, which a script updates every second, its style, the script.

All are served by this party itself; the content security policy forbids anything else. The script
inserts texts as text, so a log line cannot become markup.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from florist.common.reports.html import Html, document, stylesheet, tag, titled_section

if TYPE_CHECKING:
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
    return stylesheet() + (_HERE / "status.css").read_text(encoding="utf-8")


def page(about: About) -> str:
    """Return the whole page, without values."""
    return document(
        f"{about.party} · FLORIST",
        _LINKS,
        _header(about),
        tag("p", id="silence", class_="banner", role="alert", hidden=""),
        tag("noscript", tag("p", _NO_SCRIPT, class_="banner")),
        titled_section("Progress", _progress()),
        titled_section("Network", tag("dl", id="cards", class_="cards")),
        _hidden_section("Training", tag("div", class_="grid", id="curves")),
        _hidden_section("Self-audit", _audit()),
        titled_section("Log", tag("ol", id="log-lines", class_="log", tabindex="0")),
    )


def _header(about: About) -> Html:
    peer = tag("span", about.peer, " ", tag("span", "…", id="peer-state"), class_="nowrap")
    return tag(
        "header",
        tag("h1", about.party, " ", tag("span", "…", id="state", class_="badge")),
        tag(
            "p",
            f"the {about.role} party · FLORIST {about.release} · up ",
            tag("span", "…", id="uptime"),
            " · peer: ",
            peer,
            class_="muted",
        ),
        tag("p", id="reason", class_="banner", hidden=""),
    )


def _progress() -> Html:
    return tag("div", tag("ol", id="stages", class_="stages"), tag("div", id="steps"))


def _audit() -> Html:
    verdict = tag(
        "p",
        "How well attacks on what we send distinguish real from synthetic data: ",
        tag("strong", "…", id="verdict"),
    )
    when = tag("p", "…", id="audited", class_="muted")
    others = tag(
        "details", tag("summary", "Other attacks"), tag("div", id="attacks", class_="grid")
    )
    return tag("div", verdict, when, tag("div", id="strongest"), others)


def _hidden_section(title: str, body: Html) -> Html:
    """Make a section that the script shows once it has content."""
    name = title.lower()
    return tag("div", titled_section(title, body), id=f"{name}-section", hidden="")
