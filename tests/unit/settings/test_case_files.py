"""The configurations of the documented cases load, and both files of a case agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from florist.common.settings.agreement_differences import differences
from florist.common.settings.loader import load_config

CASES = Path(__file__).parents[3] / "docs" / "tutorial"


@pytest.fixture(params=[path.parent.name for path in sorted(CASES.glob("*/active.yml"))])
def case(request: pytest.FixtureRequest) -> Path:
    return CASES / str(request.param)


def test_both_files_load_and_agree(case: Path) -> None:
    active, passive = (load_config(case / f"{role}.yml") for role in ("active", "passive"))
    assert differences(active.agreement.canonical(), passive.agreement.canonical()) == []
    assert (active.party.name, active.party.peer) == (passive.party.peer, passive.party.name)
    assert active.network.address == passive.network.address
    assert active.run_directory != passive.run_directory


def test_each_file_has_the_columns_of_its_role_and_a_test_table(case: Path) -> None:
    active, passive = (load_config(case / f"{role}.yml") for role in ("active", "passive"))
    assert active.data.train.label is not None
    assert passive.data.train.label is None
    for config in (active, passive):
        assert config.agreement.training.test_table
        assert config.data.test is not None
        assert config.network.tls is not None


def test_both_parties_have_the_same_model_and_optimiser(case: Path) -> None:
    """The simulated baselines have one model and one optimiser for both."""
    active, passive = (load_config(case / f"{role}.yml") for role in ("active", "passive"))
    assert (active.model, active.optimiser) == (passive.model, passive.optimiser)


def test_paths_are_relative_to_the_file(case: Path) -> None:
    for role in ("active", "passive"):
        config = load_config(case / f"{role}.yml")
        assert config.network.tls is not None
        assert config.data.test is not None
        for path in (
            config.data.train.path,
            config.data.test.path,
            config.run_directory,
            config.network.tls.key,
        ):
            assert path.is_relative_to(case)
