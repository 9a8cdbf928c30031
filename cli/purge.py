"""Output of `florist purge`: what would be deleted, and what is impossible afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from florist.common.session.purge import PurgePlan

#: Files that are listed one by one.
_SHOWN = 4


def describe_plan(plan: PurgePlan, out: Console) -> None:
    """Print the files by artefact, and those that stay because they are not known."""
    table = Table(title=f"To be deleted from {plan.runs.path}")
    for heading in ("files", "contents", "may be deleted"):
        table.add_column(heading, overflow="fold")
    for artefact, paths in plan.by_artefact:
        names = [str(path.relative_to(plan.runs.path)) for path in paths[:_SHOWN]]
        if len(paths) > _SHOWN:
            names.append(f"and {len(paths) - _SHOWN:,} more")
        table.add_row("\n".join(names), artefact.contents, artefact.deletable)
    if plan.files:
        out.print(table)
    for path in plan.foreign:
        out.print(
            f"stays, because it is not FLORIST's: {path}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
