"""How the commands speak: bars and colours on a terminal, plain or JSON lines otherwise."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from rich.console import Console
from rich.logging import RichHandler

from florist.cli.progress_display import BarProgress, LineProgress

if TYPE_CHECKING:
    from florist.common.core.errors import FloristError
    from florist.common.core.progress import Progress

log = logging.getLogger("florist")

#: Attributes that the progress and the stages attach to log records, for the JSON form.
EVENT_FIELDS = (
    *("event", "step", "done", "total", "per_second", "seconds"),
    *("error", "exit_code", "origin"),
)


class LogFormat(StrEnum):
    """How log lines look."""

    auto = "auto"
    text = "text"
    json = "json"


def set_up_output(log_format: LogFormat, *, verbose: bool) -> Progress:
    """Send logs and progress to standard error in the form asked for."""
    console = Console(stderr=True)
    live = log_format is LogFormat.auto and console.is_terminal
    handler: logging.Handler
    if live:
        handler = RichHandler(console=console, show_path=False, markup=False)
        handler.setFormatter(logging.Formatter("%(message)s"))
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(
            _JsonFormatter()
            if log_format is LogFormat.json
            else logging.Formatter("%(asctime)s %(levelname)s %(message)s")
        )
    log.handlers[:] = [handler]
    log.setLevel(logging.DEBUG if verbose else logging.INFO)
    log.propagate = False
    return BarProgress(console) if live else LineProgress(logging.getLogger("florist.progress"))


def report_error(error: FloristError) -> None:
    """One line that says what happened, one that says what to do."""
    log.error(
        "%s",
        error.reason,
        extra={
            "event": "error",
            "error": type(error).__name__,
            "origin": error.origin,
            "exit_code": error.exit_code,
        },
    )
    if error.advice:
        log.error("→ %s", error.advice, extra={"event": "advice"})


class _JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {key: vars(record)[key] for key in EVENT_FIELDS if key in vars(record)}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)
