"""A party's run directory: one folder per finished stage, written whole or not at all.

    <run_directory>/
      alignment/
        train/             and test/, where there is a test table
          alignment.json   sizes, digest of U, agreement, timings, traffic
          ranks.parquet    one row per row of the party's own table: its position in U
      .alignment-work/     while aligning is under way: finished exchanges, to go on from
      .training-work/      for a moment before training: it makes files without a name for tables
                           that do not fit in memory
      checkpoints/         while training is under way
      audit/               what the self-audit finds, while it is under way and afterwards
      training/            this party's half of the model with its preprocessing, figures, report
      evaluation-alignment/
        alignment.json     as above, of the evaluation tables
        ranks.parquet      as above; -1 for rows that were kept out of the union
        draws.key          the secret behind this party's choices, so that they stay the same
        begun              once anything was told of people in this union
      evaluation/          what the model is worth, estimated without knowing who is shared
      serving/             where it serves: `secret`, behind its stand-ins; the HTTP service's token

Nothing but `draws.key` and the files of `serving` is secret, and nothing tells which own people the
peer also has. The exponents in `.alignment-work` are sealed under a key that only the peer holds.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from florist.common.core.errors import ConfigurationError
from florist.common.session.stage_state import RESULT_FOLDERS

if TYPE_CHECKING:
    from florist.common.session.stage_state import StageName

#: The tables that are aligned, each by a union of its own.
TableName = Literal["train", "test", "evaluation"]

#: Raised when what is written changes so that an older reader would misread it.
FORMAT = 2

_FACTS = "alignment.json"
_RANKS = "ranks.parquet"
_RANKS_AT_ONCE = 1 << 18
#: Bytes read at once of that file.
_BUFFER = 1 << 20

_KEY = "draws.key"

#: Beside the evaluation union once it has been used.
_BEGUN = "begun"

#: In a stage's result while the peer may not have its own.
_PENDING = ".pending"


@dataclass(frozen=True, slots=True)
class AlignmentSummary:
    """The facts of an alignment. Sizes are of the padded sets where dummies were used."""

    format: int
    release: str
    role: str
    party: str
    peer: str
    finished_at: str
    agreement: dict[str, Any]
    engine: str
    #: Of the party's own table: rows, and a digest of its IDs in order.
    rows: int
    table_fingerprint: str
    own_dummies: int
    own_size: int
    peer_size: int
    union_size: int
    shared_size: int
    union_sha256: str
    seconds: dict[str, float]
    bytes_sent: int
    bytes_received: int


_SUMMARY = TypeAdapter(AlignmentSummary)


#: In row order: as one array, or as what gives them some at a time, as often as it is asked.
Ranks = npt.NDArray[np.int64] | Callable[[], Iterator[npt.NDArray[np.int64]]]


@dataclass(frozen=True, eq=False)
class Alignment:
    """What the next stage needs: of each row of the own table, the position in `U`."""

    summary: AlignmentSummary
    ranks: Ranks = field(repr=False)

    def rank_parts(self) -> Iterator[npt.NDArray[np.int64]]:
        """The ranks in row order, never all in memory if they are not already."""
        return iter([self.ranks]) if isinstance(self.ranks, np.ndarray) else self.ranks()

    @cached_property
    def rank_of_row(self) -> npt.NDArray[np.int64]:
        """Item `i` is that of row `i`; all are read into memory when this is first used."""
        if isinstance(self.ranks, np.ndarray):
            return self.ranks
        return np.concatenate([np.empty(0, np.int64), *self.ranks()])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EvaluationUnion:
    """The union of the evaluation tables, kept with the secret of the draws that go with it.

    A person has the same stand-in whenever a model is evaluated on this union. In another one it
    would have another, and the peer could compare.
    """

    alignment: Alignment
    secret: bytes


class RunDirectory:
    """Knows where things are, and that nothing finished is lost."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def result(self, stage: StageName) -> Path:
        """Where a stage's result is, once it is finished."""
        return self.path / RESULT_FOLDERS[stage]

    def pending(self, stage: StageName) -> Path:
        """Is there while the peer may not have its own result of that stage."""
        return self.result(stage) / _PENDING

    def work(self, stage: StageName) -> Path:
        """What a stage needs while it is under way, to go on from after a loss; gone afterwards."""
        return self.path / f".{RESULT_FOLDERS[stage]}-work"

    def drop_work(self, stage: StageName) -> None:
        """Both parties have their results of the stage, or begin anew."""
        shutil.rmtree(self.work(stage), ignore_errors=True)

    @property
    def alignment(self) -> Path:
        return self.result("align")

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def training(self) -> Path:
        return self.result("train")

    @property
    def audit(self) -> Path:
        return self.path / "audit"

    @property
    def evaluation_alignment(self) -> Path:
        return self.path / "evaluation-alignment"

    @property
    def evaluation(self) -> Path:
        return self.result("evaluate")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory for one party process; creates it.

        Raises:
            ConfigurationError: it cannot be written, or another process has it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = (self.path / ".lock").open("w")
        except OSError as error:
            raise ConfigurationError(
                f"run_directory {self.path} cannot be written: {error.strerror}; "
                "name another or mend its permissions"
            ) from None
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ConfigurationError(
                    f"run_directory {self.path} is in use by another running party; "
                    "wait for it or name another"
                ) from None
            yield

    def save_evaluation_union(self, union: EvaluationUnion) -> None:
        """Write it whole, readable by its owner only."""
        with self.replacing(self.evaluation_alignment) as folder:
            _write_alignment(folder, union.alignment)
            key = folder / _KEY
            key.touch(mode=0o600)
            key.write_bytes(union.secret)

    def begin_evaluation(self) -> None:
        """From now on there is to be no other evaluation union: people in it are told of."""
        try:
            (self.evaluation_alignment / _BEGUN).touch()
        except OSError as error:
            raise _unwritable(self.evaluation_alignment, error) from None

    @property
    def has_begun_evaluation(self) -> bool:
        return (self.evaluation_alignment / _BEGUN).exists()

    def load_evaluation_union(self) -> EvaluationUnion | None:
        """The one of an earlier evaluation, if any.

        Raises:
            ConfigurationError: it is not one that this release can read.
        """
        if not self.evaluation_alignment.exists():
            return None
        alignment = self.load_alignment("evaluation")
        try:
            secret = (self.evaluation_alignment / _KEY).read_bytes()
        except OSError as error:
            raise ConfigurationError(
                f"{self.evaluation_alignment / _KEY} cannot be read: {error.strerror}"
            ) from None
        return EvaluationUnion(alignment, secret)

    def load_summary(self, table: TableName = "train") -> AlignmentSummary:
        """Read the summary of a finished alignment without its ranks.

        Raises:
            ConfigurationError: there is no finished alignment, or this release cannot read it.
        """
        folder = self._alignment_folder(table)
        if not (folder / _FACTS).exists():
            raise ConfigurationError(
                f"{self.path} holds no finished alignment of the {table} table; run "
                "`florist-party --stage align` first"
            )
        with _reading(folder):
            return _summary(json.loads((folder / _FACTS).read_text(encoding="utf-8")), folder)

    def _alignment_folder(self, table: TableName) -> Path:
        return self.evaluation_alignment if table == "evaluation" else self.alignment / table

    def load_alignment(self, table: TableName = "train") -> Alignment:
        """Look through a finished alignment; its ranks are read into memory only when used.

        Raises:
            ConfigurationError: there is none, or it is not one that this release can read.
        """
        folder = self._alignment_folder(table)
        summary = self.load_summary(table)
        ranks = partial(_read_ranks, folder, summary.union_size)
        for _ in ranks():
            pass  # what is wrong with them is told now
        return Alignment(summary, ranks)

    def load_history(self) -> dict[str, Any]:
        """The record of a finished training run.

        Raises:
            ConfigurationError: there is none, or it is damaged.
        """
        path = self.training / "history.json"
        try:
            history: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except OSError:
            raise ConfigurationError(
                f"{self.path} holds no finished training; run `florist-party --stage train` first"
            ) from None
        except (ValueError, RecursionError):
            raise ConfigurationError(f"{path} is damaged; restore it or train again") from None
        return history

    @contextmanager
    def finishing(self, stage: StageName) -> Iterator[Path]:
        """A new folder that becomes the stage's result if the block ends well; the peer's pends."""
        with self.replacing(self.result(stage)) as folder:
            yield folder
            (folder / _PENDING).touch()

    @contextmanager
    def replacing(self, target: Path) -> Iterator[Path]:
        """A new folder that takes the place of `target` only if the block ends well."""
        try:
            fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=self.path))
        except OSError as error:
            raise _unwritable(target, error) from None
        try:
            yield fresh
            _to_disk(fresh)
            if target.exists():
                old = Path(tempfile.mkdtemp(prefix=f".old-{target.name}-", dir=self.path))
                target.rename(old / target.name)
                fresh.rename(target)
                shutil.rmtree(old)
            else:
                fresh.rename(target)
            _sync(self.path)
        except OSError as error:
            raise _unwritable(target, error) from None
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def _summary(facts: Any, folder: Path) -> AlignmentSummary:  # noqa: ANN401 - JSON
    """What a file holds, if it can be an alignment's; else raises ValueError."""
    if not isinstance(facts, dict):
        raise ValueError("no object")  # noqa: TRY004 - the file's content, not a caller's mistake
    if facts.get("format") != FORMAT:
        raise ConfigurationError(
            f"{folder} was written in format {facts.get('format')}, this release reads "
            f"{FORMAT}; align again"
        )
    summary = _SUMMARY.validate_python(facts)
    bytes.fromhex(summary.union_sha256)
    return summary


