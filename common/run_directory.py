"""A party's run directory: one folder per finished stage, written whole or not at all.

    <run_directory>/
      alignment/
        train/             and test/, where there is a test table
          alignment.json   sizes, digest of U, agreement, timings, traffic
          ranks.parquet    one row per row of the party's own table: its position in U
      checkpoints/         while training is under way
      audit/               what the self-audit finds, while it is under way and afterwards
      training/            this party's half of the model with its preprocessing, figures, report
      evaluation-alignment/
        alignment.json     as above, of the evaluation tables
        ranks.parquet      as above; -1 for rows that were kept out of the union
        draws.key          the secret behind this party's choices, so that they stay the same
      evaluation/          what the model is worth, estimated without knowing who is shared
      serving/             where it serves: `secret`, behind its stand-ins; the HTTP service's token

Nothing but `draws.key` and the files of `serving` is secret, and nothing tells which own people the
peer also has.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from florist.common.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The tables that are aligned, each by a union of its own.
TableName = Literal["train", "test", "evaluation"]

#: Raised when what is written changes so that an older reader would misread it.
FORMAT = 1

_KEY = "draws.key"


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


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """What the next stage needs: `rank_of_row[i]` is the position in `U` of own table row `i`."""

    summary: AlignmentSummary
    rank_of_row: npt.NDArray[np.int64]


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

    @property
    def alignment(self) -> Path:
        return self.path / "alignment"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def training(self) -> Path:
        return self.path / "training"

    @property
    def audit(self) -> Path:
        return self.path / "audit"

    @property
    def evaluation_alignment(self) -> Path:
        return self.path / "evaluation-alignment"

    @property
    def evaluation(self) -> Path:
        return self.path / "evaluation"

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

    def refuse_finished(self, stage: Path, *, force: bool) -> None:
        """Raise if `stage` is there already and may not be replaced."""
        if stage.exists() and not force:
            raise ConfigurationError(
                f"{stage} holds a finished result; name another run_directory, "
                "or replace it with --force"
            )

    def save_alignments(self, alignments: dict[TableName, Alignment], *, force: bool) -> None:
        """Write the results whole: first aside, then moved into place."""
        self.refuse_finished(self.alignment, force=force)
        with self.replacing(self.alignment) as folder:
            for table, alignment in alignments.items():
                (folder / table).mkdir()
                _write_alignment(folder / table, alignment)

    def save_evaluation_union(self, union: EvaluationUnion) -> None:
        """Write it whole, readable by its owner only."""
        with self.replacing(self.evaluation_alignment) as folder:
            _write_alignment(folder, union.alignment)
            key = folder / _KEY
            key.touch(mode=0o600)
            key.write_bytes(union.secret)

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

    def load_alignment(self, table: TableName = "train") -> Alignment:
        """Read a finished alignment.

        Raises:
            ConfigurationError: there is none, or it is not one that this release can read.
        """
        is_apart = table == "evaluation"
        folder = self.evaluation_alignment if is_apart else self.alignment / table
        try:
            facts = json.loads((folder / "alignment.json").read_text(encoding="utf-8"))
            stored = pq.read_table(folder / "ranks.parquet")
        except FileNotFoundError:
            raise ConfigurationError(
                f"{self.path} holds no finished alignment of the {table} table; run "
                "`florist-party --stage align` first"
            ) from None
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ConfigurationError(
                f"{folder} cannot be read ({type(error).__name__}); align again"
            ) from None
        if facts.get("format") != FORMAT:
            raise ConfigurationError(
                f"{folder} was written in format {facts.get('format')}, this release reads "
                f"{FORMAT}; align again"
            )
        ranks = stored.column("rank").to_numpy().astype(np.int64, copy=False)
        return Alignment(AlignmentSummary(**facts), ranks)

    def load_history(self) -> dict[str, Any]:
        """The record of a finished training run.

        Raises:
            ConfigurationError: there is none.
        """
        try:
            text = (self.training / "history.json").read_text(encoding="utf-8")
        except OSError:
            raise ConfigurationError(
                f"{self.path} holds no finished training; run `florist-party --stage train` first"
            ) from None
        history: dict[str, Any] = json.loads(text)
        return history

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


def _write_alignment(folder: Path, alignment: Alignment) -> None:
    ranks = pa.table({"rank": pa.array(alignment.rank_of_row)})
    pq.write_table(ranks, folder / "ranks.parquet")
    text = json.dumps(asdict(alignment.summary), indent=2, sort_keys=True)
    (folder / "alignment.json").write_text(text + "\n", encoding="utf-8")


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
