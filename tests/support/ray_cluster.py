"""A Ray cluster of several processes on this machine, for a test module."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from florist.common.cluster import ray_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def local_cluster(cores: int) -> Iterator[None]:
    """Start a cluster, which executors in this process use."""
    assert ray_cluster.join("local", cores)
    try:
        yield
    finally:
        ray_cluster.leave()


def worker_pids(above: int | None = None, kind: str = "ray::Worker") -> list[int]:
    """Return the workers of the cluster that this process, or process `above`, has started."""
    return [
        process.pid
        for process in psutil.Process(above).children(recursive=True)
        if any(part.startswith(kind) for part in _command(process))
    ]


def kill_a_worker(above: int | None = None, kind: str = "ray::Worker") -> None:
    """Kill a worker, as the kernel does when memory is short."""
    os.kill(worker_pids(above, kind)[0], signal.SIGKILL)


@contextmanager
def frozen_worker(above: int) -> Iterator[None]:
    """Suspend a worker, so that it does not finish its jobs; kill it at the end."""
    pid = worker_pids(above)[0]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)


def object_store_holds(wanted: bytes) -> bool:
    """Return whether these bytes are anywhere in the shared memory of the object store."""
    found = False
    for process in psutil.Process().children(recursive=True):
        for file in Path(f"/proc/{process.pid}/fd").glob("*"):
            try:
                if "plasma" in str(file.readlink()):
                    found |= wanted in file.read_bytes()
            except OSError:
                continue
    return found


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
