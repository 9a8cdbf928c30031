"""The base transfers, run once, and everything else with the kernels and without them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import pytest

from florist.common.oblivious_transfer import BaseReceiver, BaseSender, kernels

if TYPE_CHECKING:
    from florist.common.oblivious_transfer import ChosenSeeds, SeedPairs


class Base(NamedTuple):
    """What both parties have after the base transfers; their secrets are from the OS."""

    seeds: ChosenSeeds
    pairs: SeedPairs


@pytest.fixture(scope="session")
def base() -> Base:
    receiver = BaseReceiver(os.urandom(32), b"a session")
    reply, pairs = BaseSender(os.urandom(32), b"a session").answer(receiver.request)
    return Base(receiver.finish(reply), pairs)


@pytest.fixture(scope="session")
def native() -> kernels.Kernels:
    if kernels.native is None:
        pytest.skip(f"the native kernels cannot be used: {kernels.why_missing}")
    return kernels.native


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate an installation without a C compiler."""
    monkeypatch.setattr(kernels, "native", None)


@pytest.fixture(params=["kernels", "numpy"])
def either(request: pytest.FixtureRequest) -> None:
    """Run a test with the kernels, and again without them."""
    request.getfixturevalue("native" if request.param == "kernels" else "without_kernels")
