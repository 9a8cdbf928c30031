"""The most recent errors and warnings of a party, without private information."""

from __future__ import annotations

import json
import re
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from florist.api.doctor.scrub import HIDDEN, source_files
from florist.common.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from florist.api.doctor.scrub import Scrubber

#: Bytes at the end of a log file that are read.
_TAIL = 1 << 20
#: Records that are shown.
_MOST = 20
#: Innermost frames of a traceback that are shown.
_FRAMES = 12

#: The status in the page that a party leaves in its run directory.
_STATUS = re.compile(r'<script type="application/json" id="final-status">(.*?)</script>', re.DOTALL)

_LEVELS = ("warning", "error", "critical")
_TEXT_RECORD = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d{3} ([A-Z]+) (.*)")
_FRAME = re.compile(r'\s*File "([^"]*)", line (\d+), in (\w+|<\w+>)\s*')
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*)(?::.*)?")
#: A path of an installed package or of Python itself, and the part that all machines share.
_LIBRARY = re.compile(r".*/(?:site-packages|lib(?=/python3\.\d+/))/([\w./-]+\.py)")


@dataclass
class _Record:
    time: str
    level: str
    message: str
    logger: object = None
    error: object = None
    exit_code: object = None
    trace: list[str] = field(default_factory=list)


def recent_errors(path: Path, scrubber: Scrubber) -> Iterator[str]:
    """Yield the lines that describe the last errors and warnings, the oldest first.

    Args:
        path: a log with JSON lines, as from `--log-file` or `--log-format json`, or with text
            lines as from `--log-format text`; lines of other programs are skipped.
        scrubber: removes private information.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    return _described_last(_records(_tail(path)), scrubber)


def last_status(path: Path, scrubber: Scrubber) -> Iterator[str]:
    """Yield the state in which a party ended, and its last errors and warnings.

    Args:
        path: the page that the party has left in its run directory; yields nothing without one.
        scrubber: removes private information.
    """
    try:
        page = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    found = _STATUS.search(page)
    try:
        status = json.loads(found[1]) if found else {}
        lines = [(line["time"], line["level"], line["text"]) for line in status["log"]]
        state, reason = status["state"], status["reason"]
    except (ValueError, KeyError, TypeError, RecursionError):
        yield "the page cannot be read"
        return
    why = f": {scrubber.scrub(reason)}" if isinstance(reason, str) else ""
    yield f"state: {scrubber.name(state)}{why}"
    entries = ({"time": time, "level": level, "message": text} for time, level, text in lines)
    records = (_json_record(json.dumps(entry)) for entry in entries)
    yield from _described_last((record for record in records if record is not None), scrubber)


def _described_last(records: Iterable[_Record], scrubber: Scrubber) -> Iterator[str]:
    last = deque((each for each in records if each.level in _LEVELS), maxlen=_MOST)
    if not last:
        yield "no errors or warnings found"
    for record in last:
        yield from _described(record, scrubber)


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError as error:
        raise ConfigurationError(f"--log {path}: cannot be read: {error.strerror}") from None
    return lines if size <= _TAIL else lines[1:]


def _records(lines: list[str]) -> Iterator[_Record]:
    current: _Record | None = None
    for line in lines:
        started = _json_record(line) or _text_record(line)
        if started is not None:
            if current is not None:
                yield current
            current = started
        elif current is not None:
            current.trace.append(line)
    if current is not None:
        yield current


def _json_record(line: str) -> _Record | None:
    start = line.find("{")  # container engines write a prefix
    if start < 0:
        return None
    try:
        entry = json.loads(line[start:])
        time = datetime.fromisoformat(entry["time"]).strftime("%Y-%m-%d %H:%M:%S")
        level, message = str(entry["level"]), str(entry["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    trace = str(entry.get("traceback", "")).splitlines()
    return _Record(
        time,
        level,
        message,
        entry.get("logger"),
        entry.get("error"),
        entry.get("exit_code"),
        trace,
    )


def _text_record(line: str) -> _Record | None:
    found = _TEXT_RECORD.search(line)
    return None if found is None else _Record(found[1], found[2].lower(), found[3])


def _described(record: _Record, scrubber: Scrubber) -> Iterator[str]:
    facts = [record.time, record.level]
    if record.logger is not None:
        facts.append(scrubber.name(record.logger))
    if record.error is not None:
        facts.append(scrubber.name(record.error))
    if isinstance(record.exit_code, int):
        facts.append(f"exit code {record.exit_code % 256}")
    yield f"{' '.join(facts)}: {scrubber.scrub(record.message)}"
    frames = [found for line in record.trace if (found := _FRAME.fullmatch(line))]
    if not frames:
        return
    for path, number, function in (each.groups() for each in frames[-_FRAMES:]):
        public = _public_path(path)
        yield f"  {public}:{number} in {function}" if public else f"  {HIDDEN}"
    kinds = [found for line in record.trace if (found := _EXCEPTION.fullmatch(line))]
    if kinds:
        yield f"  {scrubber.name(kinds[-1][1])}"


def _public_path(path: str) -> str | None:
    """Return the part of a path that is FLORIST's, Python's or a package's; None if it is not."""
    if library := _LIBRARY.fullmatch(path):
        return library[1]
    parts = PurePosixPath(path).parts
    endings = ("/".join(parts[start:]) for start in range(len(parts)))
    return next((ending for ending in endings if ending in source_files()), None)
