"""Both parties' stages in this process, over links that tests hold."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from florist.common.core.errors import Interrupted
from florist.common.core.progress import NoProgress
from florist.common.stages.role import ForwardingRole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from florist.common.stages.role import Role
    from florist.common.transport.channel import Link


@dataclass
class StopAfter(NoProgress):
    """An operator who stops the party after so many steps."""

    steps: int

    def advance(self, done: int) -> None:  # noqa: ARG002 - each time is one step
        self.steps -= 1
        if not self.steps:
            raise Interrupted("stopped by the test")


class RoleOverLink(ForwardingRole):
    """A role that is connected by this link."""

    def __init__(self, inner: Role, link: Link) -> None:
        super().__init__(inner)
        self._link = link

    def connect(self, *_: object) -> AbstractContextManager[Link]:
        return _lend(self._link)


class RoleWithoutPeer(ForwardingRole):
    """A role that must not connect."""

    def connect(self, *_: object) -> NoReturn:
        raise AssertionError("the peer was called")


@contextmanager
def _lend(link: Link) -> Iterator[Link]:
    """Yield the link in place of a connection; close it at the end if all went well."""
    yield link
    link.close()
