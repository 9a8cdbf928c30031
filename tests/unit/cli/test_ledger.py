"""`florist ledger`: the charges as a table, JSON and CSV; a damaged ledger is refused."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from typer.testing import CliRunner

from florist.cli.ledger import describe_ledger, load_ledger
from florist.cli.tool import app
from florist.common.core.errors import ConfigurationError
from florist.common.privacy.ledger import ledger_folder, open_ledger
from florist.common.settings.agreement import AggregatePrivacy
from florist.common.settings.loader import load_config
from florist.common.storage.id_column import IdColumn

if TYPE_CHECKING:
    from pathlib import Path

IDS = IdColumn.from_bytes([b"a", b"b", b"c"])


def ledger(config: Path, *arguments: str) -> str:
    result = CliRunner().invoke(
        app,
        ["ledger", "--config", str(config), *arguments],
        catch_exceptions=False,
    )
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A party whose ledger has a finished and an interrupted union."""
    path = tmp_path / "active.yml"
    path.write_text(
        "party: {name: clinic, peer: bank}\n"
        'network: {address: "localhost:7000"}\n'
        "data: {train: {path: people.csv, id_column: id}}\n"
        "run_directory: runs/first\n"
    )
    with open_ledger(load_config(path)) as opened:
        opened.prepare({"train": IDS, "test": IDS})
        opened.charge("train", 1234)
        opened.settle("train", "finished", peer_size=5678, union_size=6789)
        opened.charge("test", 77)
    return path


def test_the_table_has_all_charges_and_the_sum(config: Path) -> None:
    screen = io.StringIO()
    settings = load_config(config)
    describe_ledger(settings, load_ledger(settings), Console(file=screen, width=250))
    printed = screen.getvalue()
    assert "Privacy ledger of clinic with bank" in printed
    for text in ("1,234", "5,678", "6,789", "finished", "not recorded", "77"):
        assert text in printed
    assert "clinic with bank" in ledger(config)
    assert "Spent: epsilon 2 and delta 2e-09, by basic composition, of epsilon 10" in printed


def test_exports(config: Path) -> None:
    first, second = json.loads(ledger(config, "--export", "json"))
    assert (first["own_size"], first["peer_size"], first["outcome"]) == (1234, 5678, "finished")
    assert (second["peer_size"], second["epsilon"], second["delta"]) == (None, 1.0, 1e-9)
    rows = list(csv.DictReader(ledger(config, "--export", "csv").splitlines()))
    assert [row["own_size"] for row in rows] == ["1234", "77"]
    assert rows[0].keys() == first.keys()


def test_a_label_aggregate(config: Path) -> None:
    settings = load_config(config)
    with open_ledger(settings) as opened:
        opened.charge_aggregate(AggregatePrivacy(epsilon=4.0), 4321)
        opened.settle_aggregate("finished")
    screen = io.StringIO()
    describe_ledger(settings, load_ledger(settings), Console(file=screen, width=250))
    printed = screen.getvalue()
    assert "train, labels" in printed
    assert "4,321" in printed
    assert "Spent: epsilon 6 and delta 1.02e-07, by basic composition" in printed
    last = json.loads(ledger(config, "--export", "json"))[-1]
    assert (last["announced"], last["epsilon"], last["delta"]) == ("labels", 4.0, 1e-7)
    assert (last["peer_size"], last["outcome"]) == (None, "finished")


def test_verification(config: Path) -> None:
    assert "4 entries, unchanged" in ledger(config, "--verify")
    path = ledger_folder(load_config(config)) / "ledger.jsonl"
    path.write_text(path.read_text().replace("1234", "1235"))
    with pytest.raises(ConfigurationError, match="line 2 was changed or damaged"):
        ledger(config, "--verify")


def test_there_is_no_ledger_yet(config: Path) -> None:
    text = config.read_text().replace("peer: bank", "peer: insurer")
    config.write_text(text)
    with pytest.raises(ConfigurationError, match="no ledger with insurer yet"):
        ledger(config)
    assert not ledger_folder(load_config(config)).exists()
