"""Logs and progress of the commands: bars on a terminal, text or JSON lines otherwise."""

from __future__ import annotations

import json
import logging
import secrets
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import FOR_OWNER
from florist.common.storage.private_files import private_opener

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.core.errors import FloristError
    from florist.common.core.progress import Progress

log = logging.getLogger("florist")

#: Attributes of log records that JSON lines include.
EVENT_FIELDS = (
    *("event", "step", "done", "total", "per_second", "seconds_left", "seconds"),
    *("error", "exit_code", "origin"),
    *("stage", "figures"),
)


class LogContext:
    """What each JSON line says about where it comes from: the party, its stage, its training run.

    A training run has an ID once the parties have agreed on it, which is the same at both: it is
    taken from the first record that has it. None of the fields reveals anything about a person.
    """

    def __init__(self) -> None:
        self._fields = {"process": secrets.token_hex(4)}

    def set(self, **fields: str) -> None:
        """Add fields to all later lines."""
        self._fields |= fields

    def of(self, record: logging.LogRecord) -> dict[str, str]:
        """Return the fields for a record."""
        run = vars(record).get("run")
        if isinstance(run, str):
            self.set(run=run)
        return self._fields


#: Of this process.
CONTEXT = LogContext()


class LogFormat(StrEnum):
    """The format of log lines."""

    auto = "auto"
    text = "text"
    json = "json"


def set_up_output(log_format: LogFormat, *, verbose: bool) -> Progress:
    """Send logs to standard error in this format; return where progress is to be reported."""
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast
    from rich.logging import RichHandler  # noqa: PLC0415

    from florist.cli.progress_display import BarProgress, LineProgress  # noqa: PLC0415

    console = Console(stderr=True)
    live = log_format is LogFormat.auto and console.is_terminal
    handler: logging.Handler
    if live:
        handler = RichHandler(console=console, show_path=False, markup=False)
        handler.setFormatter(_TerminalFormatter("%(message)s"))
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(
            _JsonFormatter()
            if log_format is LogFormat.json
            else logging.Formatter("%(asctime)s %(levelname)s %(message)s")
        )
    if log_format is LogFormat.json:
        _redirect_others(handler)
    log.handlers[:] = [handler]
    log.setLevel(logging.DEBUG if verbose else logging.INFO)
    log.propagate = False
    return BarProgress(console) if live else LineProgress(logging.getLogger("florist.progress"))


def _redirect_others(handler: logging.Handler) -> None:
    """Write the warnings of Python and of other packages in the same format."""
    logging.captureWarnings(capture=True)
    logging.getLogger().handlers[:] = [handler]


def report_error(error: FloristError) -> None:
    """Log what happened, and on a second line what to do.

    The message has no IDs; only the formatter of the owner's terminal adds the error's examples.
    """
    log.error(
        "%s",
        error.reason,
        extra={
            "event": "error",
            "error": type(error).__name__,
            "origin": error.origin,
            "exit_code": error.exit_code,
            "examples": error.examples,
        },
    )
    if error.advice:
        log.error("→ %s", error.advice, extra={"event": "advice"})


def log_to_file(path: Path) -> None:
    """Also append the log to a file, as JSON lines, readable only by its owner.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    try:
        stream = open(path, "a", encoding="utf-8", opener=private_opener)  # noqa: SIM115 - stays open
    except OSError as error:
        raise ConfigurationError(f"--log-file {path}: {error.strerror}") from None
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_JsonFormatter())
    log.addHandler(handler)


class _TerminalFormatter(logging.Formatter):
    """Adds the examples of an error and exact counts, which are for the owner's terminal only."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        text = super().formatMessage(record)
        examples, counts = vars(record).get("examples"), vars(record).get(FOR_OWNER)
        text = f"{text} (for example {examples})" if examples else text
        return f"{text} ({counts})" if counts else text


class _JsonFormatter(logging.Formatter):
    """Writes one JSON object per line."""

    def __init__(self, context: LogContext = CONTEXT) -> None:
        super().__init__()
        self._context = context

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            **self._context.of(record),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {key: vars(record)[key] for key in EVENT_FIELDS if key in vars(record)}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)
