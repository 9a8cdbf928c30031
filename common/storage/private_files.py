"""Files and folders that only their owner can access, whatever the umask is."""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

#: The file of a folder that is locked while a process uses the folder.
LOCK = ".lock"

_FILE = 0o600
_FOLDER = 0o700
_OTHERS = 0o077


class FolderInUse(ConfigurationError):  # noqa: N818 - it reads as what happened
    """Another process of this party uses the folder."""

    told_to_peer = "another process uses its run directory or its privacy ledger"


def private_opener(path: str, flags: int) -> int:
    """Open a file; if it is created, only its owner can access it. For `open(..., opener=...)`."""
    return os.open(path, flags, _FILE)


def make_private_folder(path: Path) -> None:
    """Create a folder that only its owner can access, unless it exists.

    Its parents are created as usual, with the permissions that the umask leaves.
    """
    path.mkdir(mode=_FOLDER, parents=True, exist_ok=True)


def restrict(path: Path) -> int:
    """Withdraw other users' access to a file, or to a folder and all that is in it.

    Symbolic links are not followed. Returns the number of files and folders that were changed.

    Raises:
        OSError: the permissions cannot be changed.
    """
    changed = 0
    with suppress(FileNotFoundError):  # another thread or process has removed it
        mode = path.lstat().st_mode
        is_folder = stat.S_ISDIR(mode)
        if (is_folder or stat.S_ISREG(mode)) and mode & _OTHERS:
            path.chmod(stat.S_IMODE(mode) & _FOLDER)
            changed += 1
        if is_folder:
            changed += sum(restrict(entry) for entry in path.iterdir())
    return changed


def private_file(path: Path, make: Callable[[], bytes]) -> bytes:
    """Read the file; if it does not exist, create it with the content that `make` returns.

    Raises:
        ConfigurationError: the file cannot be read or written, or other users can read it.
    """
    if path.exists():
        return _read(path)
    try:
        make_private_folder(path.parent)
        with open(path, "xb", opener=private_opener) as file:
            content = make()
            file.write(content)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be written: {error.strerror}") from None
    return content


def refuse_shared(path: Path) -> None:
    """Raise ConfigurationError if other users can read the file."""
    if path.stat().st_mode & _OTHERS:
        raise ConfigurationError(f"{path}: other users can read it; run `chmod 600` on it")


def _read(path: Path) -> bytes:
    try:
        refuse_shared(path)
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None


def is_locked(folder: Path) -> bool:
    """Whether another process has locked a folder at the moment; changes nothing."""
    try:
        with (folder / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is no lock, or it cannot be read
        return False
    return False


@contextmanager
def locked_folder(
    folder: Path, title: str, *, if_not_writable: str, if_in_use: str
) -> Iterator[None]:
    """Create a private folder and lock it for one process while the context lasts.

    Args:
        folder: the folder, in which the file `.lock` is locked.
        title: what the folder is, for the errors.
        if_not_writable: the rest of that error: what to do.
        if_in_use: the rest of that error: who uses it, and what to do.

    Raises:
        ConfigurationError: it cannot be written.
        FolderInUse: another process uses it.
    """
    try:
        make_private_folder(folder)
        lock = open(folder / LOCK, "w", opener=private_opener)  # noqa: SIM115 - below
    except OSError as error:
        raise ConfigurationError(
            f"{title} {folder} cannot be written: {error.strerror}; {if_not_writable}"
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FolderInUse(f"{title} {folder} is in use by {if_in_use}") from None
        yield
