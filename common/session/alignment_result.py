"""The result of aligning a table, and its files: a summary and the rank of each row.

alignment.json   sizes, digest of the union, agreement, timings, traffic
ranks.parquet    for each row of the party's own table, its rank in the union; -1 for rows that
were kept out of the union
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from florist.common.core.errors import ConfigurationError
from florist.common.core.roles import RoleName  # noqa: TC001 - read by pydantic
from florist.common.privacy.commitment import ROOTS_FILE, save_commitment
from florist.common.session.union_sizes import UnionSizes  # noqa: TC001 - read by pydantic

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.privacy.commitment import StoredCommitment

#: The tables that are aligned, each by its own union.
TableName = Literal["train", "test", "evaluation"]

#: Increased when the files change so that an older release would misread them.
FORMAT = 4

SUMMARY_FILE = "alignment.json"
_RANKS_FILE = "ranks.parquet"
#: What is read of an alignment, besides the key of its commitment.
READ_FILES = (SUMMARY_FILE, _RANKS_FILE, ROOTS_FILE)
_RANKS_AT_ONCE = 1 << 18
#: Bytes of the ranks file to read at once.
_BUFFER = 1 << 20


@dataclass(frozen=True, slots=True)
class AlignmentSummary:
    """Facts about an alignment. Sizes are those of the padded sets."""

    format: int
    release: str
    role: str
    party: str
    peer: str
    finished_at: str
    agreement: dict[str, Any]
    engine: str
    #: The number of rows of the party's own table.
    rows: int
    #: A digest of the IDs of the party's own table, in order.
    table_fingerprint: str
    #: The number of dummies that the party has configured.
    own_dummies: int
    sizes: UnionSizes
    #: The party that merged both sets; None if the union was computed by Algorithm 1.
    merging: RoleName | None
    union_sha256: str
    seconds: dict[str, float]
    bytes_sent: int
    bytes_received: int

    @property
    def union_size(self) -> int:
        """The number of UIDs in the union."""
        return self.sizes.union

    @property
    def privacy(self) -> dict[str, float] | None:
        """`epsilon` and `delta` of the guarantee for the sizes; None if they are exact."""
        found: dict[str, float] | None = self.agreement["union"]["privacy"]
        return found


_SUMMARY = TypeAdapter(AlignmentSummary)
_PRIVACY = TypeAdapter(dict[str, float] | None)


#: Ranks in row order: one array, or a function that reads them in parts, any number of times.
Ranks = npt.NDArray[np.int64] | Callable[[], Iterator[npt.NDArray[np.int64]]]


@dataclass(frozen=True, eq=False)
class Alignment:
    """The summary of an alignment and the rank in the union of each row of the own table."""

    summary: AlignmentSummary
    ranks: Ranks = field(repr=False)
    #: Both parties' commitments to their sets; None if they are not read.
    commitment: StoredCommitment | None = field(default=None, repr=False)

    def rank_parts(self) -> Iterator[npt.NDArray[np.int64]]:
        """The ranks in row order, in parts unless they are in memory already."""
        return iter([self.ranks]) if isinstance(self.ranks, np.ndarray) else self.ranks()

    @cached_property
    def rank_of_row(self) -> npt.NDArray[np.int64]:
        """The rank of each row; the first use reads all of them into memory."""
        if isinstance(self.ranks, np.ndarray):
            return self.ranks
        return np.concatenate([np.empty(0, np.int64), *self.ranks()])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EvaluationUnion:
    """The union of the evaluation tables, with the secret of this party's random draws.

    A person has the same stand-in in every evaluation on this union. In another union the stand-in
    would differ, and the peer could compare the two.
    """

    alignment: Alignment
    secret: bytes


def has_summary(folder: Path) -> bool:
    """Whether the folder contains an alignment."""
    return (folder / SUMMARY_FILE).exists()


def load_summary(folder: Path) -> AlignmentSummary:
    """Read the summary of an alignment without its ranks.

    Raises:
        ConfigurationError: this release cannot read it.
    """
    with _reading(folder):
        return _summary(json.loads((folder / SUMMARY_FILE).read_text(encoding="utf-8")), folder)


def load_alignment(folder: Path) -> Alignment:
    """Check the files of an alignment; the ranks are read into memory only when used.

    Raises:
        ConfigurationError: this release cannot read the files.
    """
    summary = load_summary(folder)
    ranks = partial(_read_ranks, folder, summary.union_size)
    for _ in ranks():
        pass  # report errors now
    return Alignment(summary, ranks)


def write_alignments(folder: Path, alignments: dict[TableName, Alignment]) -> None:
    """Write the result of the alignment stage into a new folder."""
    for table, alignment in alignments.items():
        (folder / table).mkdir()
        write_alignment(folder / table, alignment)


def write_alignment(folder: Path, alignment: Alignment) -> None:
    """Write the files of one alignment."""
    schema = pa.schema([("rank", pa.int64())])
    # Ranks are distinct, so that a dictionary would be useless.
    with pq.ParquetWriter(folder / _RANKS_FILE, schema, use_dictionary=False) as writer:
        for ranks in alignment.rank_parts():
            # Not from the array itself, for which pyarrow would load pandas.
            column = pa.Array.from_buffers(pa.int64(), len(ranks), [None, pa.py_buffer(ranks)])
            writer.write_batch(pa.record_batch([column], schema=schema))
    if alignment.commitment is not None:
        save_commitment(folder, alignment.commitment)
    text = json.dumps(asdict(alignment.summary), indent=2, sort_keys=True)
    (folder / SUMMARY_FILE).write_text(text + "\n", encoding="utf-8")


def _summary(facts: Any, folder: Path) -> AlignmentSummary:  # noqa: ANN401 - JSON
    """Validate the content of a summary file; raises ValueError if it is invalid."""
    if not isinstance(facts, dict):
        raise ValueError("not an object")  # noqa: TRY004 - the file's content is wrong
    if facts.get("format") != FORMAT:
        raise ConfigurationError(
            f"{folder} has format {facts.get('format')}, but this release reads format {FORMAT}; "
            "align again"
        )
    summary = _SUMMARY.validate_python(facts)
    bytes.fromhex(summary.union_sha256)
    _PRIVACY.validate_python(summary.privacy)
    return summary


def _read_ranks(folder: Path, union_size: int) -> Iterator[npt.NDArray[np.int64]]:
    """Read the ranks of an alignment in parts.

    Raises:
        ConfigurationError: they cannot be read, or do not fit a union of that size.
    """
    with (
        _reading(folder),
        pq.ParquetFile(folder / _RANKS_FILE, pre_buffer=False, buffer_size=_BUFFER) as file,
    ):
        for batch in file.iter_batches(_RANKS_AT_ONCE):
            column = batch.column("rank")
            if column.type != pa.int64() or column.null_count:
                raise ValueError("not ranks")
            ranks = column.to_numpy()
            if len(ranks) and not -1 <= ranks.min() <= ranks.max() < union_size:
                raise ValueError("ranks outside the union")
            yield ranks


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Convert errors of reading the files of an alignment."""
    try:
        yield
    except (OSError, ValueError, KeyError, RecursionError, pa.ArrowException) as error:
        raise ConfigurationError(
            f"{folder} cannot be read ({type(error).__name__}); align again"
        ) from None
