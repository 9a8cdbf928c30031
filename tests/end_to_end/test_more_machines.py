"""A party whose alignment runs on a Ray cluster: to the end, with a worker lost, and stopped."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from florist.cli.sample_data import IdSample
from tests.support.parties import Workspace
from tests.support.ray_cluster import kill_a_worker

if TYPE_CHECKING:
    from pathlib import Path

    from florist.cli.sample_data import Sample

pytest.importorskip("ray", reason="`pip install florist[ray]`")

#: Seconds for Ray to come up beside other tests.
UP = 90


def pair(directory: Path, sample: Sample) -> Workspace:
    """The active party has a cluster, of two workers on this machine; the passive party has not."""
    workspace = Workspace.create(directory, sample)
    workspace.configure(
        "active",
        {"compute.executor": "ray", "compute.ray_address": "local", "compute.ray_workers": 2},
    )
    workspace.configure("passive", {"patience.connect": 120.0})
    return workspace


def test_a_worker_is_lost_and_the_union_is_right(tmp_path: Path) -> None:
    workspace = pair(tmp_path / "pair", IdSample(60_000, 50_000, 20_000))
    with workspace.start("active") as active:
        active.wait_for("executor ray, 2 workers", UP)
        with workspace.start("passive") as passive:
            active.wait_for("steps 3-4.*started", UP)
            time.sleep(0.2)
            kill_a_worker(active.process.pid)
            assert (active.finish(UP), passive.finish(UP)) == (0, 0)
    workspace.assert_aligned()
    assert "a worker of the Ray cluster was lost; others do its work" in active.output
    assert "raylet" not in active.output


def test_a_party_that_is_stopped_leaves_no_process(tmp_path: Path) -> None:
    workspace = pair(tmp_path / "pair", IdSample(30, 40, 15))
    with workspace.start("active") as active:
        active.wait_for("waiting for|listening", UP)
        cluster = psutil.Process(active.process.pid).children(recursive=True)
        assert cluster
        active.signal(signal.SIGTERM)
        assert active.finish(30) == 130
    _, left = psutil.wait_procs(cluster, timeout=20)
    assert left == []
