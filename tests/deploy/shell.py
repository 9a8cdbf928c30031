"""Running system commands."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class CannotRun(Exception):  # noqa: N818 - it reads as what happened
    """This machine lacks something that the test needs; the test is skipped with this reason."""


class CommandFailed(Exception):  # noqa: N818 - likewise
    """A command failed or timed out."""


def run(
    *command: str | Path,
    timeout: float = 60,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> str:
    """Run a command that must succeed, and return its output.

    Raises:
        CommandFailed: it failed; the message has the end of its output.
    """
    code, printed = try_run(*command, timeout=timeout, env=env, folder=folder)
    if code:
        raise CommandFailed(f"{_shown(command)} ended with {code}:\n{printed[-4000:]}")
    return printed


def try_run(
    *command: str | Path,
    timeout: float = 60,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> tuple[int, str]:
    """Run a command, and return its exit code and output.

    Raises:
        CommandFailed: it does not exist or timed out.
    """
    try:
        done = subprocess.run(
            command,
            timeout=timeout,
            env={**os.environ, **(env or {})},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except OSError as error:
        raise CommandFailed(f"{_shown(command)}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise CommandFailed(f"{_shown(command)} did not end in {timeout:.0f} s") from None
    return done.returncode, done.stdout


def _shown(command: tuple[str | Path, ...]) -> str:
    return " ".join(map(str, command))
