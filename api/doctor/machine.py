"""The machine: CPU, memory, disks, limits and clock. Linux only; what is not known is left out."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError
from florist.common.core.units import shown_bytes
from florist.common.groups import kernels
from florist.common.groups.engines import X25519_ENGINES
from florist.common.groups.registry import make_group

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What the native kernels and the libraries below them can make use of.
_CPU_FEATURES = frozenset(
    ("adx", "aes", "avx", "avx2", "avx512f", "avx512ifma", "bmi2", "fma", "neon", "sha_ni", "vaes")
)

#: The limits of this process, by the name that `ulimit` uses.
_LIMITS = {
    "open files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
    "address space": resource.RLIMIT_AS,
    "file size": resource.RLIMIT_FSIZE,
    "locked memory": resource.RLIMIT_MEMLOCK,
}

#: What `adjtimex` returns while the clock is not synchronised.
_TIME_ERROR = 5


def cpu() -> Iterator[tuple[str, str]]:
    """Yield facts about the CPU and what alignment computes with."""
    fields = {}
    for line in _read(Path("/proc/cpuinfo")):
        key, _, value = line.partition(":")
        fields[key.strip()] = value.strip()
    yield "model", fields.get("model name") or platform.machine()
    flags = set(fields.get("flags", fields.get("Features", "")).split())
    yield "features", " ".join(sorted(_CPU_FEATURES & flags)) or "none of those that matter"
    quota = _read(Path("/sys/fs/cgroup/cpu.max"))
    limit = f"; limit of this container: {quota[0]}" if quota and "max" not in quota[0] else ""
    yield "cores", f"{len(os.sched_getaffinity(0))} for this process of {os.cpu_count()}{limit}"
    yield "native kernels", "built" if kernels.native is not None else "not built"
    for name in X25519_ENGINES:
        try:
            make_group("x25519", name, 1).close()
        except ConfigurationError as error:
            yield f"engine {name}", str(error)
        else:
            yield f"engine {name}", "works"


def memory() -> Iterator[tuple[str, str]]:
    """Yield sizes of memory."""
    sizes = dict(line.split(":", 1) for line in _read(Path("/proc/meminfo")) if ":" in line)
    for key, name in (("MemTotal", "total"), ("MemAvailable", "available"), ("SwapTotal", "swap")):
        if key in sizes:
            yield name, shown_bytes(int(sizes[key].split()[0]) * 1024)
    limit = _read(Path("/sys/fs/cgroup/memory.max"))
    if limit and limit[0].isdigit():
        yield "limit of this container", shown_bytes(int(limit[0]))


def limits() -> Iterator[tuple[str, str]]:
    """Yield the limits of processes that this user starts from here."""
    for name, number in _LIMITS.items():
        soft, hard = (
            "unlimited" if each == resource.RLIM_INFINITY else f"{each}"
            for each in resource.getrlimit(number)
        )
        yield name, soft if soft == hard else f"{soft}, can be raised to {hard}"


def disk(path: Path) -> str:
    """Describe the file system of a path, or of the nearest folder above it that exists."""
    place = path.absolute()
    while not place.exists():
        place = place.parent
    try:
        space, nodes = shutil.disk_usage(place), os.statvfs(place)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    found = [
        f"{shown_bytes(space.free)} free of {shown_bytes(space.total)}",
        f"file system {_file_system(place)}",
        "writable" if os.access(place, os.W_OK) else "NOT writable",
    ]
    if nodes.f_files and not nodes.f_favail:
        found.append("NO free inodes")
    return ", ".join(found)


def clock() -> Iterator[tuple[str, str]]:
    """Yield the time, and whether the kernel considers it synchronised."""
    yield "time", f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    synchronised = _is_synchronised()
    if synchronised is not None:
        yield "synchronised", "yes" if synchronised else "no, or not known in this container"


def _is_synchronised() -> bool | None:
    try:
        # A `struct timex` of zeros changes nothing; the buffer is larger than any system's.
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(1024))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _TIME_ERROR


def _file_system(place: Path) -> str:
    """Return the type of the file system, such as ext4 or nfs."""
    number = place.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    for line in _read(Path("/proc/self/mountinfo")):
        fields, _, described = line.partition(" - ")
        if fields.split()[2] == device:
            return described.split()[0]
    return "unknown"


def _read(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
