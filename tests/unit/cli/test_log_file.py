"""`florist-party --log-file`: JSON lines, for the owner only, or a clear error."""

from __future__ import annotations

import json
import logging
import stat
from typing import TYPE_CHECKING

import pytest

from florist.cli.console import LogFormat, log, log_to_file, set_up_output
from florist.cli.party import run
from florist.common.core.errors import ConfigurationError
from florist.common.core.progress import NoProgress
from florist.common.session.stage_state import StageOptions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """Close the log file, and leave the handlers of other tests as they are."""
    before, level, propagate = log.handlers[:], log.level, log.propagate
    yield
    for handler in log.handlers:
        if isinstance(handler, logging.StreamHandler) and handler not in before:
            handler.close()
            if getattr(handler.stream, "name", "").endswith("party.log"):
                handler.stream.close()
    log.handlers[:] = before
    log.setLevel(level)
    log.propagate = propagate


def test_the_log_is_appended_as_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "party.log"
    path.touch(mode=0o600)
    path.write_text('{"message": "earlier"}\n')
    set_up_output(LogFormat.text, verbose=False)
    log_to_file(path)
    logging.getLogger("florist.align").info("%d IDs", 3)
    messages = [json.loads(line)["message"] for line in path.read_text().splitlines()]
    assert messages == ["earlier", "3 IDs"]


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    log_to_file(tmp_path / "party.log")
    assert stat.S_IMODE((tmp_path / "party.log").stat().st_mode) == 0o600


def test_a_file_that_cannot_be_written_ends_the_party_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_output(LogFormat.text, verbose=False)
    options = StageOptions(log_file=tmp_path / "missing" / "party.log")
    code = run("active", "align", tmp_path / "none.yml", options, NoProgress())
    assert code == ConfigurationError.exit_code
    assert "--log-file" in capsys.readouterr().err
