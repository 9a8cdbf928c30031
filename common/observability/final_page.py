"""The last state of a party as a page in its run directory, which stays when the party ends."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError
from florist.common.observability.status_json import status_json
from florist.common.observability.status_page import final_page
from florist.common.session.run_directory import STATUS_PAGE
from florist.common.transport.certificate_files import write_file

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.observability.snapshot import Snapshot

log = logging.getLogger("florist.observability")

_REPORTS = {
    "Training report": "training/report.html",
    "Evaluation report": "evaluation/report.html",
}


def save_final_page(run_directory: Path, now: Snapshot) -> None:
    """Write the page, readable only by its owner; a run without a directory has none."""
    if not run_directory.is_dir():
        return
    reports = {title: path for title, path in _REPORTS.items() if (run_directory / path).exists()}
    page = final_page(now.about, status_json(now), reports)
    try:
        write_file(run_directory / STATUS_PAGE, page.encode(), mode=0o600)
    except ConfigurationError as error:
        log.warning("the last status is not saved: %s", error.reason)
