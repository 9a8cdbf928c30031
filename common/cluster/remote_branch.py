"""A branch in another process, as its head and the other branches of the party call it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from florist.common.cluster.branch_messages import (
    BranchMessage,
    EndIds,
    FetchRows,
    Forget,
    GetListeningAddress,
    GetRanks,
    GetStatus,
    PostNumber,
    Recall,
    RunUnion,
    Stop,
    TakeIds,
)

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.cluster.branch_messages import (
        BranchOrder,
        BranchResult,
        BranchStatus,
        Request,
        ResumeState,
        UnionRecord,
    )

R = TypeVar("R", bound=BranchMessage)


class RemoteBranch(ABC):
    """A `Branch` in another process, as the head calls it.

    Every method may raise what the branch raises, and `BranchLost` if its process was lost.
    """

    @abstractmethod
    def host(self) -> str:
        """Return the address of the branch's machine, for the peer's branches."""

    @abstractmethod
    def begin(self, order: BranchOrder) -> None:
        """Begin an attempt, together with the other branches."""

    @abstractmethod
    def send(self, request: Request[R]) -> R:
        """Send a request and wait for its reply."""

    def recall(self, record: UnionRecord) -> ResumeState:
        """Return what the branch has stored of a union."""
        return self.send(Recall(record=record))

    def take_ids(self, count: int, packed: bytes) -> int:
        """Give it more of its IDs, in row order; return how many it took."""
        return self.send(TakeIds(count=count, payload=packed)).count

    def end_ids(self) -> None:
        """Tell it that it has all of its IDs."""
        self.send(EndIds())

    def listening_address(self, host: str, first_port: int) -> str:
        """Return where it listens, as `host:port`."""
        return self.send(GetListeningAddress(host=host, first_port=first_port)).address

    def run(self, address: str, rendezvous: bytes) -> BranchResult:
        """Run its part of the union with the peer's branch; takes as long as the union does."""
        return self.send(RunUnion(address=address, rendezvous=rendezvous))

    def status(self) -> BranchStatus:
        """Return how far it is."""
        return self.send(GetStatus())

    def ranks(self, start: int) -> bytes:
        """Return some ranks of its rows from row `start` on, as they are stored."""
        return self.send(GetRanks(start=start)).payload

    def stop(self, reason: str) -> None:
        """End its attempt."""
        self.send(Stop(reason=reason))

    def forget(self, folder: Path) -> None:
        """Delete what it has stored of a union."""
        self.send(Forget(folder=folder))


class MemberConnection(Protocol):
    """Sends requests to another branch of the same party."""

    def send(self, request: Request[R]) -> R:
        """Send a request and wait for its reply.

        Raises:
            BranchLost: the other branch is gone, or in another attempt.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RemoteMember:
    """The mailbox of another branch, as a member of the worker group, in one attempt."""

    connection: MemberConnection
    attempt: bytes

    def post(self, label: str, sender: int, number: int) -> None:
        request = PostNumber(attempt=self.attempt, label=label, sender=sender, number=number)
        self.connection.send(request)

    def rows(self, label: str, owner: int, start: int) -> tuple[int, bytes]:
        block = self.connection.send(
            FetchRows(attempt=self.attempt, label=label, owner=owner, start=start)
        )
        return block.next_piece, block.payload
