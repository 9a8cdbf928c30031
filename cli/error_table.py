"""Writes `docs/reference/errors.md` from the error types themselves.

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

A party that cannot go on says so in one line: what happened, with the file, key, column or step;
and below it what to do. It then ends with an exit code, for a supervisor. The peer is told as much
of it as concerns both, and never a path, an ID or a setting that is not agreed. Finished stages are
kept in every case; a stage is written whole or not at all.

<!-- This page is generated: python -m florist.cli.error_table > docs/reference/errors.md -->

| exit code | whose | error | what happened | what to do |
|---|---|---|---|---|
| 0 | | | Finished; the result is in the run directory. Of `--stage serve`: stopped, with what was \
under way answered. | |
"""

_AFTER = """
An arrow stands before a special case of the error above it. With `--log-format json` the line of an
error has its name (`error`), `whose` and `exit_code` as fields.
"""


def page() -> str:
    """The whole text of `docs/reference/errors.md`."""
    return _BEFORE + "".join(_row(kind, depth) for kind, depth in error_types()) + _AFTER


def error_types() -> Iterator[tuple[type[FloristError], int]]:
    """All that an operator can meet, general before special; how special each is."""
    for folder in _FOLDERS:
        path = importlib.import_module(folder).__path__
        for module in pkgutil.walk_packages(path, f"{folder}."):
            if not module.name.endswith("._native"):  # compiled, and perhaps not there
                importlib.import_module(module.name)
    yield from _below(FloristError, 0)


def _below(kind: type[FloristError], depth: int) -> Iterator[tuple[type[FloristError], int]]:
    for special in sorted(kind.__subclasses__(), key=lambda each: (each.exit_code, each.__name__)):
        # One without advice is but a family.
        is_shown = not special.__name__.startswith("_") and bool(special.advice)
        if is_shown:
            yield special, depth
        yield from _below(special, depth + is_shown)


def _row(kind: type[FloristError], depth: int) -> str:
    meaning = " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
    cells = (
        str(kind.exit_code),
        kind.whose,
        "↳ " * depth + f"`{kind.__name__}`",
        meaning,
        kind.advice,
    )
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
