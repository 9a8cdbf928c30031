"""Runs a tutorial page: writes its files, runs its commands, and compares what they print.

Fenced `{code-block}`s are read by their language and caption:

- `python` or `yaml` with a file name as the caption: a file to write;
- `console`: commands after `$ `, each followed by its output, run one after the other;
- `console` with the caption `Terminal …`: run at the same time as the terminals next to it, or, if
  the caption says `keep it running`, started and stopped at the end of the page.

Numbers, times and digests differ from run to run, so lines are compared without them. A command may
print more lines than the page shows, but each line on the page must be among those printed.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BLOCK = re.compile(
    r"^```\{code-block\} (?P<language>\w+)\n"
    r"(?::caption: (?P<caption>[^\n]*)\n\n?)?(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
#: Lines that a command prints only if the other party is slower than it, or if it takes long.
_DEPENDS_ON_TIMING = re.compile(r" INFO (waiting for |[\w ]+: [\d,]+ of [\d,]+, )")
#: The folder in which a reader works, in place of the temporary one.
HOME = "/home/me/trial"
#: Seconds for one command.
_LIMIT = 240.0


@dataclass(slots=True)
class Command:
    """One command of the page and the output that the page shows for it."""

    line: str
    shown: list[str] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of the page."""

    language: str
    caption: str
    body: str
    commands: list[Command]

    @property
    def is_terminal(self) -> bool:
        return self.language == "console" and self.caption.startswith("Terminal")

    @property
    def keeps_running(self) -> bool:
        return self.is_terminal and "keep it running" in self.caption


def read_blocks(text: str) -> list[Block]:
    """Return the blocks of a page in their order."""
    blocks = []
    for found in _BLOCK.finditer(text):
        commands: list[Command] = []
        if found["language"] == "console":
            for line in found["body"].splitlines():
                if line.startswith("$ "):
                    commands.append(Command(line[2:]))
                elif commands:
                    commands[-1].shown.append(line)
        caption = found["caption"] or ""
        blocks.append(Block(found["language"], caption, found["body"], commands))
    return blocks


def run_page(text: str, folder: Path, replacements: Mapping[str, str]) -> list[Command]:
    """Run all blocks of a page in `folder`; return its commands with what they printed.

    Args:
        text: the page.
        folder: an empty folder.
        replacements: applied to files and commands, such as a port that is in use here.
    """
    blocks = read_blocks(text)
    services: list[_Process] = []
    try:
        for group in _groups(blocks):
            if group[0].language != "console":
                content = _replaced(group[0].body, replacements)
                (folder / group[0].caption).write_text(content, encoding="utf-8")
            elif group[0].keeps_running:
                (command,) = group[0].commands
                services.append(_Process(command, folder, replacements))
                services[-1].wait_for_shown()
            elif group[0].is_terminal:
                running = [_Process(block.commands[0], folder, replacements) for block in group]
                for process in running:
                    process.wait()
            else:
                for command in group[0].commands:
                    _Process(command, folder, replacements).wait()
    finally:
        for service in services:
            service.stop()
    return [command for block in blocks for command in block.commands]


def missing_lines(command: Command) -> list[str]:
    """Return the lines that the page shows and the command did not print."""
    printed = Counter(map(comparable, command.printed))
    missing = []
    for line in command.shown:
        if comparable(line) == _WRAPPED:
            continue
        if printed[comparable(line)] > 0:
            printed[comparable(line)] -= 1
        else:
            missing.append(line)
    return missing


_ATTACK = (
    r"\b(label-likelihood|label-rates|gradient-direction|gradient-norm|spectral|embedding-\w+"
    r"|likelihood-mlp|known-stand-ins|posterior-gap|pair|share-fit)\b|\b[\w-]+…"
)
#: The rest of a wrapped cell of an audit's table: which cells are wrapped depends on the run.
_WRAPPED = "WRAPPED"
_REST_OF_CELL = re.compile(
    r"(N|\(N\u2013N\)|of|the|pass|own|features|before|step|batches|WINDOW|STRATUM| )*"
)
#: The headings of an audit's table, which are wrapped like its cells.
_HEADINGS = re.compile(r"attack .*worst.*|(TPR|at|N%?|FPR|worst|stratum|window|limits| )+")
_WINDOW = (
    r"\b(first batch|batches \d+\u2013\d+|all later batches|all epochs"
    r"|last batches before step \d+)(?=\s|$)"
)
_STRATUM = r"\b(part \d+ of \d+ of the pass|label \d+|cluster \d+ of own features)(?=\s|$)"


