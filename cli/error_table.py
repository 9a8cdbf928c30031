"""Generates `docs/reference/errors.md` from the error types.

`python -m florist.cli.error_table > docs/reference/errors.md`
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from typing import TYPE_CHECKING

from florist.common.core.errors import FloristError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDERS = ("florist.common", "florist.active_party", "florist.passive_party", "florist.cli")

_BEFORE = """\
# Errors and exit codes

A party that cannot continue logs one line with what happened (including the file, key, column or
step) and one line with what to do. It then exits with one of the codes below. The peer is told only
what concerns both parties, never a path, an ID or a private setting. Completed stages are always
kept; the result of a stage is written as a whole or not at all.

<!-- This page is generated: python -m florist.cli.error_table > docs/reference/errors.md -->

| exit code | origin | error | what happened | what to do |
|---|---|---|---|---|
| 0 | | | Success; the result is in the run directory. With `--stage serve`: stopped, after all \
pending requests were answered. | |
"""

_AFTER = """
An arrow marks a special case of the error above it. With `--log-format json`, the log line of an
error has the fields `error` (its name), `origin` and `exit_code`.
"""


def page() -> str:
    """Return the text of the page."""
    return _BEFORE + "".join(_row(kind, depth) for kind, depth in error_types()) + _AFTER


def error_types() -> Iterator[tuple[type[FloristError], int]]:
    """Yield all error types that an operator can see, parents first, with their depth."""
    for folder in _FOLDERS:
        path = importlib.import_module(folder).__path__
        for module in pkgutil.walk_packages(path, f"{folder}."):
            if not module.name.endswith("._native"):  # compiled, and possibly missing
                importlib.import_module(module.name)
    yield from _below(FloristError, 0)


def _below(kind: type[FloristError], depth: int) -> Iterator[tuple[type[FloristError], int]]:
    for special in sorted(kind.__subclasses__(), key=lambda each: (each.exit_code, each.__name__)):
        # Types without advice only group others.
        is_shown = not special.__name__.startswith("_") and bool(special.advice)
        if is_shown:
            yield special, depth
        yield from _below(special, depth + is_shown)


def _row(kind: type[FloristError], depth: int) -> str:
    meaning = " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
    cells = (
        str(kind.exit_code),
        kind.origin,
        "↳ " * depth + f"`{kind.__name__}`",
        meaning,
        kind.advice,
    )
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
