"""`florist doctor`: the whole report."""

from __future__ import annotations

import tempfile
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from florist.api.config import as_config
from florist.api.doctor import machine, party, software
from florist.api.doctor.log_errors import last_status, recent_errors
from florist.api.doctor.scrub import Scrubber, private_words
from florist.common.core.errors import ConfigurationError
from florist.common.session.run_directory import STATUS_PAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from florist.api.config import AnyPath
    from florist.common.settings.party_config import PartyConfig


def doctor(config: PartyConfig | AnyPath | None = None, logs: Iterable[AnyPath] = ()) -> str:
    """Describe this installation and a party's setup, for a support request.

    Contains versions, CPU features and engines, memory, disks, limits, clock, and of the party the
    settings that differ from their defaults, its certificates, the state of its stages and recent
    errors. Contains no key, ID, value or size of a table, name, path or host name: of settings it
    shows numbers and choices only, and of messages only words that are FLORIST's own.

    Args:
        config: this party's configuration, or the path of its file. An invalid file is reported.
        logs: log files of the party.

    Returns:
        The text, in Markdown.

    Raises:
        ConfigurationError: a log file cannot be read.

    Example:
        >>> print(florist.doctor("active.yml", logs=["active.log"]))
    """
    return "\n".join(_lines(config, [Path(path) for path in logs])) + "\n"


def _lines(config: PartyConfig | AnyPath | None, logs: list[Path]) -> Iterator[str]:
    yield "# FLORIST support report"
    yield from _facts("Software", software.software())
    yield from _facts("Packages", software.packages())
    yield from _facts("Environment", software.environment())
    yield from _facts("CPU", machine.cpu())
    yield from _facts("Memory", machine.memory())
    yield from _facts("Limits", machine.limits())
    yield from _facts("Clock", machine.clock())
    temporary = ("temporary files", machine.disk(Path(tempfile.gettempdir())))
    scrubber = Scrubber()
    if config is None:
        yield from _facts("Disk", [temporary])
    else:
        try:
            settings = as_config(config)
        except ConfigurationError as error:
            yield from _facts("Disk", [temporary])
            yield from _facts("Configuration", [("invalid", scrubber.scrub(error.reason))])
        else:
            scrubber = Scrubber(private_words(settings))
            yield from _facts("Disk", chain([temporary], party.disks(settings)))
            yield from _facts("Settings that differ from their defaults", party.settings(settings))
            yield from _facts("Certificates", party.certificates(settings, scrubber))
            yield from _facts("Run directory", party.run_directory(settings))
            if lines := [*last_status(settings.run_directory / STATUS_PAGE, scrubber)]:
                yield "\n## Last status page\n"
                yield from (f"    {line}" for line in lines)
    for number, path in enumerate(logs, 1):
        yield f"\n## Errors and warnings in log {number}\n"
        yield from (f"    {line}" for line in recent_errors(path, scrubber))


def _facts(title: str, facts: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield f"\n## {title}\n"
    yield from (f"- {name}: {value}" for name, value in facts)
