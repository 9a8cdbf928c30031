"""The live status page: markup that the script fills every second, its style, the script.

All come from this party itself; the server's policy forbids anything else. The script writes texts
as texts, so a log line cannot become markup.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from florist.common.reports.html import Html, card, document, stylesheet, tag, titled_section

if TYPE_CHECKING:
    from florist.common.observability.status import About

_HERE = Path(__file__).parent

SCRIPT = (_HERE / "status.js").read_bytes()

_LINKS = Html("""
<link rel="icon" href="data:,">
<link rel="stylesheet" href="status.css">
<script src="status.js" defer></script>
""")
_NO_SCRIPT = "This page needs its own script; /metrics and /status.json tell the same without it."

#: Cards by the `id` that the script writes to.
_CARDS = {
    "rate": "rows/s",
    "sent": "sent",
    "received": "received",
    "waited": "waited for the peer",
    "reconnects": "reconnects",
    "certificate": "certificate",
}


def style() -> str:
    """That of the reports, and what only this page has."""
    return stylesheet() + (_HERE / "status.css").read_text(encoding="utf-8")


def page(about: About) -> str:
    """The whole page, without figures."""
    return document(
        f"{about.party} · FLORIST",
        _LINKS,
        _header(about),
        tag("p", id="silence", class_="banner", role="alert", hidden=""),
        tag("noscript", tag("p", _NO_SCRIPT, class_="banner")),
        titled_section("Progress", _progress()),
        titled_section("Line", tag("dl", *_cards(), class_="cards")),
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
    what = tag(
        "p",
        "How well attacks on what we send tell real from synthetic: ",
        tag("strong", "…", id="verdict"),
    )
    when = tag("p", "…", id="audited", class_="muted")
    others = tag("details", tag("summary", "the others"), tag("div", id="attacks", class_="grid"))
    return tag("div", what, when, tag("div", id="strongest"), others)


def _cards() -> list[Html]:
    return [card(label, tag("span", "…", id=name)) for name, label in _CARDS.items()]


def _hidden_section(title: str, body: Html) -> Html:
    """Shown once there is something to show."""
    name = title.lower()
    return tag("div", titled_section(title, body), id=f"{name}-section", hidden="")
