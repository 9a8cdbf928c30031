"""The folder in which a local Ray cluster keeps its sockets, logs and spilled objects."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The names of these folders start with this.
PREFIX = "florist-ray-"

#: The maximum length of the path of a Unix socket, in bytes.
_MAX_SOCKET_PATH = 107
#: The longest path that Ray appends: the session's date, time and process, and a socket's name.
_SOCKET = "/session_2000-01-01_00-00-00_000000_1234567/sockets/plasma_store.1"
#: The maximum length of the path that Ray is given.
MAX_PATH = _MAX_SOCKET_PATH - len(_SOCKET)


@contextmanager
def session_folder(parent: Path | None) -> Iterator[Path]:
    """Create a folder for a cluster; delete it at the end.

    Ray lets all users access its own folder, so it is inside one that only the owner may enter.
    If the path is too long for Unix sockets, the result is a symbolic link in the system's folder
    for temporary files, also inside a folder that only the owner may enter.

    Args:
        parent: where to create it; None means the system's folder for temporary files. Folders of
            processes that were killed are deleted there.

    Yields:
        The folder, which does not contain anything yet.

    Raises:
        ConfigurationError: it cannot be created.
    """
    parent = Path(tempfile.gettempdir()) if parent is None else parent.absolute()
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _delete_stale(parent)
        private = Path(tempfile.mkdtemp(prefix="." + PREFIX, dir=parent))  # with mode 0700
    except OSError as error:
        raise ConfigurationError(
            f"run_directory: {parent}: no folder for the Ray cluster can be created: "
            f"{error.strerror}; choose another run_directory"
        ) from None
    lock = os.open(private, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        private = private.rename(parent / private.name[1:])  # it is locked once it has this name
        inner = private / "ray"
        inner.mkdir(mode=0o700)
        with _short_path(inner) as path:
            yield path
    finally:
        shutil.rmtree(private, ignore_errors=True)
        os.close(lock)


@contextmanager
def _short_path(folder: Path) -> Iterator[Path]:
    """Return a path of the folder that is short enough for Ray's sockets."""
    if _fits(folder):
        yield folder
        return
    link = _link_to(folder)
    try:
        yield link
    finally:
        shutil.rmtree(link.parent, ignore_errors=True)  # not what the link names


def _link_to(folder: Path) -> Path:
    for place in dict.fromkeys((tempfile.gettempdir(), "/tmp")):  # noqa: S108 - mkdtemp is safe
        with suppress(OSError):
            link = Path(tempfile.mkdtemp(prefix="florist-", dir=place)) / "ray"  # with mode 0700
            if _fits(link):
                link.symlink_to(folder, target_is_directory=True)
                return link
            link.parent.rmdir()
    raise ConfigurationError(
        f"run_directory: {folder} is too long for the Unix sockets of Ray ({MAX_PATH} bytes), and "
        f"no link to it can be created in {tempfile.gettempdir()} or /tmp; choose a run_directory "
        "with a shorter path, or set TMPDIR to a short path of a writable folder"
    )


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= MAX_PATH


def _delete_stale(parent: Path) -> None:
    """Delete the folders of processes that have ended without doing so."""
    for folder in parent.glob(PREFIX + "*"):
        with suppress(OSError):
            lock = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
