"""`florist supervise`: real processes, restarted only for exit codes that a restart can resolve."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from florist.cli.supervise import Restarts, supervise
from florist.common.core.errors import ConfigurationError
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

SOON = Restarts(most=3, first_delay=0.01, longest_delay=0.02)


def script(starts: Path, *codes: int) -> list[str]:
    """A command that ends with each of these codes in turn, the last one from then on."""
    shell = (
        f"echo x >> {starts}; n=$(wc -l < {starts}); set -- {' '.join(map(str, codes))}; "
        '[ "$n" -gt $# ] && n=$#; eval "code=\\${$n}"; '
        '[ "$code" -lt 0 ] && kill "$code" $$; exit "$code"'
    )
    return ["bash", "-c", shell]


def count(starts: Path) -> int:
    return len(starts.read_text().splitlines())


@pytest.mark.parametrize(
    ("codes", "ends", "starts"),
    [
        ((0,), 0, 1),
        ((2,), 2, 1),
        ((4,), 4, 1),
        ((5,), 5, 1),
        ((6,), 6, 1),
        ((7,), 7, 1),
        ((3, 0), 0, 2),
        ((70, 3, 2), 2, 3),
        ((-9, -6, 0), 0, 3),
        ((3,), 3, 4),
    ],
)
def test_restarts_depend_on_the_exit_code(
    tmp_path: Path, codes: tuple[int, ...], ends: int, starts: int
) -> None:
    file = tmp_path / "starts"
    assert supervise(script(file, *codes), SOON) == ends
    assert count(file) == starts


def test_a_killed_party_counts_as_in_a_shell(tmp_path: Path) -> None:
    command = script(tmp_path / "starts", -9)
    assert supervise(command, Restarts(most=0)) == 128 + signal.SIGKILL


def test_delays_double_up_to_a_limit() -> None:
    restarts = Restarts()
    assert [restarts.delay(n) for n in (1, 2, 3, 6, 7, 20)] == [1, 2, 4, 32, 60, 60]


def test_a_missing_command_is_reported() -> None:
    with pytest.raises(ConfigurationError, match="no-such-command: cannot be started"):
        supervise(["no-such-command"])


def test_a_stop_signal_reaches_the_party_and_ends_both(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    party = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(130)); "
        f"open({str(ready)!r}, 'w'); signal.pause()"
    )
    command = [sys.executable, "-P", "-c", "from florist.cli.tool import main; main()"]
    with subprocess.Popen([*command, "supervise", "--", sys.executable, "-c", party]) as process:
        try:
            wait_until(ready.exists, 60)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 130
        finally:
            process.kill()


def test_a_stop_signal_ends_the_wait_for_a_restart(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    command = [sys.executable, "-P", "-c", "from florist.cli.tool import main; main()"]
    with subprocess.Popen(
        [*command, "supervise", "--", *script(starts, 3)], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if "in 4 s" in line:
                    break
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 3
        finally:
            process.kill()
    assert count(starts) == 3


def test_the_mask_is_restored(tmp_path: Path) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    supervise(script(tmp_path / "starts", 0))
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
