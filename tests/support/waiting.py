"""Waiting for what another thread or process brings about."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def eventually(condition: Callable[[], bool], within: float) -> bool:
    """Whether it holds within so many seconds; returns as soon as it does."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return condition()
