"""Messages between a head and its branches, as bytes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from florist.common.cluster.branch import Branch
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
    RunUnion,
    Stop,
    TakeIds,
    TlsContents,
    UnionRecord,
)
from florist.common.cluster.branch_progress import StepState
from florist.common.cluster.branch_server import answer_head
from florist.common.core.errors import (
    AgreementMismatch,
    FloristError,
    InternalError,
    PeerFailed,
    PeerLost,
    ProtocolViolation,
)
from florist.common.session.union_sizes import UnionSizes
from florist.common.settings.loader import load_config
from florist.common.transport.messages import Step
from florist.experiments.sample_data import IdSample
from tests.support.parties import Workspace

if TYPE_CHECKING:
    from florist.common.cluster.branch_messages import HeadRequest, MemberRequest


@given(st.integers(0, 2**70), st.binary(max_size=99))
def test_a_request_is_decoded_as_it_was_sent(number: int, data: bytes) -> None:
    record = UnionRecord(folder=Path("somewhere"), identity=data)
    requests: list[HeadRequest] = [
        Recall(record=record),
        TakeIds(count=number, payload=data),
        EndIds(),
        GetListeningAddress(host="::1", first_port=number),
        RunUnion(address="10.0.0.1:7000", rendezvous=data),
        GetStatus(),
        GetRanks(start=number),
        Stop(reason="stöpped"),
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
        BranchResult(sizes=UnionSizes(1, 2, number), digest=data),
        BranchStatus(steps={text: StepState(3, 2, complete=True)}, sent=number, received=1),
        RankBlock(payload=data),
        RowBlock(next_piece=number, payload=data),
    ]
    for reply in replies:
        assert decode_reply(type(reply), encode_reply(lambda reply=reply: reply)) == reply  # type: ignore[misc]


def test_payloads_are_sent_without_overhead() -> None:
    rows = bytes(range(256)) * 1000
    assert len(encode(TakeIds(count=5, payload=rows))) < len(rows) + 100
    assert len(encode_reply(lambda: RowBlock(next_piece=1, payload=rows))) < len(rows) + 100


def test_an_order_is_decoded_as_it_was_sent(tmp_path: Path) -> None:
    config = load_config(Workspace.create(tmp_path, IdSample(3, 3, 1)).config("active"))
    order = BranchOrder(
        import_path="florist.active_party.role:ACTIVE",
        config=config,
        tls=TlsContents(authority=b"\xff", certificate=b"c", key=b"k", peer_key_sha256=None),
        table="train",
        record=UnionRecord(folder=tmp_path, identity=b"\0"),
        number=1,
        count=2,
        token=b"t",
        attempt=b"a",
        resumes=True,
        done=frozenset({Step.SECOND_ROUND}),
        has_ids=False,
        keys=(1, 2**255, 3, 4),
        merging="passive",
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
        PeerFailed("its operator stopped it", will_reconnect=True),
        AgreementMismatch(["one", "other"]),
    ],
)
def test_an_error_is_decoded_as_it_was_raised(error: FloristError) -> None:
    def fail() -> Empty:
        raise error

    with pytest.raises(type(error)) as raised:
        decode_reply(Empty, encode_reply(fail))
    assert str(raised.value) == str(error)
    assert raised.value.will_reconnect == error.will_reconnect


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
    with pytest.raises(InternalError, match="a malformed message"):
        decode_reply(Empty, reply)
    branch.close()


def test_a_tls_key_is_not_in_the_repr() -> None:
    assert "secret" not in repr(
        TlsContents(authority=b"a", certificate=b"c", key=b"secret", peer_key_sha256=None)
    )
