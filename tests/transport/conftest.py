"""Links of every kind, and a check that no thread is left behind."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tests.support.certificates import Trust
from tests.support.links import grpc_links, in_memory_links
from tests.support.tls_fixtures import active, passive, trust
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.transport.channel import Link
    from florist.common.transport.credentials import Credentials

__all__ = ["active", "passive", "trust"]


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    """An authority that the parties do not trust."""
    return Trust.create(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(
    params=["in memory", "plain, listening", "plain, dialing", "TLS, listening", "TLS, dialing"]
)
def links(
    request: pytest.FixtureRequest, active: Credentials, passive: Credentials
) -> Iterator[tuple[Link, Link]]:
    """Two ends of one link, as `left` and `right`; the name says which end is left."""
    kind: str = request.param
    if kind == "in memory":
        with in_memory_links() as pair:
            yield pair
        return
    files = (active, passive) if kind.startswith("TLS") else (None, None)
    with grpc_links(*files) as (accepted, dialed):
        yield (accepted, dialed) if kind.endswith("listening") else (dialed, accepted)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Check that every thread that the links of a test started has ended."""
    before = set(threading.enumerate())
    yield
    wait_until(lambda: set(threading.enumerate()) <= before, within=5)
