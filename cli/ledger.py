"""`florist ledger`: what the releases to the peer have cost so far."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

from rich.table import Table

from florist.common.core.errors import ConfigurationError
from florist.common.privacy.count_noise import exact_fraction
from florist.common.privacy.ledger import (
    charges,
    ledger_folder,
    outcome_of,
    settlements,
    shown,
    total_cost,
)
from florist.common.privacy.ledger_file import HEAD, LEDGER, read_ledger

if TYPE_CHECKING:
    from rich.console import Console

    from florist.common.privacy.ledger_entries import Entry
    from florist.common.privacy.ledger_file import LedgerContents
    from florist.common.settings.party_config import PartyConfig

_COLUMNS = (
    "number",
    "date",
    "table",
    "announced",
    "own_size",
    "peer_size",
    "union_size",
    "epsilon",
    "delta",
    "outcome",
    "accepted_difference",
    "set_digest",
    "agreement_digest",
)


def load_ledger(config: PartyConfig) -> LedgerContents:
    """Read and verify the ledger with the configured peer.

    Raises:
        ConfigurationError: there is none yet, or it is damaged.
    """
    folder = ledger_folder(config)
    if not (folder / LEDGER).exists() and not (folder / HEAD).exists():
        raise ConfigurationError(
            f"{folder}: there is no ledger with {config.party.peer} yet; the first union creates it"
        )
    return read_ledger(folder)[0]


def export_rows(entries: tuple[Entry, ...]) -> list[dict[str, object]]:
    """Return one record per charge, with its outcome."""
    settled = settlements(entries)
    rows = []
    for charge in charges(entries):
        known = settled.get(charge.number)
        values = charge.model_dump() | {
            "peer_size": known and known.peer_size,
            "union_size": known and known.union_size,
            "outcome": outcome_of(charge, settled),
        }
        rows.append({name: values[name] for name in _COLUMNS})
    return rows


def as_json(entries: tuple[Entry, ...]) -> str:
    """Return all charges as a JSON array."""
    return json.dumps(export_rows(entries), indent=2)


def as_csv(entries: tuple[Entry, ...]) -> str:
    """Return all charges as CSV with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(export_rows(entries))
    return text.getvalue().rstrip("\n")


def describe_ledger(config: PartyConfig, contents: LedgerContents, out: Console) -> None:
    """Print all charges, their sum and what is left of the budget."""
    table = Table(title=f"Privacy ledger of {config.party.name} with {config.party.peer}")
    headings = ("", "date", "table", "our size", "peer's size", "union", "ε", "δ", "outcome")
    for heading in headings:
        words = heading in ("date", "table", "outcome")
        table.add_column(heading, justify="left" if words else "right")
    for row in export_rows(contents.entries):
        outcome = str(row["outcome"])
        if row["accepted_difference"]:
            outcome += f"; small difference accepted: {row['accepted_difference']}"
        table.add_row(
            str(row["number"]),
            str(row["date"]),
            f"{row['table']}, {row['announced']}",
            *(_count(row[name]) for name in ("own_size", "peer_size", "union_size")),
            *("exact" if row[name] is None else str(row[name]) for name in ("epsilon", "delta")),
            outcome,
        )
    out.print(table)
    spent, budget = total_cost(charges(contents.entries)), config.privacy.budget
    if spent is None:
        out.print("Spent: without limit, because a union had exact sizes.")
    elif budget is None:
        out.print(f"Spent: {shown(spent)}, by basic composition. There is no budget.")
    else:
        limit = exact_fraction(budget.epsilon), exact_fraction(budget.delta)
        out.print(f"Spent: {shown(spent)}, by basic composition, of {shown(limit)}.")
    if contents.torn:
        out.print("The last line is unfinished: a run is writing it, or was interrupted.")


def describe_verification(config: PartyConfig, contents: LedgerContents, out: Console) -> None:
    """Print that the chain of entries is intact; `load_ledger` has checked it."""
    path = ledger_folder(config) / LEDGER
    out.print(
        f"[green]✓[/] {path}: {len(contents.entries)} entries, unchanged; last chain value "
        f"{contents.chain}",
        soft_wrap=True,
    )


def _count(value: object) -> str:
    return "-" if value is None else f"{value:,}"