def comparable(line: str) -> str:
    """Reduce a line to what is the same in every run and on every machine."""
    line = re.sub(r"\b[0-9a-f]{12,}…?", "DIGEST", line)
    line = re.sub(r"\b(ifma|avx2|cryptography)\b", "ENGINE", line)
    # What an audit finds, and whether it has enough rows for a result, depends on the run.
    line = re.sub(r"(self-audit after step \d+, [^:]+): .*", r"\1: RESULT", line)
    line = re.sub(r"strongest attack [\w-]+", "strongest attack NAME", line)
    # The party with the smaller padded set merges, which the noise decides here.
    line = re.sub(r"\w+ merged the sets", "PARTY merged the sets", line)
    # Which attack does best, and where, depends on the run.
    line = re.sub(_ATTACK, "NAME", line)
    line = re.sub(_WINDOW, "WINDOW", line)
    line = re.sub(_STRATUM, "STRATUM", line)
    line = re.sub(r"[-+]?\d[\d.,:T-]*(\s?(ms|MB|GB|KB|kB|s|%)\b)?", "N", line)
    # A rate with its interval, or none where the sample was too small for one.
    line = re.sub(r"N%? \(N\u2013N\)|(?<=\s)\u2013(?=\s)", "N", line)
    line = re.sub(r"[─━┃│┏┓┗┛┡┩╇┳┴┬└┘├┤┼ ]+", " ", line).strip()
    # A row of an audit's table: the stratum and the window in which an attack does best.
    line = re.sub(r"^NAME N .* ([✓✗].*)$", r"NAME N \1", line)
    if line and (_REST_OF_CELL.fullmatch(line) or _HEADINGS.fullmatch(line)):
        return _WRAPPED
    return line


def updated(text: str, commands: list[Command]) -> str:
    """Return the page with the output of each command replaced by what it printed."""
    results = iter(commands)

    def rewrite(found: re.Match[str]) -> str:
        if found["language"] != "console":
            return found[0]
        head = found[0][: found.start("body") - found.start()]
        lines = []
        for line in found["body"].splitlines():
            if line.startswith("$ "):
                printed = (each.rstrip() for each in next(results).printed)
                lines += [line, *(each for each in printed if not _DEPENDS_ON_TIMING.search(each))]
        return head + "\n".join(lines) + "\n```"

    return _BLOCK.sub(rewrite, text)


class _Process:
    """A command of the page as a process."""

    def __init__(self, command: Command, folder: Path, replacements: Mapping[str, str]) -> None:
        self._command = command
        program, *arguments = shlex.split(_replaced(command.line, replacements))
        binaries = Path(sys.executable).parent
        self._process = subprocess.Popen(
            [str(binaries / program) if (binaries / program).exists() else program, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=os.environ | {"COLUMNS": "120", "TERM": "dumb"},
        )
        self._back = {new: old for old, new in replacements.items()} | {str(folder): HOME}
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._command.printed.append(_replaced(line.rstrip("\n"), self._back))

    def wait(self) -> None:
        """Wait for the end of a command, which must succeed."""
        try:
            code = self._process.wait(_LIMIT)
        finally:
            self._process.kill()
        self._reader.join(10)
        assert code == 0, f"$ {self._command.line}\n" + "\n".join(self._command.printed)

    def wait_for_shown(self) -> None:
        """Wait until a service has printed the lines that the page shows, or any line at all."""

        def shown() -> str:
            return f"$ {self._command.line}\n" + "\n".join(self._command.printed)

        def is_there() -> bool:
            found = bool(self._command.printed) and not missing_lines(self._command)
            assert found or self._process.poll() is None, shown()
            return found

        wait_until(is_there, _LIMIT, shown, every=0.05)

    def stop(self) -> None:
        """Stop a service as an operator would; the page shows what it printed before."""
        before = len(self._command.printed)
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(_LIMIT)
        self._reader.join(10)
        del self._command.printed[before:]


def _groups(blocks: list[Block]) -> Iterator[list[Block]]:
    """Terminals that run at the same time together, every other block by itself."""
    together: list[Block] = []
    for block in blocks:
        if block.is_terminal and not block.keeps_running:
            together.append(block)
            continue
        if together:
            yield together
            together = []
        yield [block]
    if together:
        yield together


def _replaced(text: str, replacements: Mapping[str, str]) -> str:
    for old, new in replacements.items():
        text = text.replace(old, new)
    return text
