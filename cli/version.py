"""The option `--version` of both programs."""

from __future__ import annotations

from typing import Annotated

import typer

from florist.common.core.release import RELEASE


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"florist {RELEASE}")
        raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option(
        "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
]
