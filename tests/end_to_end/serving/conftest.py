"""Two trained pairs of parties, shared by all tests of serving."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.serving import QuickModel, SharedColumns, train_pair

if TYPE_CHECKING:
    from tests.support.parties import Workspace


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Only the passive party has features. Do not modify it."""
    return train_pair(tmp_path_factory.mktemp("plain") / "pair", QuickModel())


@pytest.fixture(scope="session")
def featured(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Both parties have features. Do not modify it."""
    return train_pair(tmp_path_factory.mktemp("featured") / "pair", SharedColumns())
