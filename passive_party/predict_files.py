"""Predict files of any size: rows are read, predicted and written in parts.

    out.parquet.parts/     during the run
      job.json             the input and the model
      part-000000.parquet  completed rows, in the order of the file
    out.parquet            all parts, once the run is complete

The result may also be a CSV file; its parts are Parquet files nevertheless.

A run that was stopped resumes after its last completed part. A run resumes by itself when the peer
was unreachable or busy for a while.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.core.errors import ConfigurationError, PeerLost
from florist.common.data.table_files import open_table
from florist.common.session.run_directory import RunDirectory
from florist.common.transport.grpc_prediction_client import PeerBusy
from florist.passive_party.serving import PredictionClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy.typing as npt

    from florist.common.core.clock import Clock
    from florist.common.core.progress import Progress, StepProgress
    from florist.common.data.table_files import TableFiles
    from florist.common.settings.party_config import PartyConfig

log = logging.getLogger("florist.predict")

#: Rows that are read at a time.
CHUNK_ROWS = 1 << 14
#: Rows per part: at most this many are predicted again after a run was stopped.
PART_ROWS = 1 << 16

#: Seconds between attempts while the peer is unreachable.
_RETRY_DELAY = 2.0

PROBABILITY = "probability"


def predict_file(
    config: PartyConfig,
    source: Path,
    target: Path,
    progress: Progress,
    *,
    force: bool = False,
    plaintext: bool = False,
    clock: Clock = SYSTEM_CLOCK,
) -> int:
    """Predict all rows of a file that has the columns of the training table.

    The result has the ID column, if the file has it, and `probability`, or with more than two
    classes `probability_0`, `probability_1` and so on.

    Args:
        config: the passive party's; the file has the format and delimiter of `data.train`.
        source: a .csv, .tsv, .txt (each also with .gz) or .parquet file, or a folder of them.
        target: a .parquet, .csv or .tsv file; the texts also with .gz.
        progress: reports the rows done.
        force: replace `target`, and start over if the parts of an earlier run do not match.
        plaintext: no TLS; only for tests on one machine.
        clock: measures and waits; tests replace it.

    Returns:
        The number of rows.

    Raises:
        ConfigurationError: a file cannot be used, and why.
        FloristError: the peer refuses, or is unreachable for longer than `timeouts.connect`.
    """
    files = open_table(config.data.train.model_copy(update={"path": source}))
    result_format = _result_format(target)
    if target.exists() and not force:
        raise ConfigurationError(f"{target}: already exists; specify another file, or use --force")
    with PredictionClient.connect(config, plaintext=plaintext) as client:
        predictor = _FilePredictor(client, files, config.data.train.id_column)
        parts = _PartFiles(target, result_format, predictor.identity(), start_over=force)
        with parts.locked(), progress.step(f"predicting {source.name}") as step:
            parts.prepare()
            if parts.rows:
                log.info("resuming after %s rows", f"{parts.rows:,}")
                step.advance(parts.rows)
            work = partial(_predict, predictor, parts, step)
            _retry(work, parts, config.timeouts.connect, clock)
            parts.join()
            return parts.rows


def _retry(work: Callable[[], None], parts: _PartFiles, timeout: float, clock: Clock) -> None:
    """Retry while the peer is unreachable or busy, but only `timeout` seconds without progress."""
    last_progress, rows = clock.now(), parts.rows
    while True:
        try:
            work()
        except (PeerLost, PeerBusy) as error:
            if parts.rows > rows:
                last_progress, rows = clock.now(), parts.rows
            if clock.now() - last_progress > timeout:
                raise
            delay = error.retry_after if isinstance(error, PeerBusy) else _RETRY_DELAY
            log.warning("%s; retrying in %.1f s", error.reason, delay)
            clock.sleep(delay)
        else:
            return


def _predict(predictor: _FilePredictor, parts: _PartFiles, step: StepProgress) -> None:
    """Predict the rows after the last part."""
    pending: list[pa.Table] = []
    count = 0
    try:
        for table, fraction in predictor.predict(skip=parts.rows):
            pending.append(table)
            count += table.num_rows
            step.expect(int((parts.rows + count) / fraction))
            step.advance(table.num_rows)
            if count >= PART_ROWS:
                parts.add(pa.concat_tables(pending))
                pending, count = [], 0
        if count:
            parts.add(pa.concat_tables(pending))
            count = 0
    finally:
        step.advance(-count)  # rows that were not saved are predicted again


class _FilePredictor:
    """Predicts the rows of a table."""

    def __init__(self, client: PredictionClient, files: TableFiles, id_column: str) -> None:
        self._client = client
        self._files = files
        self._id = id_column if id_column in files.names else None
        if client.by_id and self._id is None:
            raise ConfigurationError(
                f"{files.path}: has no column {id_column!r}; the peer has features of its own, so "
                "predictions are requested by ID"
            )

    def identity(self) -> dict[str, object]:
        """Return what identifies input and model; only a run with the same ones is resumed."""
        stamps = self._files.stamp()
        return {
            "input": str(self._files.path.absolute()),
            "bytes": sum(stamp.size for stamp in stamps),
            "modified": max((stamp.modified for stamp in stamps), default=0),
            "model": self._client.model,
        }

    def predict(self, skip: int) -> Iterator[tuple[pa.Table, float]]:
        """Yield the results after the first `skip` rows, and the fraction of the file read."""
        ids = [] if self._id is None else [self._id]
        features = [] if self._client.by_id else self._client.columns.names
        chunks = self._files.batches([*ids, *features], CHUNK_ROWS, skip)
        if self._client.by_id:
            for table, fraction in chunks:
                probabilities = self._client.predict_people(table.column(self._id))
                yield self._result(table.select(ids), probabilities), fraction
            return
        open_requests: deque[tuple[pa.Table, float]] = deque()

        def tables() -> Iterator[pa.Table]:
            for table, fraction in chunks:
                open_requests.append((table.select(ids), fraction))
                yield table

        for probabilities in self._client.predict_batches(tables(), str(self._files.path)):
            own_ids, fraction = open_requests.popleft()
            yield self._result(own_ids, probabilities), fraction

    def _result(self, ids: pa.Table, probabilities: npt.NDArray[np.float32]) -> pa.Table:
        if probabilities.ndim == 1:
            columns = {PROBABILITY: probabilities}
        else:
            columns = {
                f"{PROBABILITY}_{number}": probabilities[:, number]
                for number in range(probabilities.shape[1])
            }
        named = dict(zip(ids.column_names, ids.columns, strict=True))
        arrays = {name: pa.array(np.ascontiguousarray(values)) for name, values in columns.items()}
        return pa.table({**named, **arrays})


@dataclass(frozen=True, slots=True)
class _ResultFormat:
    """The format of the result. `delimiter` is None for Parquet."""

    delimiter: str | None
    is_compressed: bool

    @contextmanager
    def writer(self, path: Path, schema: pa.Schema) -> Iterator[_TableWriter]:
        """Open a file for tables of this schema."""
        if self.delimiter is None:
            with parquet.ParquetWriter(path, schema) as writer:
                yield writer
            return
        with (
            pa.output_stream(path, compression="gzip" if self.is_compressed else None) as stream,
            csv.CSVWriter(
                stream, schema, write_options=csv.WriteOptions(delimiter=self.delimiter)
            ) as writer,
        ):
            yield writer


class _TableWriter(Protocol):
    def write_table(self, table: pa.Table) -> None: ...


def _result_format(target: Path) -> _ResultFormat:
    """Return the format that the name of the file asks for.

    Raises:
        ConfigurationError: the name has another ending.
    """
    name = target.name.lower()
    is_compressed = name.endswith(".gz")
    match name.removesuffix(".gz").rpartition(".")[2]:
        case "parquet" if not is_compressed:
            return _ResultFormat(None, is_compressed=False)
        case "csv":
            return _ResultFormat(",", is_compressed)
        case "tsv":
            return _ResultFormat("\t", is_compressed)
    raise ConfigurationError(
        f"{target}: the file name must end in .parquet, .csv or .tsv (the latter two also with .gz)"
    )


class _PartFiles:
    """Completed parts on disk."""

    def __init__(
        self,
        target: Path,
        result_format: _ResultFormat,
        identity: dict[str, object],
        *,
        start_over: bool,
    ) -> None:
        self._target = target
        self._format = result_format
        self._folder = target.with_name(f"{target.name}.parts")
        self._identity = identity
        self._start_over = start_over
        self._paths: list[Path] = []
        #: The number of rows of all parts.
        self.rows = 0
        self.locked = RunDirectory(self._folder).locked

    def prepare(self) -> None:
        """Find the parts of an earlier run.

        Raises:
            ConfigurationError: they belong to another input or model.
        """
        job = self._folder / "job.json"
        text = json.dumps(self._identity, indent=2, sort_keys=True) + "\n"
        if job.exists() and job.read_text(encoding="utf-8") != text:
            if not self._start_over:
                raise ConfigurationError(
                    f"{self._folder}: contains parts of another input or model; complete that run "
                    "first, or start over with --force"
                )
            for path in self._folder.glob("part-*.parquet"):
                path.unlink()
        job.write_text(text, encoding="utf-8")
        while (path := self._path(len(self._paths))).exists():
            self._paths.append(path)
            self.rows += parquet.read_metadata(path).num_rows

    def add(self, table: pa.Table) -> None:
        """Write a part atomically."""
        path = self._path(len(self._paths))
        temporary = path.with_suffix(".new")
        parquet.write_table(table, temporary)
        temporary.replace(path)
        self._paths.append(path)
        self.rows += table.num_rows

    def join(self) -> None:
        """Join all parts in the target file, and delete the folder."""
        temporary = self._folder / "whole.new"
        with self._format.writer(temporary, parquet.read_schema(self._paths[0])) as writer:
            for path in self._paths:
                writer.write_table(parquet.read_table(path))
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(self._target)
        shutil.rmtree(self._folder)

    def _path(self, number: int) -> Path:
        return self._folder / f"part-{number:06d}.parquet"
