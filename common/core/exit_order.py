"""Ends background threads before the interpreter does.

A daemon thread that is in a library's native code when the interpreter shuts down is ended in its
middle. Libraries in C++ and Rust then abort the whole process ("terminate called without an active
exception"), although its work is done. So those who own such threads end them first.
"""

from __future__ import annotations

import atexit
import time
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Sequence
    from threading import Thread

#: Seconds to wait for all threads together.
LIMIT = 5.0


class HasThreads(Protocol):
    """The owner of daemon threads."""

    @property
    def threads(self) -> Sequence[Thread]: ...

    def tell_to_end(self) -> None:
        """Make the threads end after what they are doing, without waiting for them."""
        ...


_owners: WeakSet[HasThreads] = WeakSet()


def end_before_exit(owner: HasThreads) -> None:
    """End the threads of `owner` when the process exits, unless it is gone by then."""
    _owners.add(owner)


@atexit.register
def end_all() -> bool:
    """End the threads of all owners; return whether they have ended."""
    deadline = time.monotonic() + LIMIT
    owners = list(_owners)
    for owner in owners:
        owner.tell_to_end()
    threads = [thread for owner in owners for thread in owner.threads if thread.is_alive()]
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)
