"""The entry points of the commands `florist` and `florist-party`.

Only what is imported here is loaded before a signal can be handled: until a command is ready to
stop in order, Ctrl-C and SIGTERM end the process at once. Nothing has been started by then.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from florist.cli.parent_process import end_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

#: The exit code of `florist.common.core.errors.Interrupted`.
_STOPPED = 130


def florist() -> NoReturn:
    """Run the command `florist`."""
    _end_at_once()
    from florist.cli.tool import main  # noqa: PLC0415 - signals are handled from here on

    _exit_after(main)


def florist_party() -> NoReturn:
    """Run the command `florist-party`."""
    _end_at_once()
    end_with_parent(exit_code=_STOPPED)
    from florist.cli.party import main  # noqa: PLC0415 - signals are handled from here on

    _exit_after(main)


def _exit_after(main: Callable[[], NoReturn]) -> NoReturn:
    """Run a command, and exit even if a thread of it is stuck in the native code of a library.

    Everything is closed and saved by then. The interpreter would end such a thread in its middle,
    at which libraries abort or wait for ever.
    """
    try:
        main()
    except SystemExit as end:
        from florist.common.core.exit_order import end_all  # noqa: PLC0415 - see above

        if not end_all() and isinstance(end.code, int):
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code)
        raise


def _end_at_once() -> None:
    # A handler, because the first process of a container does not get signals without one.
    def end(number: int, frame: FrameType | None) -> NoReturn:
        del number, frame
        os.write(2, b"stopped by the operator\n")
        os._exit(_STOPPED)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


if __name__ == "__main__":
    florist_party()
