"""The last lines of the log, for the status page."""

from __future__ import annotations

import logging
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Lines that are kept, and characters of each line.
LINES = 60
WIDTH = 500


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the log; for an exception, only its message."""

    time: str
    level: str
    text: str


class LogTail(logging.Handler):
    """Keeps the last lines of the log."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lines: deque[LogLine] = deque(maxlen=LINES)

    def emit(self, record: logging.LogRecord) -> None:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="seconds")
        text = record.getMessage()
        shown = text if len(text) <= WIDTH else f"{text[:WIDTH]}…"
        self._lines.append(LogLine(when, record.levelname.lower(), shown))

    def lines(self) -> tuple[LogLine, ...]:
        """Return the lines, the newest last."""
        self.acquire()  # `emit` is called with this lock held
        try:
            return tuple(self._lines)
        finally:
            self.release()

    @contextmanager
    def on(self, log: logging.Logger) -> Iterator[None]:
        """Record this logger while the context lasts."""
        log.addHandler(self)
        try:
            yield
        finally:
            log.removeHandler(self)
