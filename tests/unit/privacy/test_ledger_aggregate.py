"""The privacy ledger: what a label aggregate costs, and what it must not change."""

from __future__ import annotations

import hmac
import json
from typing import TYPE_CHECKING

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
from florist.common.settings.agreement import AggregatePrivacy
from tests.unit.privacy.test_ledger import configuration, entries, people, run

if TYPE_CHECKING:
    from pathlib import Path

PRIVACY = AggregatePrivacy(epsilon=4.0)


def test_an_aggregate_costs_what_its_own_guarantee_says(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    run(config, people(0, 50))
    with open_ledger(config) as ledger:  # a stage of its own, which prepares no set
        ledger.check_budget(0, PRIVACY)
        ledger.charge_aggregate(PRIVACY, 50)
        ledger.settle_aggregate("finished")
        ledger.settle_aggregate("finished")
    union, labels = charges(entries(config))
    assert (labels.number, labels.table, labels.announced) == (2, "train", "labels")
    assert (labels.epsilon, labels.delta, labels.own_size) == (4.0, 1e-7, 50)
    assert labels.set_digest == union.set_digest
    outcomes = settlements(entries(config))
    assert (outcomes[1].union_size, outcomes[2].union_size) == (9, None)
    assert outcomes[2].outcome == "finished"
    assert len(entries(config)) == 5
    total = total_cost([union, labels])
    assert total is not None
    assert tuple(map(float, total)) == (5.0, 1.01e-7)
    assert "train labels, epsilon 4 and delta 1e-07 (finished)" in history(entries(config))


def test_a_whole_run_with_a_large_epsilon_fits_into_the_default_budget(tmp_path: Path) -> None:
    """Four sizes at epsilon 1, and one aggregate at epsilon 4; a second run does not fit."""
    config = configuration(tmp_path)
    with open_ledger(config) as ledger:
        ledger.check_budget(4, PRIVACY)
        ledger.prepare({"train": people(0, 50), "test": people(0, 9), "evaluation": people(0, 9)})
        ledger.charge("train", 50)
        ledger.charge("test", 9)
        ledger.charge_aggregate(PRIVACY, 50)
        ledger.charge("evaluation", 9, "people")
        ledger.charge("evaluation", 9)
        with pytest.raises(ConfigurationError) as caught:
            ledger.check_budget(4, PRIVACY)
        ledger.check_budget(2)
        with pytest.raises(ConfigurationError, match="this run would release a label aggregate at"):
            ledger.charge_aggregate(PRIVACY, 50)
    message = str(caught.value)
    assert "would announce 4 sizes and release a label aggregate at a cost of epsilon 8" in message
    assert "only epsilon 2 and delta" in message
    assert "agreement.union.privacy.epsilon or agreement.training.aggregate.privacy.eps" in message
    assert len(charges(entries(config))) == 5


def test_delta_is_added_too(tmp_path: Path) -> None:
    config = configuration(tmp_path, privacy="{budget: {epsilon: 100, delta: 1.5e-7}}")
    with open_ledger(config) as ledger:
        ledger.charge_aggregate(PRIVACY, 50)
        with pytest.raises(ConfigurationError, match="only epsilon 96 and delta 5e-08"):
            ledger.check_budget(0, PRIVACY)


def test_the_difference_guard_ignores_aggregates(tmp_path: Path) -> None:
    config = configuration(tmp_path, privacy="{minimum_change: 10}")
    run(config, people(0, 500))
    with open_ledger(config) as ledger:
        ledger.charge_aggregate(PRIVACY, 500)
    with open_ledger(config) as ledger:
        ledger.prepare({"train": people(0, 500)})
        assert ledger.is_charged("train")
        ledger.settle("train", "failed")
        with pytest.raises(ConfigurationError, match=r"privacy\.minimum_change"):
            ledger.prepare({"train": people(0, 501)})
    outcomes = settlements(entries(config))
    assert outcomes[1].outcome == "failed"
    assert 2 not in outcomes


def test_an_aggregate_without_a_union_in_this_ledger(tmp_path: Path) -> None:
    """If the folder of the ledger was changed after the alignment."""
    config = configuration(tmp_path)
    with open_ledger(config) as ledger:
        ledger.charge_aggregate(PRIVACY, 500)
    assert charges(entries(config))[0].set_digest is None
    run(config, people(0, 500))
    assert len(charges(entries(config))) == 2


def test_a_resumed_run_can_see_that_its_aggregate_was_charged(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    run(config, people(0, 50))
    with open_ledger(config) as ledger:
        assert not ledger.is_aggregate_charged()
        ledger.charge_aggregate(PRIVACY, 50)
    other = configuration(tmp_path, union="{planted_pairs: 0}")
    with open_ledger(other) as ledger:
        assert not ledger.is_aggregate_charged()
    with open_ledger(config) as ledger:
        assert ledger.is_aggregate_charged()
        ledger.prepare({"train": people(0, 50), "test": people(0, 5)})
        ledger.charge("test", 5)
        assert ledger.is_aggregate_charged()
        ledger.charge("train", 50)
        assert not ledger.is_aggregate_charged()


def test_an_interrupted_aggregate_is_settled_as_failed(tmp_path: Path) -> None:
    config = configuration(tmp_path)

    def interrupted_run() -> None:
        with open_ledger(config) as ledger:
            ledger.charge_aggregate(PRIVACY, 50)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted_run()
    assert settlements(entries(config))[1].outcome == "failed"
    with open_ledger(config) as ledger:  # resumed: the last aggregate gets another outcome
        ledger.settle_aggregate("finished")
    assert settlements(entries(config))[1].outcome == "finished"


def test_exact_sizes_leave_no_budget_for_an_aggregate(tmp_path: Path) -> None:
    exact = configuration(tmp_path, union="{privacy: null}", privacy="{budget: null}")
    run(exact, people(0, 50))
    with open_ledger(exact) as ledger:
        ledger.charge_aggregate(PRIVACY, 50)
    assert total_cost(charges(entries(exact))) is None
    with (
        open_ledger(configuration(tmp_path, union="{privacy: null}")) as ledger,
        pytest.raises(ConfigurationError, match="an earlier union with this peer revealed exact"),
    ):
        ledger.check_budget(0, PRIVACY)


def test_ledgers_of_earlier_releases_are_read(tmp_path: Path) -> None:
    """Lines with exactly the fields that releases without label aggregates wrote."""
    config = configuration(tmp_path)
    folder = ledger_folder(config)
    folder.mkdir(parents=True, mode=0o700)
    key, chain = bytes(range(32)), "0" * 64
    old: list[dict[str, object]] = [
        {"kind": "opened", "format": 1, "date": "2025-01-01", "party": "clinic", "peer": "bank"},
        {
            "accepted_difference": None,
            "agreement_digest": "b" * 64,
            "announced": "union",
            "date": "2025-01-01",
            "delta": 1e-9,
            "epsilon": 1.0,
            "kind": "charge",
            "number": 1,
            "own_size": 5,
            "set_digest": "a" * 64,
            "table": "test",
        },
        {
            "charge": 1,
            "date": "2025-01-01",
            "kind": "outcome",
            "outcome": "finished",
            "peer_size": 3,
            "union_size": 4,
        },
    ]
    lines = []
    for entry in old:
        text = json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()
        chain = hmac.new(key, bytes.fromhex(chain) + text, "sha256").hexdigest()
        chained = json.dumps(entry | {"chain": chain}, sort_keys=True, separators=(",", ":"))
        lines.append(chained + "\n")
    (folder / "ledger.jsonl").write_text("".join(lines))
    (folder / "ledger.head").write_text(json.dumps({"entries": 3, "chain": chain}))
    (folder / "ledger.key").write_bytes(key)
    (folder / "ledger.key").chmod(0o600)
    with open_ledger(config) as ledger:
        ledger.charge_aggregate(PRIVACY, 5)
    assert [charge.announced for charge in charges(entries(config))] == ["union", "labels"]
