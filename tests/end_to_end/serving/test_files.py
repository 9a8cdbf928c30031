"""Predicting files of any size: in order, and resumed after an interruption."""

from __future__ import annotations

import csv as python_csv
import gzip
import io
import json
from threading import Timer
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from florist.active_party.serving import ModelPredictionHandler, make_service
from florist.common.core.errors import ConfigurationError, Interrupted, PeerLost
from florist.common.core.progress import NoProgress
from florist.common.data.raw_table import convert_features
from florist.common.transport.grpc_prediction_client import ServingRefused
from florist.passive_party import predict_files
from florist.passive_party.predict_files import predict_file
from tests.support.clocks import FakeClock
from tests.support.serving import client_of, config_of, halves, service, table_of, whole_model

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from tests.support.parties import Workspace

#: Small, so that a small file has many parts.
CHUNK, PART = 100, 300
#: Seconds.
RETRY_DELAY = 0.25


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict_files, "CHUNK_ROWS", CHUNK)
    monkeypatch.setattr(predict_files, "PART_ROWS", PART)
    monkeypatch.setattr(predict_files, "_RETRY_DELAY", RETRY_DELAY)


def many_rows(workspace: Workspace, count: int) -> pa.Table:
    """IDs and features of more rows than the table has."""
    raw = table_of(workspace, "passive")
    rows = np.arange(count) % len(raw)
    columns = raw.columns.take(pa.array(rows))
    names = pa.array([f"row {number}" for number in range(count)])
    return columns.append_column("person_id", names)


def id_column(workspace: Workspace) -> str:
    return config_of(workspace, "passive").data.train.id_column


def truth(workspace: Workspace, table: pa.Table) -> npt.NDArray[np.float32]:
    preprocessing = halves(workspace)[1].preprocessing
    raw = convert_features("", table, preprocessing.features)
    return whole_model(workspace, preprocessing.transform(raw))


class StopAfter(NoProgress):
    """Stops the run after some rows, like an operator."""

    def __init__(self, rows: int) -> None:
        self.left = rows

    def advance(self, done: int) -> None:
        self.left -= done
        if self.left <= 0 and done > 0:
            raise Interrupted("stopped by the test")


