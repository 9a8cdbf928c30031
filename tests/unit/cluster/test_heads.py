"""What the head of a party with branches is made of."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier, Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, TypeVar, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from florist.common.cluster.branch import Branch
from florist.common.cluster.branch_addresses import agree_on_rendezvous
from florist.common.cluster.branch_codec import (
    decode_head_request,
    decode_member_request,
    decode_reply,
    encode,
    encode_reply,
)
from florist.common.cluster.branch_messages import (
    Begin,
    BranchMessage,
    BranchOrder,
    BranchResult,
    BranchStatus,
    Empty,
    EndIds,
    FetchRows,
    Forget,
    GetListeningAddress,
    GetRanks,
    GetStatus,
    IdsTaken,
    ListeningAddress,
    PostNumber,
    RankBlock,
    Recall,
    ResumeState,
    RowBlock,
    Run,
    Stop,
    TakeIds,
    TlsContents,
    UnionRecord,
)
from florist.common.cluster.branch_progress import MergedProgress, RecordedProgress, StepState
from florist.common.cluster.branch_server import answer_head
from florist.common.cluster.branched_union_runner import JointJournal, _HeadAttempt, blocks_of_ids
from florist.common.cluster.ray_branches import cores_per_branch
from florist.common.cluster.remote_branch import RemoteBranch
from florist.common.core.errors import (
    AgreementMismatch,
    BranchLost,
    ConfigurationError,
    FloristError,
    InternalError,
    PeerFailed,
    PeerLost,
    ProtocolViolation,
)
from florist.common.core.progress import NoProgress
from florist.common.psu import partitions
from florist.common.psu.alignment import Sizes
from florist.common.psu.hashed_ids import DUMMY_BYTES
from florist.common.psu.journal import Journal
from florist.common.psu.limits import disk_needed
from florist.common.settings.loader import load_config
from florist.common.storage.files import MemoryStorage
from florist.common.storage.id_column import IdColumn
from florist.common.transport.channel import Traffic
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import Step, UnionBranches
from florist.experiments.sample_data import IdSample
from tests.support.parties import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.cluster.branch_messages import HeadRequest, MemberRequest, Request
    from florist.common.core.progress import StepProgress
    from florist.common.groups.group import Group
    from florist.common.psu.union_runner import UnionTask


R = TypeVar("R", bound=BranchMessage)

# -- rows ------------------------------------------------------------------------------------------


@given(st.integers(0, 40), st.integers(0, 40))
def test_blocks_are_full_and_tell_nothing_of_where_dummies_begin(rows: int, dummies: int) -> None:
    ids = [b"%d" % number for number in range(rows)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "BLOCK_ROWS", 7)
        blocks = [list(each) for each in blocks_of_ids(IdColumn.from_bytes(ids), dummies)]
    everything = [each for block in blocks for each in block]
    assert everything[:rows] == ids
    assert len(everything) == rows + dummies
    assert all(len(each) == DUMMY_BYTES for each in everything[rows:])
    assert all(len(block) == 7 for block in blocks[:-1])
    assert len(set(everything)) == len(everything)


# -- what was begun before -------------------------------------------------------------------------


def record(*memories: ResumeState) -> JointJournal:
    journal = Journal(MemoryStorage(), 32, b"\1")
    journal.begin(b"union", b"sealed", 9)
    return JointJournal(journal, memories)


def test_a_union_resumes_from_what_all_branches_have() -> None:
    joint = record(
        ResumeState(token=b"union", finished=(3, 5, 11), has_ids=True),
        ResumeState(token=b"union", finished=(3, 11, 12), has_ids=True),
    )
    assert (joint.token, joint.finished, joint.peer_size) == (b"union", [3, 11], 9)
    assert joint.has_ids
    assert joint.resumes


@pytest.mark.parametrize("token", [b"", b"another"])
def test_one_branch_without_its_part_is_enough_to_begin_anew(token: bytes) -> None:
    joint = record(
        ResumeState(token=b"union", finished=(3,), has_ids=True),
        ResumeState(token=token, finished=(), has_ids=False),
    )
    assert joint.token == b""
    joint.begin(b"new", b"sealed", 8)
    assert not joint.resumes
    assert not joint.has_ids
    assert joint.peer_size == 8


# -- what the peer says ----------------------------------------------------------------------------

HERE = ("10.0.0.1:7000", "10.0.0.1:7001")


@pytest.mark.parametrize(
    ("said", "ours"),
    [
        (UnionBranches(("10.0.0.1:7000",), bytes(16)), ()),
        (UnionBranches((), bytes(16)), ()),
        (UnionBranches(HERE, bytes(16)), HERE),
        (UnionBranches(("10.0.0.1:7000", "10.0.0.1"), bytes(16)), ()),
        (UnionBranches(("10.0.0.1:7000", "not a host:1"), bytes(16)), ()),
        (UnionBranches(HERE, b""), ()),
    ],
)
def test_branches_that_make_no_sense_are_refused(
    said: UnionBranches, ours: tuple[str, ...]
) -> None:
    link, peer = linked_pair()
    peer.channel("opening").send(said)
    with pytest.raises(ProtocolViolation, match="branches"):
        agree_on_rendezvous(link.channel("opening"), ours, 2)
    link.close()
    peer.close()


def test_both_heads_have_their_branches_meet() -> None:
    there = ("10.0.0.1:7000", "[::1]:7001")
    names = set()
    for _ in range(2):
        link, peer = linked_pair()
        with ThreadPoolExecutor(1) as other:
            active = other.submit(agree_on_rendezvous, link.channel("opening"), there, 2)
            passive = agree_on_rendezvous(peer.channel("opening"), (), 2)
            assert passive == active.result(timeout=10)
        assert passive[0] == there
        names.add(passive[1])
        link.close()
        peer.close()
    assert len(names) == 2


# -- where they run --------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 64), min_size=1, max_size=20), st.integers(1, 40))
def test_branches_have_as_many_cores_as_fit(nodes: list[int], branches: int) -> None:
    if sum(nodes) < branches:
        with pytest.raises(ConfigurationError, match=r"agreement\.branches"):
            cores_per_branch(nodes, branches)
        return
    cores = cores_per_branch(nodes, branches)
    assert sum(node // cores for node in nodes) >= branches
    assert sum(node // (cores + 1) for node in nodes) < branches


def test_sixteen_nodes_are_a_branch_each() -> None:
    assert cores_per_branch([32] * 16, 16) == 32


def test_a_branch_needs_its_share_of_the_disk_and_some_more() -> None:
    alone = disk_needed(32, 10**8, 10**8, 2 * 10**9)
    each = disk_needed(32, 10**8, 10**8, 2 * 10**9, partitions=16)
    assert alone / 16 < each < alone / 8


# -- messages as bytes -----------------------------------------------------------------------------


@given(st.integers(0, 2**70), st.binary(max_size=99))
def test_a_request_is_decoded_as_it_was_sent(number: int, data: bytes) -> None:
    record = UnionRecord(folder=Path("somewhere"), identity=data)
    requests: list[HeadRequest] = [
        Recall(record=record),
        TakeIds(count=number, payload=data),
        EndIds(),
        GetListeningAddress(host="::1", first_port=number),
        Run(address="10.0.0.1:7000", rendezvous=data),
        GetStatus(),
        GetRanks(start=number),
        Stop(reason="ünder way"),
        Forget(folder=Path("somewhere")),
    ]
    assert [decode_head_request(encode(each)) for each in requests] == requests


@given(st.integers(-(2**70), 2**70), st.binary(max_size=99), st.text(max_size=20))
def test_a_request_of_another_branch_is_decoded_as_it_was_sent(
    number: int, data: bytes, text: str
) -> None:
    requests: list[MemberRequest] = [
        PostNumber(attempt=data, label=text, sender=1, number=number),
        FetchRows(attempt=data, label=text, owner=1, start=number),
    ]
    assert [decode_member_request(encode(each)) for each in requests] == requests


@given(st.integers(-(2**70), 2**70), st.binary(max_size=99), st.text(max_size=20))
def test_a_reply_is_decoded_as_it_was_sent(number: int, data: bytes, text: str) -> None:
    replies: list[BranchMessage] = [
        Empty(),
        ResumeState(token=data, finished=(number,), has_ids=True),
        IdsTaken(count=number),
        ListeningAddress(address=text),
        BranchResult(sizes=Sizes(1, 2, number), digest=data),
        BranchStatus(steps={text: StepState(3, 2, complete=True)}, sent=number, received=1),
        RankBlock(payload=data),
        RowBlock(next_piece=number, payload=data),
    ]
    for reply in replies:
        assert decode_reply(type(reply), encode_reply(lambda reply=reply: reply)) == reply  # type: ignore[misc]


def test_many_bytes_are_not_made_longer() -> None:
    rows = bytes(range(256)) * 1000
    assert len(encode(TakeIds(count=5, payload=rows))) < len(rows) + 100
    assert len(encode_reply(lambda: RowBlock(next_piece=1, payload=rows))) < len(rows) + 100


def test_an_order_arrives_as_it_was_given(tmp_path: Path) -> None:
    config = load_config(Workspace.create(tmp_path, IdSample(3, 3, 1)).config("active"))
    order = BranchOrder(
        import_path="florist.active_party.role:ACTIVE",
        config=config,
        tls=TlsContents(authority=b"\xff", certificate=b"c", key=b"k"),
        table="train",
        record=UnionRecord(folder=tmp_path, identity=b"\0"),
        number=1,
        count=2,
        token=b"t",
        attempt=b"a",
        resumes=True,
        done=frozenset({Step.SECOND_ROUND}),
        has_ids=False,
        keys=(1, 2**255, 3),
        size=4,
        peer_size=5,
    )
    begin = Begin(order=order, group_key=b"\xfe" * 32)
    assert decode_head_request(encode(begin)) == begin
    assert str(2**255) not in repr(begin)
    assert "xfe" not in repr(begin)


@pytest.mark.parametrize(
    "error",
    [
        PeerLost("gone"),
        ProtocolViolation("wrong"),
        PeerFailed("its operator stopped it", returns=True),
        AgreementMismatch(["one", "other"]),
    ],
)
def test_errors_arrive_as_they_were_raised(error: FloristError) -> None:
    def fail() -> Empty:
        raise error

    with pytest.raises(type(error)) as raised:
        decode_reply(Empty, encode_reply(fail))
    assert str(raised.value) == str(error)
    assert raised.value.returns == error.returns


def test_other_errors_are_internal() -> None:
    reply = encode_reply(lambda: IdsTaken(count=1 // 0))
    with pytest.raises(InternalError, match="in a branch, ZeroDivisionError"):
        decode_reply(IdsTaken, reply)


@pytest.mark.parametrize(
    "call",
    [
        b"",
        b"\0\0\0\0",
        encode(FetchRows(attempt=b"", label="", owner=0, start=0)),
        encode(EndIds()).replace(b"end_ids", b"close__"),
        encode(EndIds()) + b"more",
    ],
)
def test_an_unknown_request_is_refused(call: bytes) -> None:
    branch = Branch("x25519", "auto", 1)
    reply = answer_head(branch, call, lambda _: pytest.fail("it was answered"))
    with pytest.raises(InternalError, match=r"in a branch, \w*[Ee]rror"):
        decode_reply(Empty, reply)
    branch.close()


# -- progress --------------------------------------------------------------------------------------


class Shown:
    """Notes what people would see."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @contextmanager
    def step(self, title: str) -> Iterator[StepProgress]:
        self.lines.append(f"{title} begins")
        yield self
        self.lines.append(f"{title} ends")

    def expect(self, total: int) -> None:
        self.lines.append(f"of {total}")

    def advance(self, done: int) -> None:
        self.lines.append(f"+{done}")


