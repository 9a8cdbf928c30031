"""Coverage-guided fuzzing: `make fuzz`, or `python -m tests.fuzz.atheris_targets SECONDS [NAME…]`.

Every target, or those named, has its share of the time in a process of its own. What reaches new
code is kept in `.fuzz/corpus`, the output in `.fuzz/logs`, and what broke a target in
`.fuzz/broken`: name that file in place of the seconds to run it again.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import redirect_stderr
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

FOLDER = Path(".fuzz")
CORPUS, LOGS, BROKEN = (FOLDER / name for name in ("corpus", "logs", "broken"))
#: In seconds and MiB: of one input, of the process, of one allocation.
TIMEOUT, MEMORY, ALLOCATION = 10, 2048, 256


def all_targets(folder: Path) -> dict[str, Target]:
    """By name, with the code that they run instrumented; `folder` is for files to damage."""
    import atheris  # noqa: PLC0415 - need not be installed

    with redirect_stderr(StringIO()), atheris.instrument_imports(include=["florist"]):
        from tests.fuzz.application_targets import (  # noqa: PLC0415
            APPLICATION_MESSAGES,
            application_file_targets,
        )
        from tests.fuzz.targets import MESSAGES, file_targets  # noqa: PLC0415
        from tests.fuzz.transfer_targets import TRANSFER_MESSAGES  # noqa: PLC0415
    messages = (*MESSAGES, *APPLICATION_MESSAGES, *TRANSFER_MESSAGES)
    files = (*file_targets(folder), *application_file_targets(folder))
    return {target.name: target for target in (*messages, *files)}


def fuzz(target: Target, what: list[str]) -> None:
    """Try one target; ends the process, with another code than 0 if it broke."""
    import atheris  # noqa: PLC0415

    limits = [
        f"-timeout={TIMEOUT}",
        f"-rss_limit_mb={MEMORY}",
        f"-malloc_limit_mb={ALLOCATION}",
        f"-artifact_prefix={BROKEN}/{target.name}-",
        "-max_len=16384",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *limits, *what], target)
    atheris.Fuzz()


def held(target: Target, seconds: int) -> bool:
    """Fuzz in a child process, which has all modules loaded; whether the target held."""
    corpus, log = CORPUS / target.name, LOGS / target.name
    for folder in (corpus, LOGS, BROKEN):
        folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    child = os.fork()
    if not child:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        try:
            fuzz(target, [f"-max_total_time={seconds}", str(corpus)])
        except SystemExit as end:  # what the parent holds is the parent's to clean up
            os._exit(int(end.code or 0))
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    text = log.read_text(errors="replace")
    counts = [line.split()[-1] for line in text.splitlines() if "number_of_executed_units" in line]
    inputs = f"{int(counts[0]):,} inputs in {seconds} s" if counts else "ended"
    say(f"{target.name:14} {'BROKE' if code else 'held'}: {inputs}")
    if code:
        say(text[-4000:])
    return code == 0


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    if find_spec("atheris") is None:
        say("skipped: atheris is not installed here; pip install '.[fuzz]' (Linux on x86-64)")
        return
    what, *names = sys.argv[1:]
    with tempfile.TemporaryDirectory() as files:
        targets = all_targets(Path(files))
        chosen = [targets[name] for name in names or targets]
        if Path(what).is_file():
            fuzz(chosen[0], [what])
        share = max(1, round(int(what) / len(chosen)))
        outcomes = [held(target, share) for target in chosen]
        sys.exit(not all(outcomes))


if __name__ == "__main__":
    main()
