"""Predictions for whole files, of any size: read, predicted and written part by part.

    out.parquet.parts/     while it is under way
      job.json             what is predicted, and with which model
      part-000000.parquet  finished rows, in the order of the file
    out.parquet            all parts, once there is no more

A run that was stopped goes on after its last finished part; so does this one by itself when the
peer is lost or busy for a while.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections import deque
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from florist.common.core.errors import ConfigurationError, PeerLost
from florist.common.data.table_files import open_table
from florist.common.session.run_directory import RunDirectory
from florist.common.transport.grpc_prediction_client import PeerBusy
from florist.passive_party.serving import PredictionClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy.typing as npt

    from florist.common.core.progress import Progress, StepProgress
    from florist.common.data.table_files import TableFiles
    from florist.common.settings.party_config import PartyConfig

log = logging.getLogger("florist.predict")

#: Rows that are read together, and rows of a part: what is lost at most when a run is stopped.
CHUNK_ROWS = 1 << 14
PART_ROWS = 1 << 16

#: Seconds before another attempt when the peer is lost.
_PAUSE = 2.0

PROBABILITY = "probability"


def predict_file(
    config: PartyConfig,
    source: Path,
    target: Path,
    progress: Progress,
    *,
    force: bool = False,
    plaintext: bool = False,
) -> int:
    """Predict all rows of a file that looks like the training table; returns how many.

    The result has the column of the IDs, where the file has it, and `probability`, or with several
    classes `probability_0`, `probability_1` and so on.

    Args:
        config: the passive party's; the file's layout is that of `data.train`.
        source: .csv, .tsv, .txt, these with .gz, or .parquet; or a folder of such files.
        target: a .parquet file.
        progress: where rows are counted.
        force: replace `target`, and begin anew where an earlier run does not fit.
        plaintext: no TLS; for tests on one machine only.

    Raises:
        ConfigurationError: a file cannot be used, and why.
        FloristError: the peer refuses, or is lost for longer than `timeouts.connect`.
    """
    file = open_table(config.data.train.model_copy(update={"path": source}))
    if target.suffix.lower() != ".parquet":
        raise ConfigurationError(f"{target}: the name must end in .parquet")
    if target.exists() and not force:
        raise ConfigurationError(f"{target}: is there already; name another, or use --force")
    with PredictionClient.connect(config, plaintext=plaintext) as client:
        work = _Work(client, file, config.data.train.id_column)
        parts = _Parts(target, work.identity(), fresh=force)
        with parts.locked(), progress.step(f"predicting {source.name}") as step:
            return _run(work, parts, step, config.timeouts.connect)


def _run(work: _Work, parts: _Parts, step: StepProgress, patience: float) -> int:
    parts.prepare()
    if parts.rows:
        log.info("going on after %s rows that are there already", f"{parts.rows:,}")
        step.advance(parts.rows)
    _persist(lambda: _predict(work, parts, step), parts, patience)
    if not parts.rows:
        raise ConfigurationError(f"{work.path}: has no rows")
    parts.put_together()
    return parts.rows


def _persist(attempt: Callable[[], None], parts: _Parts, patience: float) -> None:
    """Try again while the peer is lost or busy, unless nothing has come for `patience` seconds."""
    moved, rows = time.monotonic(), parts.rows
    while True:
        try:
            attempt()
        except (PeerLost, PeerBusy) as error:
            if parts.rows > rows:
                moved, rows = time.monotonic(), parts.rows
            if time.monotonic() - moved > patience:
                raise
            pause = error.retry_after if isinstance(error, PeerBusy) else _PAUSE
            log.warning("%s; trying again in %.1f s", error.reason, pause)
            time.sleep(pause)
        else:
            return


def _predict(work: _Work, parts: _Parts, step: StepProgress) -> None:
    """From where the parts end to the end of the file."""
    kept: list[pa.Table] = []
    count = 0
    try:
        for table, share in work.predicted(skip=parts.rows):
            kept.append(table)
            count += table.num_rows
            step.expect(int((parts.rows + count) / share))
            step.advance(table.num_rows)
            if count >= PART_ROWS:
                parts.add(pa.concat_tables(kept))
                kept, count = [], 0
        if count:
            parts.add(pa.concat_tables(kept))
            count = 0
    finally:
        step.advance(-count)  # what is lost comes again


class _Work:
    """The rows of a file with their predictions."""

    def __init__(self, client: PredictionClient, file: TableFiles, id_column: str) -> None:
        self._client = client
        self._file = file
        self._id = id_column if id_column in file.names else None
        if client.by_id and self._id is None:
            raise ConfigurationError(
                f"{file.path}: has no column {id_column!r}; the peer has features of its own, so "
                "people are asked for by their IDs"
            )

    @property
    def path(self) -> Path:
        return self._file.path

    def identity(self) -> dict[str, object]:
        """Of what is predicted, and by what."""
        stamps = self._file.stamp()
        return {
            "input": str(self._file.path.absolute()),
            "bytes": sum(stamp.size for stamp in stamps),
            "modified": max((stamp.modified for stamp in stamps), default=0),
            "model": self._client.model,
        }

    def predicted(self, skip: int) -> Iterator[tuple[pa.Table, float]]:
        """Results from row `skip` on, and the share of the file that has been read."""
        columns = self._client.columns
        ids = [] if self._id is None else [self._id]
        features = [] if self._client.by_id else [*columns.numeric, *columns.categorical]
        chunks = self._file.batches([*ids, *features], CHUNK_ROWS, skip)
        if self._client.by_id:
            for table, share in chunks:
                found = self._client.predict_people(table.column(self._id))
                yield self._result(table.select(ids), found), share
            return
        under_way: deque[tuple[pa.Table, float]] = deque()

        def tables() -> Iterator[pa.Table]:
            for table, share in chunks:
                under_way.append((table.select(ids), share))
                yield table

        for found in self._client.predict_batches(tables(), str(self._file.path)):
            identified, share = under_way.popleft()
            yield self._result(identified, found), share

    def _result(self, ids: pa.Table, found: npt.NDArray[np.float32]) -> pa.Table:
        if found.ndim == 1:
            columns = {PROBABILITY: found}
        else:
            columns = {f"{PROBABILITY}_{k}": found[:, k] for k in range(found.shape[1])}
        named = dict(zip(ids.column_names, ids.columns, strict=True))
        arrays = {name: pa.array(np.ascontiguousarray(values)) for name, values in columns.items()}
        return pa.table({**named, **arrays})


class _Parts:
    """Finished rows on disk."""

    def __init__(self, target: Path, identity: dict[str, object], *, fresh: bool) -> None:
        self._target = target
        self._folder = target.with_name(f"{target.name}.parts")
        self._identity = identity
        self._fresh = fresh
        self._paths: list[Path] = []
        #: Of all parts together.
        self.rows = 0
        self.locked = RunDirectory(self._folder).locked

    def prepare(self) -> None:
        """Find out what there is.

        Raises:
            ConfigurationError: it is of another file or model.
        """
        job = self._folder / "job.json"
        text = json.dumps(self._identity, indent=2, sort_keys=True) + "\n"
        if job.exists() and job.read_text(encoding="utf-8") != text:
            if not self._fresh:
                raise ConfigurationError(
                    f"{self._folder}: holds parts of another input or model; finish that first, or "
                    "begin anew with --force"
                )
            for path in self._folder.glob("part-*.parquet"):
                path.unlink()
        job.write_text(text, encoding="utf-8")
        while (path := self._path(len(self._paths))).exists():
            self._paths.append(path)
            self.rows += parquet.read_metadata(path).num_rows

    def add(self, table: pa.Table) -> None:
        """Write a part, whole or not at all."""
        path = self._path(len(self._paths))
        aside = path.with_suffix(".new")
        parquet.write_table(table, aside)
        aside.replace(path)
        self._paths.append(path)
        self.rows += table.num_rows

    def put_together(self) -> None:
        """All parts as one file, in place of the folder."""
        aside = self._folder / "whole.new"
        with parquet.ParquetWriter(aside, parquet.read_schema(self._paths[0])) as writer:
            for path in self._paths:
                writer.write_table(parquet.read_table(path))
        with aside.open("rb") as written:
            os.fsync(written.fileno())
        aside.replace(self._target)
        shutil.rmtree(self._folder)

    def _path(self, number: int) -> Path:
        return self._folder / f"part-{number:06d}.parquet"
