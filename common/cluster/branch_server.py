"""Answers the requests that reach a branch, from its head and from other branches of the party."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from florist.common.cluster.branch_codec import (
    decode_head_request,
    decode_member_request,
    encode_reply,
)
from florist.common.cluster.branch_messages import (
    Begin,
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
    RowBlock,
    RunUnion,
    Stop,
    TakeIds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from florist.common.cluster.branch import Branch
    from florist.common.cluster.branch_messages import BranchMessage, HeadRequest, MemberRequest
    from florist.common.cluster.worker_group import GroupMember

    #: Connects to all branches of the party, for one attempt.
    Connect = Callable[[Begin], Sequence[GroupMember]]


def answer_head(branch: Branch, data: bytes, connect: Connect) -> bytes:
    """Return the encoded reply of `branch` to an encoded request of its head."""
    return encode_reply(lambda: _head_reply(branch, decode_head_request(data), connect))


def answer_member(branch: Branch, data: bytes) -> bytes:
    """Return the encoded reply of `branch` to an encoded request of another branch."""
    return encode_reply(lambda: _member_reply(branch, decode_member_request(data)))


def _head_reply(  # noqa: C901, PLR0911 - one case per request
    branch: Branch, request: HeadRequest, connect: Connect
) -> BranchMessage:
    match request:
        case Recall():
            return branch.recall(request.record)
        case Begin():
            branch.begin(request.order, connect(request))
        case TakeIds():
            return IdsTaken(count=branch.take_ids(request.count, request.payload))
        case EndIds():
            branch.end_ids()
        case GetListeningAddress():
            address = branch.listening_address(request.host, request.first_port)
            return ListeningAddress(address=address)
        case RunUnion():
            return branch.run(request.address, request.rendezvous)
        case GetStatus():
            return branch.status()
        case GetRanks():
            return RankBlock(payload=branch.ranks(request.start))
        case Stop():
            branch.stop(request.reason)
        case Forget():
            branch.forget(request.folder)
        case _:
            assert_never(request)
    return Empty()


def _member_reply(branch: Branch, request: MemberRequest) -> BranchMessage:
    mailbox = branch.mailbox(request.attempt)
    match request:
        case PostNumber():
            mailbox.post(request.label, request.sender, request.number)
            return Empty()
        case FetchRows():
            next_piece, rows = mailbox.rows(request.label, request.owner, request.start)
            return RowBlock(next_piece=next_piece, payload=rows)
        case _:
            assert_never(request)
