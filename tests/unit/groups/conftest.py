"""Every engine and every group that this machine supports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from florist.common.core.errors import ConfigurationError
from florist.common.groups import GROUP_NAMES, kernels, make_group
from florist.common.groups.engines import X25519_ENGINES
from florist.common.groups.parallel import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from florist.common.groups.group import Group
    from florist.common.groups.kernels import Bytes


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
    """Simulate an installation without a C compiler."""
    monkeypatch.setattr(kernels, "native", None)
    monkeypatch.setattr(kernels, "why_missing", "no compiler")


class _WithoutIfma:
    """The kernels as on a CPU without AVX-512 IFMA."""

    def __init__(self, native: kernels.Kernels) -> None:
        self._native = native

    def ifma_available(self) -> bool:
        return False

    def __getattr__(self, name: str) -> object:
        return _never_called if name.endswith("_ifma") else getattr(self._native, name)


def _never_called(*_arguments: object) -> None:
    pytest.fail("a kernel that this CPU cannot run was called")


@pytest.fixture
def without_ifma(native: kernels.Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "native", _WithoutIfma(native))


@pytest.fixture(scope="session")
def native() -> kernels.Kernels:
    if kernels.native is None:
        pytest.skip(f"the native kernels are not built: {kernels.why_missing}")
    return kernels.native


@dataclass(frozen=True)
class BatchKernels:
    """The kernels for hashing and checking, with or without AVX-512 IFMA."""

    expand: Callable[[Bytes, Bytes, Bytes, Bytes], None]
    map_to_curve: Callable[[Bytes, Bytes], None]
    on_curve: Callable[[Bytes, Bytes], bool]
    #: Points that share 16 random bytes of the check.
    shared_by: int


@pytest.fixture(scope="session", params=["ifma", "portable"])
def batch(request: pytest.FixtureRequest, native: kernels.Kernels) -> BatchKernels:
    if request.param == "portable":
        return BatchKernels(
            native.expand_messages, native.elligator2_map, native.on_curve_batch, shared_by=1
        )
    if not native.ifma_available():
        pytest.skip("this CPU has no AVX-512 IFMA")
    return BatchKernels(
        native.expand_messages_ifma,
        native.elligator2_map_ifma,
        native.on_curve_batch_ifma,
        shared_by=8,
    )
