"""Both parties align with branches in threads; heads and branches connect over mutual TLS."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest

from florist.active_party.role import ACTIVE
from florist.common.cluster import branch as branch_module
from florist.common.cluster.branch_messages import EndIds, FetchRows, Recall, RunUnion
from florist.common.cluster.branched_union_runner import BranchedUnionRunner
from florist.common.core.errors import (
    BranchLost,
    ConfigurationError,
    FloristError,
    InternalError,
    PeerFailed,
    PeerLost,
    TransportError,
)
from florist.common.core.progress import NoProgress
from florist.common.data.table_ids import TableIds
from florist.common.psu import partitions
from florist.common.session.session import Session
from florist.common.session.stage_state import StageOptions
from florist.common.settings.loader import load_config
from florist.common.stages import align as align_stage
from florist.common.stages.run_stages import run_stage
from florist.common.storage.files import FolderStorage
from florist.common.transport.messages import SetChunk, Step
from florist.common.transport.recording import Direction, RecordingLink
from florist.experiments.sample_data import ClickSample, IdSample
from florist.passive_party.role import PASSIVE
from tests.support.branch_cluster import ThreadCluster
from tests.support.parties import ROLES, Workspace
from tests.support.tampering import TamperingLink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from florist.common.cluster.branch_messages import BranchMessage
    from florist.common.core.roles import RoleName
    from florist.common.groups.group import Group
    from florist.common.session.session import SessionTimeouts
    from florist.common.settings.party_config import PartyConfig
    from florist.common.transport.channel import Link
    from florist.common.transport.messages import Hello, Message
    from florist.experiments.sample_data import Sample

KINDS = {"active": ACTIVE, "passive": PASSIVE}


@dataclass
class Pair:
    """Two parties with branches."""

    workspace: Workspace
    clusters: dict[RoleName, ThreadCluster]

    def align(self) -> dict[RoleName, FloristError | None]:
        """Run both parties to the end; return their errors."""

        def one(role: RoleName) -> FloristError | None:
            config = load_config(self.workspace.config(role))
            try:
                run_stage("align", KINDS[role], config, StageOptions(), NoProgress())
            except FloristError as error:
                return error
            return None

        with ThreadPoolExecutor(2) as both:
            runs = {role: both.submit(one, role) for role in ROLES}
            return {role: run.result(timeout=120) for role, run in runs.items()}


@pytest.fixture
def make_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Pair]:
    monkeypatch.setattr(partitions, "BLOCK_ROWS", 50)
    clusters: dict[RoleName, ThreadCluster] = {}

    def make_union_runner(
        config: PartyConfig, group: Group, *, plaintext: bool
    ) -> BranchedUnionRunner:
        role: RoleName = "active" if config.party.name == "bank" else "passive"
        if role not in clusters:
            clusters[role] = ThreadCluster(config)
        return BranchedUnionRunner(clusters[role], group, plaintext=plaintext)

    monkeypatch.setattr(align_stage, "make_union_runner", make_union_runner)

    def make(sample: Sample, branches: int, **changes: object) -> Pair:
        workspace = Workspace.create(tmp_path / "pair", sample)
        for role in ROLES:
            settings = {
                "agreement.branches": branches,
                "compute.executor": "ray",
                **{key.replace("__", "."): value for key, value in changes.items()},
            }
            workspace.configure(role, settings)
            clusters[role] = ThreadCluster(load_config(workspace.config(role)))
        return Pair(workspace, clusters)

    return make


@pytest.mark.parametrize("branches", [2, 3])
def test_the_union_is_correct(make_pair: Callable[..., Pair], branches: int) -> None:
    pair = make_pair(IdSample(701, 450, 200), branches)
    assert pair.align() == {"active": None, "passive": None}
    pair.workspace.assert_aligned()
    summary = pair.workspace.alignment("active").summary
    assert summary.engine == "of threads"
    assert summary.bytes_sent > 32 * 701
    received = pair.workspace.alignment("passive").summary.bytes_received
    assert summary.bytes_sent == pytest.approx(received, abs=2000)
    for role in ROLES:
        assert not list(pair.workspace.run_directory(role).work("align").parent.rglob("branch-*"))


@pytest.mark.parametrize(("dummies", "tables"), [(130, ["train"]), (0, ["train", "test"])])
def test_with_dummies_or_a_test_table(
    make_pair: Callable[..., Pair],
    tmp_path: Path,
    dummies: int,
    tables: list[Literal["train", "test"]],
) -> None:
    pair = make_pair(
        ClickSample(people=600, evaluation_fraction=0.2),
        2,
        alignment__dummies=dummies,
        agreement__training__test_table="test" in tables,
    )
    assert pair.align() == {"active": None, "passive": None}
    for table in tables:
        ids, ranks, sizes = {}, {}, {}
        for role in ROLES:
            runs = pair.workspace.run_directory(role)
            alignment = runs.load_alignment(table)
            config = load_config(pair.workspace.config(role)).data
            source = config.train if table == "train" else config.test_table
            assert source is not None
            found = TableIds(source, "strip", FolderStorage(tmp_path))
            ids[role] = [identifier for batch in found.batches(99) for identifier in batch]
            ranks[role] = dict(zip(ids[role], alignment.rank_of_row.tolist(), strict=True))
            sizes[role] = alignment.summary
            assert dummies <= alignment.summary.sizes.own - len(ids[role]) - 40 <= dummies + 80
        both = set(ids["active"]) & set(ids["passive"])
        everyone = {**ranks["active"], **ranks["passive"]}
        assert both
        assert all(ranks["active"][each] == ranks["passive"][each] for each in both)
        assert len(set(everyone.values())) == len(everyone)
        assert abs(sizes["active"].sizes.shared_estimate - len(both)) <= 40
        assert sizes["active"].union_size >= len(everyone) + 2 * dummies
        assert np.max(list(everyone.values())) < sizes["active"].union_size


def test_a_union_resumes_after_a_lost_branch(make_pair: Callable[..., Pair]) -> None:
    """Exchanges that all branches of both parties have finished are skipped."""
    pair = make_pair(IdSample(700, 450, 200), 2, timeouts__outage=60.0)
    cluster = pair.clusters["active"]
    lost: list[int] = []

    def lose(number: int, request: BranchMessage) -> None:
        """Lose it once, when the union is complete and the ranks are computed."""
        if number == 1 and isinstance(request, FetchRows) and not lost and has_union(cluster):
            lost.append(number)
            raise BranchLost("a branch of ours was lost")

    cluster.before = lose
    assert pair.align() == {"active": None, "passive": None}
    pair.workspace.assert_aligned()
    assert lost
    first, _, _, last = cluster.orders  # two branches, two attempts
    assert (first.resumes, first.done) == (False, frozenset())
    assert last.resumes
    assert Step.UNION in last.done
    assert first.token == last.token
    assert first.attempt != last.attempt


#: The steps in which a party sends its own elements, and those in which the peer sends them back,
#: if the passive party merges.
OWN_STEPS: dict[RoleName, dict[Step, Step]] = {
    "active": {Step.COMPLETING_SET: Step.COMPLETING_SET_BACK},
    "passive": {Step.MERGING_SET: Step.MERGING_SET_BACK},
}


@dataclass
class Wire:
    """What all branches send; replies to a party wait until `lost` is set or their link fails."""

    role: RoleName
    lost: Event = field(default_factory=Event)
    links: list[RecordingLink] = field(default_factory=list)

    def session(self, link: Link, hello: Hello, timeouts: SessionTimeouts) -> Session:
        """Replace the sessions of branches."""

        def hold(sent: Message) -> Iterable[Message]:
            if isinstance(sent, SetChunk) and sent.step in replies:
                while not self.lost.wait(0.05) and link.failure is None:
                    pass
            return [sent]

        replies = OWN_STEPS[self.role].values()
        self.links.append(RecordingLink(TamperingLink(link, hold)))
        return Session(self.links[-1], hello, timeouts)

    def sent(self, step: Step) -> list[bytes]:
        """Return the elements sent so far in a step, sorted."""
        return sorted(
            row
            for link in self.links
            for record in link.records
            if record.direction is Direction.SENT
            and isinstance(record.message, SetChunk)
            and record.message.step is step
            for row in rows(record.message.elements)
        )


def rows(elements: bytes) -> list[bytes]:
    return [elements[start : start + 32] for start in range(0, len(elements), 32)]


@pytest.mark.parametrize("role", ROLES)
def test_dummies_stay_the_same_after_a_lost_branch(
    make_pair: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch, role: RoleName
) -> None:
    """A branch is lost before its IDs are stored, when the peer has all of them, encrypted.

    The next attempt sends the IDs again under the same exponents. Elements that changed would show
    the peer which ones are dummies.
    """
    sample = IdSample(700, 450, 200)
    pair = make_pair(sample, 2, alignment__dummies=130, timeouts__outage=60.0)
    wire = Wire(role)
    monkeypatch.setattr(branch_module, "Session", wire.session)
    cluster, before = pair.clusters[role], dict[Step, list[bytes]]()

    def lose(number: int, request: BranchMessage) -> None:
        if isinstance(request, Recall) and before:
            wire.lost.set()  # the next attempt
        if number == 1 and isinstance(request, EndIds) and not before:
            deadline = time.monotonic() + 30
            size = cluster.orders[0].size
            while any(len(wire.sent(step)) < size for step in OWN_STEPS[role]):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            before.update({step: wire.sent(step) for step in OWN_STEPS[role]})
            wire.links.clear()
            raise BranchLost("a branch of ours was lost")

    cluster.before = lose
    assert pair.align() == {"active": None, "passive": None}
    start, *_, last = cluster.orders
    assert (start.token, last.resumes, last.has_ids) == (last.token, True, False)
    people = sample.active if role == "active" else sample.passive
    assert 130 + 40 <= start.size - people <= 130 + 3 * 40
    assert start.merging == "passive"
    # The completing party adds the anchors of planted pairs.
    anchors = start.config.agreement.union.planted_pairs if role == "active" else 0
    for step in OWN_STEPS[role]:
        assert len(set(before[step])) == start.size + anchors
        assert wire.sent(step) == before[step]


def has_union(cluster: ThreadCluster) -> bool:
    """Return whether all branches have stored the union."""
    return all(
        Step.UNION in each.branch.recall(order.record).finished
        for each, order in zip(cluster.branches(), cluster.orders, strict=True)
    )


def test_an_error_in_a_branch_ends_both_parties(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair(IdSample(300, 200, 100), 2)

    def fail(number: int, request: BranchMessage) -> None:
        if number == 0 and isinstance(request, FetchRows):
            raise InternalError("something is wrong")

    pair.clusters["passive"].before = fail
    ended = pair.align()
    assert isinstance(ended["passive"], InternalError)
    assert "something is wrong" in str(ended["passive"])
    assert isinstance(ended["active"], PeerFailed | PeerLost)


def test_a_table_that_changes_while_it_is_sent_ends_the_run(
    make_pair: Callable[..., Pair],
) -> None:
    pair = make_pair(IdSample(300, 200, 100), 2)
    table = pair.workspace.table("active")
    rows = table.read_text()

    def change(number: int, request: BranchMessage) -> None:
        if number == 0 and isinstance(request, Recall):
            table.write_text(rows + "somebody else\n")

    pair.clusters["active"].before = change
    ended = pair.align()
    assert isinstance(ended["active"], ConfigurationError)
    assert "was modified while it was being read" in str(ended["active"])
    assert isinstance(ended["passive"], PeerFailed | PeerLost)


def test_a_branch_does_not_wait_long_for_a_missing_peer(
    make_pair: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(branch_module, "CONNECT", 1.0)
    pair = make_pair(IdSample(30, 20, 10), 2)

    def stay_away(number: int, request: BranchMessage) -> None:
        if number == 1 and isinstance(request, RunUnion):
            raise BranchLost("a branch of ours was lost")

    pair.clusters["passive"].before = stay_away
    ended = pair.align()
    assert str(ended["passive"]) == "a branch of ours was lost"
    assert isinstance(ended["active"], TransportError)
