"""Branches in threads of this process, in place of a cluster: they meet over real sockets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from florist.common.cluster.branch import Branch
from florist.common.cluster.branch_calls import OF_HEAD, answered, asked, packed, result, unpacked
from florist.common.cluster.branch_messages import BranchOrder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from florist.common.settings.party_config import PartyConfig


@dataclass
class ThreadCluster:
    """Branches that live as long as it does; what passes is copied as between processes."""

    config: PartyConfig
    engine: str = "of threads"
    name: str = "threads"
    #: The orders that its branches were given, one attempt after the other.
    orders: list[BranchOrder] = field(default_factory=list)
    #: Called before each call, by the head or a sibling, with the branch's number and the method.
    before: Callable[[int, str], None] = lambda _number, _method: None

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
class ThreadBranch:
    cluster: ThreadCluster
    number: int
    branch: Branch
    siblings: Sequence[Branch]

    def call(self, method: str, *arguments: object) -> Any:  # noqa: ANN401 - as `Branch` gives it
        self.cluster.before(self.number, method)
        call = asked(OF_HEAD, method, arguments)
        answer = answered(OF_HEAD, lambda name: getattr(self.branch, name), call)
        return result(OF_HEAD[method], answer)

    def begin(self, order: BranchOrder) -> None:
        self.cluster.orders.append(order)
        (copy,) = unpacked([BranchOrder], packed([BranchOrder], [order]))
        self.branch.begin(
            copy,
            [
                ThreadMember(self.cluster, number, branch, order.attempt)
                for number, branch in enumerate(self.siblings)
            ],
        )

    def host(self) -> str:
        return "127.0.0.1"


@dataclass
class ThreadMember:
    cluster: ThreadCluster
    number: int
    branch: Branch
    attempt: bytes

    def tell(self, label: str, sender: int, number: int) -> None:
        self.cluster.before(self.number, "tell")
        self.branch.mailbox(self.attempt).tell(label, sender, number)

    def rows(self, label: str, owner: int, start: int) -> tuple[int, bytes]:
        self.cluster.before(self.number, "rows")
        return self.branch.mailbox(self.attempt).rows(label, owner, start)
