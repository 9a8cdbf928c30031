"""Both parties' stages in this process, over links that tests hold."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.core.errors import Interrupted
from florist.common.core.progress import NoProgress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.transport.channel import Link


@dataclass
class StopAfter(NoProgress):
    """An operator who stops the party after so many steps."""

    steps: int

    def advance(self, done: int) -> None:  # noqa: ARG002 - each time is one step
        self.steps -= 1
        if not self.steps:
            raise Interrupted("stopped by the test")


@contextmanager
def lend(link: Link) -> Iterator[Link]:
    """In place of a connection: the link, closed at the end if all went well."""
    yield link
    link.close()
