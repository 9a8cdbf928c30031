"""Opening the set commitment of a finished alignment for an auditor, and checking a proof."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from florist.common.core.errors import ConfigurationError
from florist.common.data.table_ids import IdReader, normalised_ids
from florist.common.privacy.commitment import KEY_FILE, ROOTS_FILE, load_commitment, load_roots
from florist.common.privacy.commitment_proof import open_drawn, open_ids

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from florist.common.privacy.commitment import StoredCommitment
    from florist.common.privacy.commitment_proof import CommitmentProof
    from florist.common.session.alignment_result import TableName
    from florist.common.session.run_directory import RunDirectory
    from florist.common.settings.data import Table
    from florist.common.settings.party_config import PartyConfig
    from florist.common.storage.id_column import IdColumn


def prove_ids(
    config: PartyConfig, runs: RunDirectory, table: TableName, ids: list[str]
) -> CommitmentProof:
    """Prove that people were in our set; their IDs are normalised as the agreement says.

    Raises:
        ConfigurationError: somebody was not in the set, or the table or the files of the run cannot
            be read or do not match.
    """
    normalisation = config.agreement.id_normalisation
    column = normalised_ids(pa.chunked_array([pa.array(ids, pa.string())]), "--id", normalisation)
    wanted = list(column)
    if not all(wanted):
        raise ConfigurationError("--id: an ID is empty")
    stored = _load_commitment(runs, table)
    return open_ids(stored, lambda: _people(config, runs, table), wanted)


def prove_drawn(
    config: PartyConfig, runs: RunDirectory, table: TableName, challenge: str, number: int
) -> CommitmentProof:
    """Open leaves of our set that an auditor's challenge draws.

    Raises:
        ConfigurationError: the table or the files of the run cannot be read or do not match.
    """
    stored = _load_commitment(runs, table)
    return open_drawn(stored, lambda: _people(config, runs, table), challenge, number)


def root_at_peer(runs: RunDirectory, table: TableName) -> bytes:
    """Return the root that the owner of this run received from its peer.

    Raises:
        ConfigurationError: the run has no commitment.
    """
    folder = runs.alignment_folder(table)
    runs.require_intact(folder / ROOTS_FILE)
    _, peer_root = load_roots(folder)
    return peer_root


def _load_commitment(runs: RunDirectory, table: TableName) -> StoredCommitment:
    folder = runs.alignment_folder(table)
    runs.require_intact(folder / ROOTS_FILE, folder / KEY_FILE)
    return load_commitment(folder)


def read_ids(path: Path) -> list[str]:
    """Read IDs from a text file, one per line; empty lines are skipped.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from None
    return [line for line in lines if line.strip()]


def _people(config: PartyConfig, runs: RunDirectory, table: TableName) -> Iterator[IdColumn]:
    """Read the people of the union again, in row order, without those who were kept out."""
    ranks = runs.load_alignment(table).rank_of_row
    first = 0
    for column in IdReader(_settings(config, table), config.agreement.id_normalisation).read():
        taken = ranks[first : first + len(column)] >= 0
        first += len(column)
        if len(taken) < len(column):
            break  # the table has grown: the root will not match
        yield column if taken.all() else column.take(np.flatnonzero(taken))


def _settings(config: PartyConfig, table: TableName) -> Table:
    data = config.data
    found = {"train": data.train, "test": data.test_table, "evaluation": data.evaluation_table}
    if (settings := found[table]) is None:
        raise ConfigurationError(f"data.{table}: missing; name the table of the alignment")
    return settings
