"""Parties that align on a Ray cluster: with a lost worker or branch, killed, and stopped."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil
import pytest

from florist.experiments.sample_data import IdSample
from tests.support.parties import Workspace
from tests.support.ray_cluster import frozen_worker, kill_a_worker

if TYPE_CHECKING:
    from pathlib import Path

    from florist.experiments.sample_data import Sample

pytest.importorskip("ray", reason="`pip install florist[ray]`")

#: Seconds for Ray to start while other tests run.
UP = 240


def pair(directory: Path, sample: Sample) -> Workspace:
    """Only the active party has a cluster, of two workers on this machine."""
    workspace = Workspace.create(directory, sample)
    workspace.configure(
        "active",
        {"compute.executor": "ray", "compute.ray_address": "local", "compute.ray_workers": 2},
    )
    workspace.configure("passive", {"timeouts.connect": 120.0})
    return workspace


@pytest.mark.slow
def test_the_union_is_correct_after_a_lost_worker(tmp_path: Path) -> None:
    workspace = pair(tmp_path / "pair", IdSample(60_000, 50_000, 20_000))
    with workspace.start("active") as active:
        active.wait_for("all workers of the Ray cluster are up", UP)
        with workspace.start("passive") as passive:
            active.wait_for("steps 1-2.*started", UP)
            with frozen_worker(active.process.pid):  # so that it has jobs when it is killed
                time.sleep(1)
            assert (active.finish(UP), passive.finish(UP)) == (0, 0)
    workspace.assert_aligned()
    assert "a worker of the Ray cluster was lost; others take over its work" in active.output
    assert "raylet" not in active.output


def test_a_stopped_party_leaves_no_process(tmp_path: Path) -> None:
    workspace = pair(tmp_path / "pair", IdSample(30, 40, 15))
    with workspace.start("active") as active:
        active.wait_for("waiting for|listening", UP)
        cluster = psutil.Process(active.process.pid).children(recursive=True)
        assert cluster
        active.signal(signal.SIGTERM)
        assert active.finish(30) == 130
    _, left = psutil.wait_procs(cluster, timeout=20)
    assert left == []


def branched_pair(directory: Path, sample: Sample) -> Workspace:
    """Both parties have a cluster with two branches."""
    workspace = Workspace.create(directory, sample)
    for role in ("active", "passive"):
        workspace.configure(
            role,
            {
                "agreement.branches": 2,
                "compute.executor": "ray",
                "compute.ray_address": "local",
                "compute.ray_workers": 2,
                "timeouts.connect": 120.0,
                "timeouts.outage": 120.0,
            },
        )
    return workspace


def test_a_union_resumes_after_a_lost_branch(tmp_path: Path) -> None:
    workspace = branched_pair(tmp_path / "pair", IdSample(100_000, 80_000, 30_000))
    with workspace.start("active") as active, workspace.start("passive") as passive:
        active.wait_for("steps 1-2.*done", UP)
        kill_a_worker(active.process.pid, "ray::Branch")
        assert (active.finish(2 * UP), passive.finish(2 * UP)) == (0, 0)
    workspace.assert_aligned()
    assert "a branch of ours was lost" in active.output
    assert "resuming this union" in active.output
    assert "is back" in passive.output
    assert not list((tmp_path / "pair").rglob("branch-*"))


@pytest.mark.slow
def test_a_killed_head_resumes_from_what_its_branches_stored(tmp_path: Path) -> None:
    workspace = branched_pair(tmp_path / "pair", IdSample(200_000, 150_000, 60_000))
    with workspace.start("passive") as passive:
        with workspace.start("active") as killed:
            killed.wait_for("steps 1-2.*done", UP)
            cluster = psutil.Process(killed.process.pid).children(recursive=True)
            branches = [each for each in cluster if each.name().startswith("ray::Branch")]
            killed.signal(signal.SIGKILL)
            killed.finish()
        assert len(branches) == 2
        _, left = psutil.wait_procs(branches, timeout=30)
        assert left == []
        for agent in cluster:  # Ray's own processes, some of which do not end by themselves
            with suppress(psutil.NoSuchProcess):
                agent.kill()
        with workspace.start("active") as again:
            assert (again.finish(2 * UP), passive.finish(2 * UP)) == (0, 0)
    workspace.assert_aligned()
    assert "resuming this union" in again.output


def test_branches_of_a_stopped_party_end_with_it(tmp_path: Path) -> None:
    workspace = branched_pair(tmp_path / "pair", IdSample(400_000, 400_000, 200_000))
    with workspace.start("active") as active, workspace.start("passive") as passive:
        active.wait_for("steps 1-2.*started", UP)
        cluster = psutil.Process(active.process.pid).children(recursive=True)
        active.signal(signal.SIGTERM)
        assert active.finish(60) == 130
        passive.wait_for("the peer stopped: its operator stopped it", UP)
        passive.signal(signal.SIGTERM)
        assert passive.finish(60) == 130
    _, left = psutil.wait_procs(cluster, timeout=20)
    assert left == []


def test_a_branch_needs_a_core(tmp_path: Path) -> None:
    workspace = branched_pair(tmp_path / "pair", IdSample(30, 40, 15))
    workspace.configure("active", {"compute.ray_workers": 1})
    with workspace.start("active") as active:
        assert active.finish(UP) == 2
    assert "2 branches need at least one core each, and the Ray cluster has 1" in active.output
