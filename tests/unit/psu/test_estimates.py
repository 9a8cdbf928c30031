"""Estimates of what a union costs, before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from florist.cli.init import Names, write_first_files
from florist.common.groups import make_group
from florist.common.psu.estimates import UnionCost, estimate_union, measure_speed
from florist.common.psu.limits import disk_needed
from florist.common.settings.loader import load_config

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.settings.party_config import PartyConfig

MILLION = 10**6


@pytest.fixture(params=["merged", "algorithm-1"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> PartyConfig:
    write_first_files(tmp_path, Names("bank", "telco"), "127.0.0.1:17001", None)
    path = tmp_path / "active.yml"
    path.write_text(path.read_text().replace("protocol: merged", f"protocol: {request.param}"))
    return load_config(path)


def test_the_cost_of_equal_sides(config: PartyConfig) -> None:
    """Each party computes half of 4.5 or 6.5 exponentiations per ID of both."""
    cost = estimate_union(config, MILLION, 32, speed=100_000.0)
    limit = config.alignment.memory_bytes
    if config.agreement.union.protocol == "merged":
        exponentiations, per_id = 4.5, 100
        disk = disk_needed(32, MILLION, MILLION, limit, merges=False)
        assert disk > disk_needed(32, MILLION, MILLION, limit, merges=True)
    else:
        exponentiations, per_id = 6.5, 176
        disk = disk_needed(32, MILLION, MILLION, limit)
    assert cost.seconds == pytest.approx(1.25 * exponentiations * MILLION / 100_000)
    assert cost.traffic == per_id * 2 * MILLION
    assert cost.disk == disk


def test_costs_add_up() -> None:
    assert UnionCost(1.5, 20, 300) + UnionCost(0.5, 5, 1) == UnionCost(2.0, 25, 301)


def test_the_speed_is_that_of_the_largest_sample() -> None:
    """A clock that ticks by 0.03 s with each call, then by 0.2 s: the third sample is enough."""
    ticks = iter([0.0, 0.03, 0.03, 0.06, 0.06, 0.26])
    assert measure_speed(make_group("x25519"), lambda: next(ticks)) == pytest.approx(1024 / 0.2)
