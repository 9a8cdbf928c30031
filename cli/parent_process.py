"""Processes of parties that stop when the command that started them ends."""

from __future__ import annotations

import os
import signal
import sys

#: The environment variable with the ID of the process without which a party is to stop.
PARENT = "FLORIST_PARENT"

#: `PR_SET_PDEATHSIG` of prctl(2).
_SIGNAL_AT_PARENTS_END = 1


def end_with_parent(exit_code: int) -> None:
    """Have this process stopped when its parent ends, even by a kill, if the parent wants that.

    If the parent has ended already, the process ends with `exit_code`. Linux only; elsewhere it has
    no effect.
    """
    parent = os.environ.pop(PARENT, None)
    if parent is None or sys.platform != "linux":
        return
    import ctypes  # noqa: PLC0415 - rarely needed

    ctypes.CDLL(None).prctl(_SIGNAL_AT_PARENTS_END, signal.SIGTERM)
    if str(os.getppid()) != parent:
        os._exit(exit_code)
