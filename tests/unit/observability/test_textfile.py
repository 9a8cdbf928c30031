"""The file that tells Prometheus how a party ended, and the budget that is left."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from florist.common.core.errors import ConfigurationError, Interrupted, PeerLost
from florist.common.observability.budget import BudgetLeft
from florist.common.observability.textfile import TEXTFILE_METRICS, recording_end
from florist.common.privacy.ledger import open_ledger
from florist.common.settings.loader import parse_config
from florist.common.storage.id_column import IdColumn
from tests.support.observability import parsed

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.settings.party_config import PartyConfig

LABELS = (("party", "bank"), ("peer", "telco"), ("role", "active"))


def configuration(
    folder: Path, textfile: str = "metrics/bank.prom", privacy: str = "{}", union: str = "{}"
) -> PartyConfig:
    text = f"""\
party: {{name: bank, peer: telco}}
network: {{address: "localhost:7000"}}
data: {{train: {{path: people.csv, id_column: id}}}}
run_directory: runs/first
observability: {{textfile: {textfile}}}
privacy: {privacy}
agreement: {{union: {union}}}
"""
    return parse_config(text, folder=folder, source="file")


def read(folder: Path) -> dict[str, float]:
    found = parsed((folder / "metrics/bank.prom").read_text())
    assert {labels for _, labels in found} == {LABELS}
    return {name: value for (name, _), value in found.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "metrics").mkdir()
    return tmp_path


def test_a_run_that_finishes(folder: Path) -> None:
    with recording_end("active", configuration(folder)):
        running = read(folder)
    assert running == {"florist_failed": 0, "florist_privacy_budget_left": 1}
    ended = read(folder)
    assert ended.keys() == TEXTFILE_METRICS.keys()
    assert (ended["florist_failed"], ended["florist_exit_code"]) == (0, 0)
    assert ended["florist_ended_timestamp_seconds"] > 1.7e9
    file = folder / "metrics/bank.prom"
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize(
    ("error", "code", "failed"),
    [
        (PeerLost("lost"), 3, 1),
        (ConfigurationError("wrong"), 2, 1),
        (ValueError("a bug"), 70, 1),
        (KeyboardInterrupt(), Interrupted.exit_code, 0),
    ],
)
def test_a_run_that_ends_early(folder: Path, error: BaseException, code: int, failed: int) -> None:
    with pytest.raises(type(error)), recording_end("active", configuration(folder)):
        raise error
    ended = read(folder)
    assert (ended["florist_exit_code"], ended["florist_failed"]) == (code, failed)


def test_a_missing_folder_is_reported_before_the_run(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    with (
        pytest.raises(ConfigurationError, match=r"observability\.textfile: .*create its folder"),
        recording_end("active", config),
    ):
        pytest.fail("it must not start")


def test_without_a_file_nothing_is_written(tmp_path: Path) -> None:
    with recording_end("active", configuration(tmp_path, "null")):
        pass
    assert not list(tmp_path.iterdir())


def test_the_name_must_be_one_that_the_collector_reads(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"observability\.textfile.*\.prom"):
        configuration(tmp_path, "metrics/bank.txt")


def test_the_budget_that_is_left(folder: Path) -> None:
    privacy = "{budget: {epsilon: 4.0, delta: 1.0e-6}, minimum_change: 0}"
    config = configuration(
        folder, privacy=privacy, union="{privacy: {epsilon: 1.0, delta: 1.0e-7}}"
    )
    assert BudgetLeft(config).fraction() == 1
    people = IdColumn.from_bytes(f"person {number}".encode() for number in range(100))
    for left in (0.75, 0.5):
        with open_ledger(config) as ledger:
            ledger.prepare({"train": people})
            ledger.charge("train", 180)
            ledger.settle("train", "finished", peer_size=7, union_size=9)
        assert BudgetLeft(config).fraction() == pytest.approx(left)
    assert BudgetLeft(configuration(folder, privacy="{budget: null}")).fraction() is None
