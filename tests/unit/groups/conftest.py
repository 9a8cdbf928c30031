"""Every engine and every group that this machine can run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from florist.common.errors import ConfigurationError
from florist.common.groups import GROUP_NAMES, kernels, make_group
from florist.common.groups.engines import X25519_ENGINES
from florist.common.groups.parallel import Threads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.groups.group import Group


@pytest.fixture(scope="session")
def threads() -> Iterator[Threads]:
    threads = Threads(2)
    yield threads
    threads.close()


@pytest.fixture(scope="session", params=X25519_ENGINES)
def x25519(request: pytest.FixtureRequest) -> Iterator[Group]:
    """The default group, once with each engine."""
    try:
        group = make_group("x25519", request.param, threads=2)
    except ConfigurationError as error:
        pytest.skip(str(error))
    yield group
    group.close()


@pytest.fixture(scope="session", params=GROUP_NAMES)
def group(request: pytest.FixtureRequest) -> Iterator[Group]:
    group = make_group(request.param, threads=2)
    yield group
    group.close()


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an installation without a C compiler."""
    monkeypatch.setattr(kernels, "native", None)
    monkeypatch.setattr(kernels, "why_missing", "no compiler")


@pytest.fixture(scope="session")
def native() -> kernels.Kernels:
    if kernels.native is None:
        pytest.skip(f"the native kernels are not built: {kernels.why_missing}")
    return kernels.native
