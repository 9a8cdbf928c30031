"""The soak test tells growth from noise."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.soak import trend

TIMES = np.arange(600.0)


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_flat(seed: int) -> None:
    values = 300 + np.random.default_rng(seed).normal(0, 5, len(TIMES))
    found = trend(TIMES, values)
    assert found["flat"]
    assert found["mean"] == pytest.approx(300, abs=1)


def test_growth_is_found_and_measured() -> None:
    noise = np.random.default_rng(0).normal(0, 5, len(TIMES))
    found = trend(TIMES, 300 + 0.1 * TIMES + noise)
    assert not found["flat"]
    assert found["low"] < 360 < found["high"]


def test_a_constant_has_no_slope() -> None:
    assert trend(TIMES, np.full(len(TIMES), 7.0)) == {
        "mean": 7.0,
        "per_hour": 0.0,
        "low": 0.0,
        "high": 0.0,
        "flat": True,
    }
