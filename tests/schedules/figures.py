"""The figures of the reliability page, from the summary that `make test-schedules` writes.

`python -m tests.schedules.figures` puts those of the stored summary into the page.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SUMMARY = ROOT / "benchmarks" / "results" / "schedules.json"
PAGE = ROOT / "docs" / "concepts" / "reliability.md"

_BEGIN, _END = "<!-- schedules -->\n", "<!-- end of schedules -->"

#: What each kind of fault is.
_MEANINGS = {
    "cut": "the connection breaks; both parties notice it within a second",
    "half-open": "the connection breaks; one party or neither is told",
    "hold": "nothing gets through for up to a minute",
    "kill": "a party is killed and restarted",
    "kill-both": "both parties are killed, with or without a power failure",
    "power-failure": "a party is killed, and its disk has lost or torn what was not synced",
    "freeze": "a party stands still for up to a minute",
    "clock-jump": "a wall clock jumps by a minute, hours or years",
    "disk-full": "a disk is full until its operator frees space",
    "slow-disk": "each fsync takes seconds",
    "lost-fsync": "a disk confirms an fsync that it does not do",
    "bit-rot": "a party is killed, and a bit of one of its files flips",
}


def text(summary: dict[str, Any]) -> str:
    """Return the part of the page that has figures."""
    rows = [
        f"| `{kind}` | {meaning} | {summary['faults'].get(kind, 0):,} |"
        for kind, meaning in _MEANINGS.items()
    ]
    sentences = (
        f"The last {summary['schedules']:,} schedules had {summary['messages']:,} messages, "
        f"{summary['operations']:,} operations of disk and network, {summary['kills']:,} kills and "
        f"{summary['flipped_bits']:,} flipped bits in {summary['simulated_hours']:,} simulated "
        f"hours. {summary['completed_as_undisturbed']:,} ended as undisturbed, "
        f"{summary['rejected_by_name_on_both_sides']:,} were rejected by name, and "
        f"{len(summary['failed'])} failed."
    )
    head = ("", "| fault | what happens | times |", "|---|---|---|")
    return "\n".join((sentences, *head, *rows, "", ""))


def page_with(summary: dict[str, Any], page: str) -> str:
    """Return the page with the figures of this summary."""
    pattern = re.compile(f"(?<={re.escape(_BEGIN)}).*(?={re.escape(_END)})", re.DOTALL)
    changed, count = pattern.subn(lambda _: "\n" + text(summary), page)
    assert count == 1
    return changed


def main() -> None:
    """Update the page."""
    summary = json.loads(SUMMARY.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(page_with(summary, page), encoding="utf-8")


if __name__ == "__main__":
    main()
