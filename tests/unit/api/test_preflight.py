"""Preflight checks of this machine: disk space and ports."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

import pytest

from florist.api.preflight import PartyChecks, preflight
from florist.cli.init import Names, write_first_files
from florist.common.privacy.ledger import open_ledger
from florist.common.psu.estimates import estimate_union
from florist.common.psu.padded_set import most_padding
from florist.common.settings.agreement import AggregateAgreement, AggregatePrivacy
from florist.common.settings.loader import load_config
from florist.common.storage.id_column import IdColumn
from florist.experiments.sample_data import IdSample

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from florist.api.preflight import Check
    from florist.common.settings.party_config import PartyConfig


def named(checks: Iterable[Check], name: str) -> Check:
    return next(check for check in checks if check.name == name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    sample = IdSample(active=2000, passive=3000, shared=100)
    write_first_files(tmp_path, Names("bank", "telco"), "127.0.0.1:1", sample)
    return tmp_path


def test_results_are_returned_and_reported_one_by_one(folder: Path) -> None:
    seen: list[Check] = []
    checks = preflight(folder / "active.yml", on_check=seen.append)
    assert checks == seen
    assert checks[0].name == "configuration"
    assert str(folder / "active.yml") in checks[0].message
    assert [check.name for check in preflight(load_config(folder / "active.yml"))] == [
        check.name for check in checks
    ]


def test_needed_disk_space_is_reported(folder: Path) -> None:
    check = named(preflight(folder / "active.yml"), "run directory")
    assert check.passed
    assert "alignment needs" in check.message


@pytest.mark.parametrize(
    ("protocol", "traffic"), [("merged", "424.0 kB"), ("algorithm-1", "746.2 kB")]
)
def test_the_cost_of_the_alignment_is_estimated(folder: Path, protocol: str, traffic: str) -> None:
    """With 2,000 IDs per party, and up to 120 of padding."""
    config = folder / "active.yml"
    config.write_text(config.read_text().replace("protocol: merged", f"protocol: {protocol}"))
    check = named(preflight(config), "alignment")
    assert check.passed
    assert f"protocol {protocol}" in check.message
    assert re.search(r": [0-9.]+ s of computing", check.message)
    assert f"{traffic} of traffic" in check.message


def test_too_little_disk_space_fails(folder: Path) -> None:
    config = load_config(folder / "active.yml")
    needed = estimate_union(config, 2000 + most_padding(config), 32, speed=1.0).disk
    check = named(PartyChecks(config, free_disk=lambda _: needed - 1).run(), "run directory")
    assert not check.passed
    assert "free some space" in check.message
    assert named(PartyChecks(config, free_disk=lambda _: needed).run(), "run directory").passed


def test_a_changed_table_is_read_again(folder: Path) -> None:
    """Results of an earlier call in the same process are not reused."""
    before = named(preflight(folder / "active.yml"), "IDs")
    table = folder / "data" / "bank.csv"
    table.write_text(table.read_text() + "somebody-else@example.org\n")
    after = named(preflight(folder / "active.yml"), "IDs")
    assert "2,000" in before.message
    assert "2,001" in after.message


def test_a_status_page_whose_port_is_taken_fails(folder: Path) -> None:
    config = folder / "active.yml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        before, section, after = config.read_text().partition("\nobservability:")
        after = after.replace("address: null", f"address: {address}", 1)
        config.write_text(before + section + after)
        check = named(preflight(config), "status page")
        assert not check.passed
        assert "observability.address" in check.message
    assert named(preflight(config), "status page").passed


def test_the_privacy_ledger_is_checked(folder: Path) -> None:
    config = load_config(folder / "active.yml")
    check = named(PartyChecks(config).run(), "privacy ledger")
    assert check.passed
    assert "epsilon 0 and delta 0 spent" in check.message
    with open_ledger(config) as ledger:
        assert not named(PartyChecks(config).run(), "privacy ledger").passed
        ledger.prepare({"train": IdColumn.from_bytes([b"x"])})
        for _ in range(10):
            ledger.charge("train", 1)
    check = named(PartyChecks(config).run(), "privacy ledger")
    assert not check.passed
    assert "privacy.budget" in check.message


def with_aggregate(folder: Path, role: str, privacy: object) -> PartyConfig:
    config = load_config(folder / f"{role}.yml")
    aggregate = AggregateAgreement.model_validate({"privacy": privacy})
    training = config.agreement.training.model_copy(update={"aggregate": aggregate})
    agreement = config.agreement.model_copy(update={"training": training})
    label = "label" if role == "active" else None
    train = config.data.train.model_copy(update={"label": label})
    data = config.data.model_copy(update={"train": train})
    return config.model_copy(update={"agreement": agreement, "data": data})


def test_the_label_aggregate_is_in_the_budget(folder: Path) -> None:
    """With 2,000 people of ours, it depends on the peer's whether `auto` makes an aggregate."""

    def check(role: str, privacy: object) -> Check:
        return named(PartyChecks(with_aggregate(folder, role, privacy)).run(), "privacy ledger")

    cost = "a label aggregate at epsilon 1 and delta 1e-07"
    message = check("active", "auto").message
    assert f"If the union has at least 50,000 people, it also releases {cost}" in message
    assert "more than is left" not in message
    assert f", and releases {cost}" in check("active", AggregatePrivacy()).message
    for without in (check("active", None), check("passive", AggregatePrivacy())):
        assert without.passed
        assert "label aggregate" not in without.message
    with open_ledger(load_config(folder / "active.yml")) as ledger:
        ledger.prepare({"train": IdColumn.from_bytes([b"x"])})
        for _ in range(9):
            ledger.charge("train", 1)
    assert check("active", None).passed
    possible, certain = check("active", "auto"), check("active", AggregatePrivacy())
    assert possible.passed
    assert "more than is left of privacy.budget" in possible.message
    assert not certain.passed
    assert "and release a label aggregate at a cost of epsilon" in certain.message
