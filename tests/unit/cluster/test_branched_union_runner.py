"""The head of a party with branches: what it sends, what it resumes, which error it reports."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier, Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, TypeVar, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from florist.common.cluster.branch_messages import (
    BranchMessage,
    BranchOrder,
    BranchResult,
    BranchStatus,
    ResumeState,
)
from florist.common.cluster.branch_progress import StepState
from florist.common.cluster.branched_union_runner import JointJournal, _HeadAttempt
from florist.common.cluster.ray_branches import cores_per_branch
from florist.common.cluster.remote_branch import RemoteBranch
from florist.common.core.errors import (
    BranchLost,
    ConfigurationError,
    FloristError,
    PeerLost,
)
from florist.common.privacy.commitment import commit
from florist.common.psu.journal import Journal
from florist.common.transport.channel import Traffic
from florist.common.transport.messages import UnionAnnouncement
from tests.support.memory_storage import MemoryStorage
from tests.support.shown_progress import Shown

if TYPE_CHECKING:
    from florist.common.cluster.branch_messages import Request
    from florist.common.groups.group import Group
    from florist.common.psu.union_runner import UnionTask


R = TypeVar("R", bound=BranchMessage)

COMMITMENT = commit([], [], [], bytes(32))

# -- resuming --------------------------------------------------------------------------------------


def joint_journal(*states: ResumeState) -> JointJournal:
    journal = Journal(MemoryStorage(), 32, b"\1")
    journal.begin(b"union", b"sealed", UnionAnnouncement(9, b""), COMMITMENT)
    return JointJournal(journal, states)


def test_a_union_resumes_from_what_all_branches_have() -> None:
    joint = joint_journal(
        ResumeState(token=b"union", finished=(3, 5, 11), has_ids=True),
        ResumeState(token=b"union", finished=(3, 11, 12), has_ids=True),
    )
    assert (joint.token, joint.finished, joint.peer_size) == (b"union", [3, 11], 9)
    assert joint.has_ids
    assert joint.resumes


@pytest.mark.parametrize("token", [b"", b"another"])
def test_a_union_starts_over_if_one_branch_has_lost_its_part(token: bytes) -> None:
    joint = joint_journal(
        ResumeState(token=b"union", finished=(3,), has_ids=True),
        ResumeState(token=token, finished=(), has_ids=False),
    )
    assert joint.token == b""
    joint.begin(b"new", b"sealed", UnionAnnouncement(8, b""), COMMITMENT)
    assert not joint.resumes
    assert not joint.has_ids
    assert joint.peer_size == 8


# -- cores -----------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 64), min_size=1, max_size=20), st.integers(1, 40))
def test_branches_have_as_many_cores_as_fit(nodes: list[int], branches: int) -> None:
    if sum(nodes) < branches:
        with pytest.raises(ConfigurationError, match=r"agreement\.branches"):
            cores_per_branch(nodes, branches)
        return
    cores = cores_per_branch(nodes, branches)
    assert sum(node // cores for node in nodes) >= branches
    assert sum(node // (cores + 1) for node in nodes) < branches


def test_each_of_sixteen_nodes_has_a_branch() -> None:
    assert cores_per_branch([32] * 16, 16) == 32


# -- losses ----------------------------------------------------------------------------------------


@dataclass
class FailingBranch(RemoteBranch):
    """Its union fails while its status is asked for; that is answered once all have failed."""

    error: FloristError
    asked: Event
    failed: Barrier

    def run(self, address: str, rendezvous: bytes) -> BranchResult:  # noqa: ARG002
        assert self.asked.wait(10)
        self.failed.wait(10)
        raise self.error

    def status(self) -> BranchStatus:
        self.asked.set()
        time.sleep(0.2)
        return BranchStatus(steps={"step 3": StepState(total=5, done=1)}, sent=0, received=0)

    def stop(self, reason: str) -> None:
        """Nothing is left to stop."""

    def begin(self, order: BranchOrder) -> None:
        raise NotImplementedError

    def host(self) -> str:
        raise NotImplementedError

    def send(self, request: Request[R]) -> R:
        raise NotImplementedError


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_branch_is_reported_rather_than_the_connections_that_it_breaks(lost: int) -> None:
    shown, asked, failed = Shown(), Event(), Barrier(2)
    errors: list[FloristError] = [PeerLost("the connection broke"), PeerLost("another did")]
    errors[lost] = BranchLost("a branch of ours was lost")
    branches = [FailingBranch(error, asked, failed) for error in errors]
    session = SimpleNamespace(failure=None, traffic=Traffic())
    task = cast("UnionTask", SimpleNamespace(progress=shown, session=session))
    with ThreadPoolExecutor(7) as threads:
        attempt = _HeadAttempt(task, cast("Group", None), branches, threads, plaintext=True)
        with pytest.raises(BranchLost, match="a branch of ours was lost"):
            attempt._run_branches(["", ""], b"", None)
    assert "step 3 ends" not in shown.lines