def _read_ranks(folder: Path, union_size: int) -> Iterator[npt.NDArray[np.int64]]:
    """The ranks of an alignment in that folder, some at a time.

    Raises:
        ConfigurationError: they cannot be read, or are not those of a union of that size.
    """
    with (
        _reading(folder),
        pq.ParquetFile(folder / _RANKS, pre_buffer=False, buffer_size=_BUFFER) as file,
    ):
        for batch in file.iter_batches(_RANKS_AT_ONCE):
            column = batch.column("rank")
            if column.type != pa.int64() or column.null_count:
                raise ValueError("no ranks")
            ranks = column.to_numpy()
            if len(ranks) and not -1 <= ranks.min() <= ranks.max() < union_size:
                raise ValueError("ranks outside the union")
            yield ranks


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """What is wrong with a file of an alignment, in our words."""
    try:
        yield
    except (OSError, ValueError, KeyError, RecursionError, pa.ArrowException) as error:
        raise ConfigurationError(
            f"{folder} cannot be read ({type(error).__name__}); align again"
        ) from None


def write_alignments(folder: Path, alignments: dict[TableName, Alignment]) -> None:
    """Write the result of the alignment stage into a new folder."""
    for table, alignment in alignments.items():
        (folder / table).mkdir()
        _write_alignment(folder / table, alignment)


def _write_alignment(folder: Path, alignment: Alignment) -> None:
    schema = pa.schema([("rank", pa.int64())])
    # No rank is there twice, so a dictionary of them would be of no use.
    with pq.ParquetWriter(folder / _RANKS, schema, use_dictionary=False) as writer:
        for ranks in alignment.rank_parts():
            writer.write_table(pa.table([ranks], schema))
    text = json.dumps(asdict(alignment.summary), indent=2, sort_keys=True)
    (folder / _FACTS).write_text(text + "\n", encoding="utf-8")


def _unwritable(target: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"{target} cannot be written: {error.strerror or error}")


def _to_disk(folder: Path) -> None:
    """Flush a folder's files, so that a power cut after the rename finds them whole."""
    folder.chmod(0o700)
    for entry in (*folder.rglob("*"), folder):
        _sync(entry)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
