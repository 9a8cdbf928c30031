"""Certificates of both parties, for tests over real sockets; a `conftest.py` imports these."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.certificates import ACTIVE, PASSIVE, Trust

if TYPE_CHECKING:
    from florist.common.transport.credentials import Credentials


@pytest.fixture(scope="session")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return Trust.create(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def active(trust: Trust) -> Credentials:
    return trust.party(ACTIVE)


@pytest.fixture(scope="session")
def passive(trust: Trust) -> Credentials:
    return trust.party(PASSIVE)
