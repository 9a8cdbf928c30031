"""Branches on a Ray cluster, which sees nothing in the clear."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from florist.active_party.role import ACTIVE
from florist.common.cluster import ray_branches
from florist.common.cluster.ray_branches import RayBranch, RayBranches
from florist.common.core.errors import BranchLost
from florist.common.core.progress import NoProgress
from florist.common.data.table_ids import TableIds
from florist.common.groups import make_group
from florist.common.groups.group import Exponent
from florist.common.session.stage_state import StageOptions
from florist.common.settings.loader import load_config
from florist.common.stages.run_stages import run_stage
from florist.common.storage.files import FolderStorage
from florist.experiments.sample_data import IdSample
from florist.passive_party.role import PASSIVE
from tests.support.parties import ROLES, Workspace
from tests.support.ray_cluster import local_cluster, object_store_holds, worker_pids

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.cluster.branch_messages import BranchOrder
    from florist.common.core.roles import RoleName

ray = pytest.importorskip("ray", reason="`pip install florist[ray]`")

KINDS = {"active": ACTIVE, "passive": PASSIVE}


def test_the_cluster_sees_nothing_in_the_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[bytes] = []
    orders: list[BranchOrder] = []
    get, call, begin = ray.get, ray.actor.ActorMethod._remote, RayBranch.begin

    def recorded_call(self: Any, args: Any = None, *others: Any, **more: Any) -> Any:  # noqa: ANN401
        passed.extend(arg for arg in args or () if isinstance(arg, bytes))
        return call(self, args, *others, **more)

    def recorded_get(*args: Any, **more: Any) -> Any:  # noqa: ANN401
        answer = get(*args, **more)
        if isinstance(answer, bytes):
            passed.append(answer)
        return answer

    def recorded_begin(self: RayBranch, order: BranchOrder) -> None:
        orders.append(order)
        begin(self, order)

    monkeypatch.setattr(ray.actor.ActorMethod, "_remote", recorded_call)
    monkeypatch.setattr(ray, "get", recorded_get)
    monkeypatch.setattr(RayBranch, "begin", recorded_begin)
    # Both parties share this cluster; normally each has its own.
    monkeypatch.setattr(ray_branches, "_cores_of_nodes", lambda: [2])

    workspace = Workspace.create(tmp_path / "pair", IdSample(40_000, 40_000, 10_000))
    for role in ROLES:
        workspace.configure(role, {"agreement.branches": 2, "compute.executor": "ray"})

    def align(role: RoleName) -> None:
        config = load_config(workspace.config(role))
        run_stage("align", KINDS[role], config, StageOptions(), NoProgress())

    with local_cluster(cores=4), ThreadPoolExecutor(2) as both:
        for run in [both.submit(align, role) for role in ROLES]:
            run.result(timeout=180)
        workspace.assert_aligned()
        assert len(orders) == 4
        secrets = [secret for order in orders for secret in secrets_of(order)]
        assert sum(map(len, passed)) > 2 * 40_000 * 20, "the messages were not recorded"
        for secret in secrets:
            assert not any(secret in data for data in passed)
            assert not object_store_holds(secret)


def test_a_branch_that_does_not_answer_is_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace.create(tmp_path / "pair", IdSample(3, 3, 1))
    workspace.configure("active", {"agreement.branches": 2, "compute.executor": "ray"})
    with (
        local_cluster(cores=2),
        closing(RayBranches(load_config(workspace.config("active")))) as cluster,
    ):
        branches = cluster.branches()
        assert [branch.status().steps for branch in branches] == [{}, {}]
        for pid in worker_pids(kind="ray::Branch"):
            os.kill(pid, signal.SIGSTOP)
        with monkeypatch.context() as patch:
            patch.setattr(ray_branches, "_ANSWER_TIMEOUT", 2.0)
            for branch in branches:
                with pytest.raises(BranchLost):
                    branch.status()
        assert [branch.status().steps for branch in cluster.branches()] == [{}, {}]


def secrets_of(order: BranchOrder) -> list[bytes]:
    """Return exponents, the TLS key, IDs, and elements that branches exchange."""
    assert order.tls is not None
    config = order.config
    group = make_group("x25519")
    table = TableIds(config.data.train, "strip", FolderStorage(order.record.folder.parent))
    ids = next(table.batches(50))
    raised = group.power(group.hash_ids(ids), Exponent(order.keys[0]))
    exponents = [
        form
        for exponent in order.keys
        for form in (
            str(exponent).encode(),
            exponent.to_bytes(32, "little")[:16],
            exponent.to_bytes(32, "big")[:16],
        )
    ]
    key = order.tls.key.splitlines()[1][:40]
    return [*exponents, key, ids.at(42), *(raised[row].tobytes() for row in (0, 7, 42))]
