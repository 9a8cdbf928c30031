"""Branches in threads of this process instead of a cluster; they connect over real sockets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from florist.common.cluster.branch import Branch
from florist.common.cluster.branch_codec import decode_reply, encode
from florist.common.cluster.branch_messages import Begin, BranchMessage
from florist.common.cluster.branch_server import answer_head, answer_member
from florist.common.cluster.remote_branch import RemoteBranch, RemoteMember

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from florist.common.cluster.branch_messages import BranchOrder, Request
    from florist.common.settings.party_config import PartyConfig

R = TypeVar("R", bound=BranchMessage)


@dataclass
class ThreadCluster:
    """Branches that live as long as it does; messages are encoded as between processes."""

    config: PartyConfig
    engine: str = "of threads"
    name: str = "threads"
    #: The orders that its branches were given, one attempt after another.
    orders: list[BranchOrder] = field(default_factory=list)
    #: Called before each request, of the head or of another branch, with the branch's number.
    before: Callable[[int, BranchMessage], None] = lambda _number, _request: None

    def __post_init__(self) -> None:
        agreement = self.config.agreement
        self._branches = [Branch(agreement.group, "auto", 1) for _ in range(agreement.branches)]

    def branches(self) -> Sequence[ThreadBranch]:
        return [
            ThreadBranch(self, number, branch, self._branches)
            for number, branch in enumerate(self._branches)
        ]

    def close(self) -> None:
        for branch in self._branches:
            branch.close()


@dataclass
class ThreadBranch(RemoteBranch):
    cluster: ThreadCluster
    number: int
    branch: Branch
    branches: Sequence[Branch]

    def host(self) -> str:
        return "127.0.0.1"

    def begin(self, order: BranchOrder) -> None:
        self.cluster.orders.append(order)
        self.send(Begin(order=order, group_key=b""))

    def send(self, request: Request[R]) -> R:
        self.cluster.before(self.number, request)
        reply = answer_head(self.branch, encode(request), self._connect)
        return decode_reply(request.reply_type(), reply)

    def _connect(self, begin: Begin) -> Sequence[RemoteMember]:
        attempt = begin.order.attempt
        return [
            RemoteMember(ThreadMember(self.cluster, number, branch), attempt)
            for number, branch in enumerate(self.branches)
        ]


@dataclass
class ThreadMember:
    cluster: ThreadCluster
    number: int
    branch: Branch

    def send(self, request: Request[R]) -> R:
        self.cluster.before(self.number, request)
        reply = answer_member(self.branch, encode(request))
        return decode_reply(request.reply_type(), reply)
