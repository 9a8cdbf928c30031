"""The encrypted sums, with the kernels and without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from florist.common.groups import kernels
from florist.common.groups.parallel import Threads

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["kernels", "elements"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with the kernels, and again as if there were no C compiler."""
    if request.param == "elements":
        monkeypatch.setattr(kernels, "native", None)
    elif kernels.native is None:
        pytest.skip(f"the native kernels are not built: {kernels.why_missing}")


@pytest.fixture(scope="session")
def threads() -> Iterator[Threads]:
    threads = Threads(2)
    yield threads
    threads.close()
