"""The privacy ledger: charges, the budget, the difference guard, the lock."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from florist.common.core.errors import ConfigurationError
from florist.common.privacy.ledger import (
    charges,
    history,
    ledger_folder,
    open_ledger,
    settlements,
    total_cost,
)
from florist.common.privacy.ledger_file import read_ledger
from florist.common.settings.loader import parse_config
from florist.common.storage.id_column import IdColumn

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.privacy.ledger_entries import Entry
    from florist.common.settings.party_config import PartyConfig


def configuration(folder: Path, *, union: str = "{}", privacy: str = "{}") -> PartyConfig:
    text = f"""\
party: {{name: clinic, peer: bank}}
network: {{address: "localhost:7000"}}
data: {{train: {{path: people.csv, id_column: id}}}}
run_directory: runs/first
privacy: {privacy}
agreement: {{union: {union}}}
"""
    return parse_config(text, folder=folder, source="file")


def people(first: int, last: int) -> IdColumn:
    return IdColumn.from_bytes(f"person {number}".encode() for number in range(first, last))


def entries(config: PartyConfig) -> tuple[Entry, ...]:
    return read_ledger(ledger_folder(config))[0].entries


def run(config: PartyConfig, ids: IdColumn, *, outcome: Any = "finished", **more: Any) -> None:  # noqa: ANN401
    """Take part in one union."""
    with open_ledger(config) as ledger:
        ledger.prepare({"train": ids}, **more)
        ledger.check_budget(1)
        ledger.charge("train", len(ids) + 80)
        if outcome:
            ledger.settle("train", outcome, peer_size=7, union_size=9)


def test_charges_and_outcomes_are_recorded(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    run(config, people(0, 50))
    run(config, people(0, 50), outcome="failed")
    folder = tmp_path / "runs" / "ledger" / "clinic-with-bank"
    assert ledger_folder(config) == folder
    first, second = charges(entries(config))
    assert (first.number, first.table, first.own_size) == (1, "train", 130)
    assert (first.epsilon, first.delta) == (1.0, 1e-9)
    assert first.set_digest == second.set_digest
    assert len(first.set_digest or "") == len(first.agreement_digest) == 64
    outcomes = settlements(entries(config))
    assert [outcomes[number].outcome for number in (1, 2)] == ["finished", "failed"]
    assert (outcomes[1].peer_size, outcomes[1].union_size) == (7, 9)
    total = total_cost([first, second])
    assert total is not None
    assert tuple(map(float, total)) == (2.0, 2e-9)


def test_the_files_are_private_and_contain_no_ids(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    run(config, people(0, 50))
    files = [path for path in ledger_folder(config).iterdir() if path.is_file()]
    assert {path.name for path in files} == {
        ".lock",
        "ledger.head",
        "ledger.jsonl",
        "ledger.key",
        "train.hashes",
    }
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert b"person" not in path.read_bytes()
    assert stat.S_IMODE(ledger_folder(config).stat().st_mode) == 0o700


def test_a_digest_depends_on_the_set_and_on_the_key_only(tmp_path: Path) -> None:
    digests = []
    for name, ids in [
        ("one", people(0, 50)),
        ("one", people(0, 50).take(np.arange(49, -1, -1))),
        ("two", people(0, 50)),
    ]:
        config = configuration(tmp_path, privacy=f"{{ledger: {name}}}")
        run(config, ids)
        digests.append(charges(entries(config))[-1].set_digest)
    assert digests[0] == digests[1] != digests[2]


def test_the_budget_is_checked_before_and_when_charging(tmp_path: Path) -> None:
    config = configuration(tmp_path, privacy="{budget: {epsilon: 2.5, delta: 1e-6}}")
    run(config, people(0, 50))
    with open_ledger(config) as ledger:
        ledger.prepare({"train": people(0, 50)})
        with pytest.raises(ConfigurationError) as caught:
            ledger.check_budget(2)
        ledger.check_budget(1)
        ledger.charge("train", 50)
        with pytest.raises(ConfigurationError, match=r"only epsilon 0\.5 and delta"):
            ledger.charge("train", 50)
    message = str(caught.value)
    assert "would announce 2 sizes at a cost of epsilon 2 and delta 2e-09" in message
    assert "of epsilon 2.5 and delta 1e-06 for this peer only epsilon 1.5 and delta" in message
    assert "The 1 releases so far" in message
    assert "train, epsilon 1 and delta 1e-09 (finished)" in message
    assert len(charges(entries(config))) == 2


def test_delta_has_a_budget_too(tmp_path: Path) -> None:
    config = configuration(
        tmp_path, union="{privacy: {delta: 1e-7}}", privacy="{budget: {delta: 1.5e-7}}"
    )
    run(config, people(0, 50))
    with pytest.raises(ConfigurationError, match=r"privacy\.budget"):
        run(config, people(0, 50))


def test_sums_are_exact(tmp_path: Path) -> None:
    """Ten times 0.1 is 1, as in the configuration, though not in floating point."""
    config = configuration(
        tmp_path, union="{privacy: {epsilon: 0.1}}", privacy="{budget: {epsilon: 1.0}}"
    )
    for _ in range(10):
        run(config, people(0, 5))
    with pytest.raises(ConfigurationError, match="only epsilon 0 and"):
        run(config, people(0, 5))
    assert history(entries(config)).startswith("The last of 10 releases so far: ")
    assert history(entries(config)).count(";") == 4


def test_a_union_without_an_outcome_counts(tmp_path: Path) -> None:
    config = configuration(tmp_path, privacy="{budget: {epsilon: 1.0}}")
    run(config, people(0, 50), outcome=None)
    with pytest.raises(ConfigurationError, match=r"\(not recorded\)"):
        run(config, people(0, 50))


def test_a_run_that_raises_settles_its_charges_as_failed(tmp_path: Path) -> None:
    config = configuration(tmp_path)

    def interrupted_run() -> None:
        with open_ledger(config) as ledger:
            ledger.prepare({"train": people(0, 50), "evaluation": people(0, 20)})
            ledger.charge("train", 50)
            ledger.settle("train", "finished", peer_size=1, union_size=2)
            ledger.charge("evaluation", 9, "people")
            ledger.charge("evaluation", 20)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted_run()
    assert [charge.announced for charge in charges(entries(config))] == ["union", "people", "union"]
    outcomes = settlements(entries(config))
    assert [outcomes[number].outcome for number in (1, 2, 3)] == ["finished", "failed", "failed"]


def test_a_resumed_union_needs_no_further_budget(tmp_path: Path) -> None:
    config = configuration(tmp_path, privacy="{budget: {epsilon: 1.0}}")
    run(config, people(0, 50), outcome="failed")
    with open_ledger(config) as ledger:
        ledger.prepare({"train": people(0, 50)})
        assert ledger.is_charged("train")
        ledger.settle("train", "finished", peer_size=1, union_size=2)
        ledger.settle("train", "finished", peer_size=1, union_size=2)
    assert settlements(entries(config))[1].outcome == "finished"
    assert len(entries(config)) == 4
    other = configuration(tmp_path, union="{planted_pairs: 0}", privacy="{budget: {epsilon: 1.0}}")
    for changed, ids in ((config, people(5000, 9000)), (other, people(0, 50))):
        with open_ledger(changed) as ledger:
            ledger.prepare({"train": ids})
            assert not ledger.is_charged("train")


def test_exact_sizes_need_a_run_without_a_budget(tmp_path: Path) -> None:
    exact = configuration(tmp_path, union="{privacy: null}")
    with pytest.raises(ConfigurationError, match=r"set privacy\.budget to null too"):
        run(exact, people(0, 50))
    run(configuration(tmp_path, union="{privacy: null}", privacy="{budget: null}"), people(0, 50))
    (charge,) = charges(entries(exact))
    assert (charge.epsilon, charge.delta, charge.cost) == (None, None, None)
    with pytest.raises(ConfigurationError, match="an earlier union with this peer revealed exact"):
        run(configuration(tmp_path), people(0, 50))


def test_small_differences_are_refused(tmp_path: Path) -> None:
    config = configuration(tmp_path, privacy="{minimum_change: 10}")
    run(config, people(0, 500))
    run(config, people(0, 500))
    for ids in (people(1, 500), people(0, 510), people(5, 505)):
        with pytest.raises(ConfigurationError) as caught:
            run(config, ids)
        assert "by at most 10 people (privacy.minimum_change)" in str(caught.value)
        assert "--accept-difference REASON" in str(caught.value)
        assert "people" not in caught.value.for_peer
    assert len(charges(entries(config))) == 2
    assert not list(ledger_folder(config).glob("*.new"))
    run(config, people(0, 511))
    run(config, people(1, 511), accept_difference="one person asked to be removed")
    assert charges(entries(config))[-1].accepted_difference == "one person asked to be removed"
    assert [charge.accepted_difference for charge in charges(entries(config))][:3] == [None] * 3


def test_the_guard_compares_tables_of_the_same_kind(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    with open_ledger(config) as ledger:
        ledger.prepare({"train": people(0, 50), "test": people(0, 51)})
        ledger.charge("train", 50)
        ledger.charge("test", 51)
    with open_ledger(config) as ledger:
        ledger.prepare({"train": people(0, 50), "test": people(0, 51)})
        with pytest.raises(ConfigurationError, match="our test table"):
            ledger.prepare({"train": people(0, 50), "test": people(0, 50)})


def test_the_guard_can_be_turned_off(tmp_path: Path) -> None:
    config = configuration(tmp_path, privacy="{minimum_change: 0}")
    run(config, people(0, 50))
    (ledger_folder(config) / "train.hashes").unlink()
    run(config, people(0, 51))


@pytest.mark.parametrize("damage", ["deleted", "changed"])
def test_lost_hashes_are_not_ignored(tmp_path: Path, damage: str) -> None:
    config = configuration(tmp_path)
    run(config, people(0, 50))
    file = ledger_folder(config) / "train.hashes"
    if damage == "deleted":
        file.unlink()
    else:
        file.write_bytes(bytes(8) + file.read_bytes()[8:])
    with pytest.raises(ConfigurationError, match=r"train\.hashes: missing or damaged"):
        run(config, people(0, 50))


def test_a_crash_between_a_charge_and_its_hashes_loses_nothing(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    run(config, people(0, 5000))
    folder = ledger_folder(config)
    before = (folder / "train.hashes").read_bytes()
    run(config, people(0, 9000))
    (folder / "train.hashes").rename(folder / "train.hashes.new")
    (folder / "train.hashes").write_bytes(before)
    with pytest.raises(ConfigurationError, match="our train table"):
        run(config, people(0, 8999))


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    with (
        open_ledger(config),
        pytest.raises(ConfigurationError, match="is in use by another run with bank"),
        open_ledger(config),
    ):
        pass
    with open_ledger(config):
        pass


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = configuration(tmp_path, privacy="{ledger: file}")
    with pytest.raises(ConfigurationError, match=r"set privacy\.ledger"), open_ledger(config):
        pass


def test_nothing_but_sizes_and_digests_is_stored(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    run(config, people(0, 50))
    lines = (ledger_folder(config) / "ledger.jsonl").read_text().splitlines()
    assert set(json.loads(lines[1])) == {
        "accepted_difference",
        "agreement_digest",
        "announced",
        "chain",
        "date",
        "delta",
        "epsilon",
        "kind",
        "number",
        "own_size",
        "set_digest",
        "table",
    }
