"""Ray clusters are not open to others: a local one by itself, any other one by its token."""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("ray", reason="`pip install florist[ray]`")

#: Starts a local cluster as a party does, and prints what it exposes.
LOCAL = """
import json, stat, sys
from pathlib import Path
import psutil
from florist.common.cluster import ray_cluster

runs = Path(sys.argv[1])
assert ray_cluster.join("local", 1, runs)
import ray

@ray.remote
class Actor:
    def answer(self):
        return ray_cluster.host_of_this_node()

actor = Actor.remote()
host = ray.get(actor.answer.remote())
this = psutil.Process()
processes = [this, *this.children(recursive=True)]
found = [each for process in processes for each in process.net_connections("inet")]
(outer,) = runs.iterdir()
(session,) = (outer / "ray").glob("session_2*")
print(json.dumps({
    "processes": len(processes),
    "hosts": sorted({each.laddr.ip for each in found if each.status == psutil.CONN_LISTEN}),
    "modes": [stat.S_IMODE(each.stat().st_mode) for each in (outer, outer / "ray")],
    "sockets": sorted(each.name for each in (session / "sockets").iterdir()),
    "host": host,
}))
ray_cluster.leave()
assert list(runs.iterdir()) == []
assert ray_cluster.join("local", 1, runs)  # with another token
ray_cluster.leave()
print(list(Path.home().iterdir()))
"""

#: Starts a cluster that is open to other processes until its input ends.
OPEN = """
import logging, sys
import ray
ray.init(address="local", num_cpus=1, object_store_memory=80_000_000, include_dashboard=False,
         logging_level=logging.ERROR, log_to_driver=False, _temp_dir=sys.argv[1])
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
ray.shutdown()
"""

#: Connects to a cluster as a party does, and prints the error.
JOIN = """
import sys
from florist.common.cluster import ray_cluster
from florist.common.core.errors import ConfigurationError
try:
    assert ray_cluster.join(sys.argv[1], 0)
    print("joined")
    ray_cluster.leave()
except ConfigurationError as error:
    print(error)
"""


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {**kept, "HOME": str(home), "RAY_USAGE_STATS_ENABLED": "0", **more}


def run(script: str, argument: str, home: Path, **more: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, argument],
        env=environment(home, **more),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_local_cluster_is_open_to_nobody_else(tmp_path: Path) -> None:
    home, runs = tmp_path / "home", tmp_path / ("long" * 30) / "run"
    home.mkdir()
    first, last = run(LOCAL, str(runs), home).splitlines()
    found = json.loads(first)
    assert found["processes"] > 3
    assert found["hosts"]
    for host in found["hosts"]:
        address = ipaddress.ip_address(host.removeprefix("::ffff:"))
        assert address.is_loopback, found["hosts"]
    assert found["modes"] == [0o700, 0o700]
    assert found["sockets"] == ["plasma_store", "raylet"]
    assert not ipaddress.ip_address(found["host"]).is_unspecified
    assert last == "[]", "the token was written to the home directory"


@contextmanager
def open_cluster(folder: Path, mode: str) -> Iterator[str]:
    """Start a cluster of another process; return its address."""
    process = subprocess.Popen(
        [sys.executable, "-c", OPEN, str(folder)],
        env=environment(folder, RAY_AUTH_MODE=mode, RAY_AUTH_TOKEN="right" * 8),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Return a short path of a temporary folder."""
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def test_a_cluster_without_token_authentication_is_refused(short_path: Path) -> None:
    with open_cluster(short_path, "disabled") as address:
        answer = run(JOIN, address, short_path, RAY_AUTH_TOKEN="right" * 8)
    assert f"the Ray cluster at {address} does not use token authentication" in answer
    assert "ray get-auth-token --generate" in answer


def test_a_cluster_with_token_authentication_needs_its_token(short_path: Path) -> None:
    file = short_path / "token"
    file.write_text("right" * 8)
    file.chmod(0o644)
    with open_cluster(short_path, "token") as address:
        exposed = run(JOIN, address, short_path, RAY_AUTH_TOKEN_PATH=str(file))
        assert f"{file}: other users can access the token" in exposed
        file.chmod(0o600)
        assert run(JOIN, address, short_path, RAY_AUTH_TOKEN_PATH=str(file)) == "joined\n"
        missing = run(JOIN, address, short_path)
        assert ".ray/auth_token: the token of the Ray cluster cannot be read" in missing
        wrong = run(JOIN, address, short_path, RAY_AUTH_TOKEN="wrong" * 8)
        assert "does not accept the token of this process" in wrong
