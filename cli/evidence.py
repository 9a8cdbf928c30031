"""`florist evidence`: write the evidence of a run for others, and check it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from florist.cli.default_command import default_command

out = Console()


app = typer.Typer(
    cls=default_command("write"),
    no_args_is_help=True,
    help="Write the evidence of a run (florist evidence RUN), or verify it.",
)


@app.command()
def write(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    output: Annotated[
        Path | None, typer.Option(help="An existing folder; default: `evidence` in the run.")
    ] = None,
) -> None:
    """Write what both parties have signed: evidence.json, and a page to print, evidence.html."""
    from florist.api.evidence import write_evidence  # noqa: PLC0415 - keeps --help fast
    from florist.common.session.run_directory import RunDirectory  # noqa: PLC0415

    written = write_evidence(RunDirectory(run), output)
    for path in (written.json, written.html):
        out.print(f"[green]✓[/] {path}", soft_wrap=True)
    for gap in written.gaps:
        out.print(f"[yellow]![/] {gap}", soft_wrap=True, highlight=False)


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="evidence.json, or the file of one stage.")],
    authority: Annotated[
        list[Path],
        typer.Option(
            help="PEM file with the certificate of the parties' authority; repeat it if each "
            "party has its own."
        ),
    ],
) -> None:
    """Check both signatures and both certificates offline: exit code 0 if all is right, else 1."""
    from florist.api.evidence import verify_evidence  # noqa: PLC0415 - keeps --help fast

    checks = verify_evidence(file, *authority)
    for check in checks:
        mark = "[red]✗[/]" if check.problem else "[green]✓[/]"
        detail = f": {check.problem}" if check.problem else ""
        out.print(mark, end=" ")
        out.print(f"{check.what}{detail}", markup=False, highlight=False, soft_wrap=True)
    failed = sum(bool(check.problem) for check in checks)
    if failed:
        out.print(f"{failed} of {len(checks)} checks failed: do not rely on this evidence.")
        raise typer.Exit(1)
    out.print(
        "Both parties signed every record with the keys of certificates that an authority "
        "given here issued and that were valid then. What the records say is what the parties "
        "stated: their software compared the messages sent with those received, but nobody else "
        "watched."
    )
