"""`python -m tests.schedules`: runs schedules, or replays one; see docs/contributing.md.

The first seed that fails is printed with what the parties logged. The summary is written as JSON.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a schedule
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.schedules", *sys.argv[1:]], environment
        )
    from tests.schedules.patching import install

    install()
    from tests.schedules.command import main

    sys.exit(main(sys.argv[1:]))