class Counting(NoProgress):
    def __init__(self) -> None:
        self.done = 0
        self.total = 0

    def advance(self, done: int) -> None:
        self.done += done

    def expect(self, total: int) -> None:
        self.total = total


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_file_of_many_parts(plain: Workspace, tmp_path: Path, ending: str) -> None:
    table = many_rows(plain, 1234).rename_columns(
        [name if name != "person_id" else id_column(plain) for name in _names(plain)]
    )
    source, target = tmp_path / f"rows.{ending}", tmp_path / "out.parquet"
    (csv.write_csv if ending == "csv" else parquet.write_table)(table, source)
    seen = Counting()
    with service(plain) as server:
        config = config_of(plain, "passive", server.address)
        assert predict_file(config, source, target, seen) == 1234
    found = parquet.read_table(target)
    assert found.column_names == [id_column(plain), "probability"]
    assert found.column(0).to_pylist() == table.column(id_column(plain)).to_pylist()
    np.testing.assert_allclose(found.column(1).to_numpy(), truth(plain, table), atol=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.parquet", source.name]
    assert seen.done == seen.total == 1234


def test_a_folder_of_files(plain: Workspace, tmp_path: Path) -> None:
    table = many_rows(plain, 700)
    source, target = tmp_path / "rows", tmp_path / "out.parquet"
    source.mkdir()
    for part in range(3):
        parquet.write_table(table.slice(part * 250, 250), source / f"part-{part}.parquet")
    with service(plain) as server:
        config = config_of(plain, "passive", server.address)
        with pytest.raises(Interrupted):
            predict_file(config, source, target, StopAfter(500))
        assert predict_file(config, source, target, NoProgress()) == 700
    found = parquet.read_table(target).column("probability").to_numpy()
    np.testing.assert_allclose(found, truth(plain, table), atol=1e-6)


def _names(workspace: Workspace) -> list[str]:
    return [*table_of(workspace, "passive").columns.column_names, "person_id"]


def test_without_ids_the_result_has_only_predictions(plain: Workspace, tmp_path: Path) -> None:
    table = many_rows(plain, 150).drop_columns("person_id")
    parquet.write_table(table, tmp_path / "rows.parquet")
    with service(plain) as server:
        config = config_of(plain, "passive", server.address)
        target = tmp_path / "out.parquet"
        predict_file(config, tmp_path / "rows.parquet", target, NoProgress())
    assert parquet.read_table(target).column_names == ["probability"]


def test_a_stopped_run_resumes(plain: Workspace, tmp_path: Path) -> None:
    table = many_rows(plain, 1000)
    source, target = tmp_path / "rows.csv", tmp_path / "out.parquet"
    csv.write_csv(table, source)
    with service(plain) as server:
        config = config_of(plain, "passive", server.address)
        with pytest.raises(Interrupted):
            predict_file(config, source, target, StopAfter(750))
        assert not target.exists()
        kept = sorted((tmp_path / "out.parquet.parts").glob("part-*.parquet"))
        assert [parquet.read_metadata(path).num_rows for path in kept] == [PART, PART]
        desk, seen = server._handler, Counting()
        assert isinstance(desk, ModelPredictionHandler)
        asked = desk._batcher.requests
        assert predict_file(config, source, target, seen) == 1000
        assert seen.done == 1000
        assert desk._batcher.requests - asked == 4, "only what was not there yet is asked for"
    np.testing.assert_allclose(
        parquet.read_table(target).column("probability").to_numpy(), truth(plain, table), atol=1e-6
    )
    assert not (tmp_path / "out.parquet.parts").exists()


@pytest.mark.parametrize(("ending", "delimiter"), [("csv", ","), ("CSV.gz", ","), ("tsv", "\t")])
def test_the_result_may_be_a_text_file(
    plain: Workspace, tmp_path: Path, ending: str, delimiter: str
) -> None:
    """Resumed like the Parquet file, and IDs keep their exact texts."""
    table = many_rows(plain, 700)
    ids = [f'{number:05d},"a"\t' for number in range(700)]
    table = table.drop_columns("person_id").append_column(id_column(plain), pa.array(ids))
    source, target = tmp_path / "rows.parquet", tmp_path / f"out.{ending}"
    parquet.write_table(table, source)
    with service(plain) as server:
        config = config_of(plain, "passive", server.address)
        with pytest.raises(Interrupted):
            predict_file(config, source, target, StopAfter(500))
        assert not target.exists()
        assert predict_file(config, source, target, NoProgress()) == 700
    content = target.read_bytes()
    text = (gzip.decompress(content) if ending.endswith("gz") else content).decode()
    names, *rows = python_csv.reader(io.StringIO(text), delimiter=delimiter)
    assert names == [id_column(plain), "probability"]
    assert [row[0] for row in rows] == ids
    np.testing.assert_allclose(
        [float(row[1]) for row in rows], truth(plain, table), atol=1e-6, rtol=0
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == [target.name, "rows.parquet"]


def test_a_run_survives_a_restart_of_the_service(plain: Workspace, tmp_path: Path) -> None:
    table = many_rows(plain, 1000)
    source, target = tmp_path / "rows.csv", tmp_path / "out.parquet"
    csv.write_csv(table, source)
    with service(plain) as server:
        address = server.address

        class StopService(NoProgress):
            rows = 0

            def advance(self, done: int) -> None:
                self.rows += done
                if self.rows >= 400 and server._server is not None:
                    running, server._server = server._server, None
                    running.stop(None).wait(5)
                    Timer(0.5, restarted.start).start()

        restarted = make_service(config_of(plain, "active", address), plaintext=False)
        try:
            config = config_of(plain, "passive", address)
            assert predict_file(config, source, target, StopService()) == 1000
        finally:
            restarted.close()
    np.testing.assert_allclose(
        parquet.read_table(target).column("probability").to_numpy(), truth(plain, table), atol=1e-6
    )


def test_a_run_fails_if_the_service_stays_unreachable(plain: Workspace, tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    csv.write_csv(many_rows(plain, 700), source)
    with service(plain) as server:
        config = config_of(plain, "passive", server.address)
        config = config.model_copy(
            update={"timeouts": config.timeouts.model_copy(update={"connect": 1.0})}
        )

        class StopService(NoProgress):
            def advance(self, done: int) -> None:
                if done > 0 and server._server is not None:
                    running, server._server = server._server, None
                    running.stop(None).wait(5)

        clock = FakeClock()
        with pytest.raises(PeerLost, match="does not serve predictions now"):
            predict_file(config, source, tmp_path / "out.parquet", StopService(), clock=clock)
        assert clock.sleeps == [RETRY_DELAY] * 5, "for longer than `timeouts.connect`"


def test_a_run_waits_for_the_row_limit(plain: Workspace, tmp_path: Path) -> None:
    source, target = tmp_path / "rows.csv", tmp_path / "out.parquet"
    csv.write_csv(many_rows(plain, 700), source)
    with service(plain, limits={"rows_per_minute": 6000, "rows_per_request": 100}) as server:
        with client_of(plain, server.address) as greedy:
            rows = many_rows(plain, 100)
            for _ in range(55):
                greedy.predict(rows)
        config = config_of(plain, "passive", server.address)
        assert predict_file(config, source, target, NoProgress()) == 700


def test_people_by_id(featured: Workspace, tmp_path: Path) -> None:
    ids = [identifier.decode() for identifier in table_of(featured, "passive").ids]
    source, target = tmp_path / "people.csv", tmp_path / "out.parquet"
    csv.write_csv(pa.table({id_column(featured): ids}), source)
    with service(featured) as server:
        config = config_of(featured, "passive", server.address)
        assert predict_file(config, source, target, NoProgress()) == len(ids)
        with client_of(featured, server.address) as client:
            answers = client.predict_people(ids)
        csv.write_csv(pa.table({"other": ids}), source)
        with pytest.raises(ConfigurationError, match="predictions are requested by ID"):
            predict_file(config, source, tmp_path / "other.parquet", NoProgress())
    np.testing.assert_array_equal(
        parquet.read_table(target).column("probability").to_numpy(), answers
    )


# --- errors, before any traffic where possible ---


@pytest.mark.parametrize(
    ("source", "target", "problem"),
    [
        ("absent.csv", "out.parquet", "absent.csv: no such file"),
        ("rows.csv", "out.xlsx", "out.xlsx: the file name must end in .parquet, .csv or .tsv"),
        ("rows.csv", "out.parquet.gz", "out.parquet.gz: the file name must end in"),
        ("rows.csv", "there.parquet", "there.parquet: already exists; specify another"),
        ("rows.xlsx", "out.parquet", "the file name must end in .csv"),
    ],
)
def test_files_are_checked_first(
    plain: Workspace, tmp_path: Path, source: str, target: str, problem: str
) -> None:
    for name in ("rows.csv", "rows.xlsx", "there.parquet"):
        (tmp_path / name).write_text("a,b\n1,2\n")
    config = config_of(plain, "passive", "127.0.0.1:1")
    with pytest.raises(ConfigurationError, match=problem):
        predict_file(config, tmp_path / source, tmp_path / target, NoProgress())


def test_errors_about_contents_name_file_and_column(plain: Workspace, tmp_path: Path) -> None:
    table = many_rows(plain, 350)
    numeric = table_of(plain, "passive").features.numeric[0]
    texts = ["1"] * 349 + ["many"]
    place = table.column_names.index(numeric)
    source, target = tmp_path / "rows.csv", tmp_path / "out.parquet"
    csv.write_csv(table.set_column(place, numeric, pa.array(texts)), source)
    with service(plain) as server:
        config = config_of(plain, "passive", server.address)
        with pytest.raises(ConfigurationError, match=rf"rows\.csv, column '{numeric}': .*'many'"):
            predict_file(config, source, target, NoProgress())
        csv.write_csv(table.drop_columns(numeric), source)
        with pytest.raises(ConfigurationError, match=f"has no column '{numeric}'"):
            predict_file(config, source, target, NoProgress(), force=True)
        csv.write_csv(table.slice(0, 0), source)
        with pytest.raises(ConfigurationError, match="has no rows"):
            predict_file(config, source, target, NoProgress(), force=True)


def test_parts_of_another_input_or_model_are_not_mixed(plain: Workspace, tmp_path: Path) -> None:
    source, target = tmp_path / "rows.csv", tmp_path / "out.parquet"
    csv.write_csv(many_rows(plain, 700), source)
    with service(plain) as server:
        config = config_of(plain, "passive", server.address)
        with pytest.raises(Interrupted):
            predict_file(config, source, target, StopAfter(500))
        csv.write_csv(many_rows(plain, 650), source)
        with pytest.raises(ConfigurationError, match="parts of another input or model"):
            predict_file(config, source, target, NoProgress())
        assert predict_file(config, source, target, NoProgress(), force=True) == 650
        job = json.dumps({"model": "another"})
        (tmp_path / "new.parquet.parts").mkdir()
        (tmp_path / "new.parquet.parts" / "job.json").write_text(job)
        with pytest.raises(ConfigurationError, match="parts of another input or model"):
            predict_file(config, source, tmp_path / "new.parquet", NoProgress())


def test_a_run_with_another_model_is_refused(
    plain: Workspace, featured: Workspace, tmp_path: Path
) -> None:
    source = tmp_path / "rows.csv"
    csv.write_csv(many_rows(plain, 200), source)
    network = config_of(featured, "passive").network
    with service(featured) as server:
        config = config_of(plain, "passive", server.address)
        config = config.model_copy(update={"network": network})
        with pytest.raises(ServingRefused):
            predict_file(config, source, tmp_path / "out.parquet", NoProgress())