def status(progress: RecordedProgress, sent: int = 0, received: int = 0) -> BranchStatus:
    return BranchStatus(steps=progress.snapshot(), sent=sent, received=received)


def test_traffic_of_branches_is_the_partys() -> None:
    traffic, branch = Traffic(sent=5, received=7), RecordedProgress()
    for before in (0, 30):  # two unions, one after the other
        with MergedProgress(NoProgress(), traffic) as mirror:
            mirror.show([status(branch, 10, 1), status(branch)])
            assert (traffic.all_sent, traffic.all_received) == (15 + before, 8 + before)
            mirror.show([status(branch, 10, 10), status(branch, 20, 20)])
            assert (traffic.all_sent, traffic.all_received) == (35 + before, 37 + before)
    assert (traffic.sent, traffic.received) == (5, 7)


def test_steps_of_several_branches_are_shown_as_one() -> None:
    shown, first, second = Shown(), RecordedProgress(), RecordedProgress()
    with MergedProgress(shown, Traffic()) as mirror:
        with first.step("step 3") as own:
            own.expect(10)
            own.advance(4)
            mirror.show([status(first), status(second)])
            with second.step("step 3") as other:
                other.expect(8)
                other.advance(8)
            mirror.show([status(first), status(second)])
            own.advance(6)
        mirror.show([status(first), status(second)])
        mirror.show([status(first), status(second)])
    assert shown.lines == [
        "step 3 begins",
        "of 10",
        "+4",
        "of 18",
        "+8",
        "+6",
        "step 3 ends",
    ]


def test_a_step_that_fails_is_not_shown_as_done() -> None:
    shown, only = Shown(), RecordedProgress()
    with pytest.raises(RuntimeError), MergedProgress(shown, Traffic()) as mirror:  # noqa: PT012 - in its midst
        with pytest.raises(ValueError, match="no"), only.step("step 3"):
            raise ValueError("no")
        mirror.show([status(only)])
        raise RuntimeError
    assert shown.lines == ["step 3 begins"]


def test_what_tls_needs_is_not_shown() -> None:
    assert "secret" not in repr(TlsContents(authority=b"a", certificate=b"c", key=b"secret"))


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
def test_the_loss_of_a_branch_is_the_reason_whatever_else_breaks_by_it(lost: int) -> None:
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
