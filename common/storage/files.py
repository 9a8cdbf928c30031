"""Storage for intermediate results: files in a folder.

A named file is complete or does not exist. Scratch files are unlinked temporary files, for data
that does not fit in memory; the system deletes them when the process ends, however it ends.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, Protocol

from florist.common.core.errors import ConfigurationError
from florist.common.storage.durable import sync
from florist.common.storage.private_files import make_private_folder, private_opener

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

#: Suffix of a file that is being written.
_PART = ".part"


class Storage(Protocol):
    """A set of files; safe to use from several threads if each uses its own files."""

    def writing(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a new file; it gets its name, durably, when the block ends without an exception."""
        ...

    def reading(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open an existing file for reading."""
        ...

    def append(self, name: str, data: bytes) -> None:
        """Append to a file; the data is on disk when this returns."""
        ...

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None if it does not exist."""
        ...

    def scratch(self) -> AbstractContextManager[BinaryIO]:
        """Open an unlinked temporary file for writing and reading; deleted after the block."""
        ...

    def clear(self) -> None:
        """Delete all files."""
        ...

    def require_space(self, size: int) -> None:
        """Check that the files may grow to `size` bytes in total.

        Raises:
            ConfigurationError: there is not enough free space.
        """
        ...


class FolderStorage:
    """Files in a folder, both accessible only to their owner."""

    def __init__(self, folder: Path) -> None:
        """Use `folder`; it is created with the first file."""
        self.folder = folder

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        with self.disk_errors():
            self._create()
            part = self.folder / (name + _PART)
            with open(part, "wb", opener=private_opener) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.rename(self.folder / name)
            sync(self.folder)

    @contextmanager
    def reading(self, name: str) -> Iterator[BinaryIO]:
        with self.disk_errors(), (self.folder / name).open("rb") as file:
            yield file

    def append(self, name: str, data: bytes) -> None:
        with self.disk_errors():
            self._create()
            is_new = self.size(name) is None
            path = self.folder / name
            with open(path, "ab", buffering=0, opener=private_opener) as file:
                file.write(data)
                os.fdatasync(file.fileno())
            if is_new:
                sync(self.folder)

    def size(self, name: str) -> int | None:
        with self.disk_errors(), suppress(FileNotFoundError):
            return (self.folder / name).stat().st_size
        return None

    @contextmanager
    def scratch(self) -> Iterator[BinaryIO]:
        with self.disk_errors():
            self._create()
            with tempfile.TemporaryFile(dir=self.folder) as file:
                yield file

    def clear(self) -> None:
        with self.disk_errors():
            if self.folder.exists():
                shutil.rmtree(self.folder)

    def require_space(self, size: int) -> None:
        with self.disk_errors():
            self._create()
            used = sum(entry.stat().st_size for entry in self.folder.iterdir())
            free = shutil.disk_usage(self.folder).free
        if size > used + free:
            raise self._unusable(
                f"has space for {_gigabytes(used + free)}, but up to {_gigabytes(size)} are needed"
            )

    def _create(self) -> None:
        make_private_folder(self.folder)

    @contextmanager
    def disk_errors(self) -> Iterator[None]:
        """Convert errors of the file system to a `ConfigurationError`."""
        try:
            yield
        except OSError as error:
            raise self._unusable(f"cannot be used: {error.strerror or error}") from None

    def _unusable(self, what: str) -> ConfigurationError:
        error = ConfigurationError(
            f"{self.folder} {what}; free space or fix the problem, then start again: finished work "
            "is kept"
        )
        error.will_reconnect = True  # The peer holds the key to our secrets, so it must wait.
        return error


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
