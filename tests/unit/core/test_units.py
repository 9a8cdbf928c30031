"""Sizes and times in messages."""

from __future__ import annotations

import pytest

from florist.common.core.units import shown_bytes, shown_seconds


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (424_000, "424.0 kB"),
        (209_758_881, "209.8 MB"),
        (10**9, "1.0 GB"),
        (370 * 10**9, "370.0 GB"),
    ],
)
def test_bytes_have_a_unit(count: int, shown: str) -> None:
    assert shown_bytes(count) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.04, "0.0 s"),
        (1.14, "1.1 s"),
        (2.0, "2 s"),
        (119.0, "119 s"),
        (120.0, "2 min"),
        (3600.0, "60 min"),
        (7200.0, "2 h"),
        (36_000.0, "10 h"),
    ],
)
def test_times_have_a_unit(seconds: float, shown: str) -> None:
    assert shown_seconds(seconds) == shown
