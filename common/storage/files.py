"""Where a union keeps what it has done: files in a folder, or the same in memory.

A named file is there whole or not at all. Nameless ones are for passes over more than fits in
memory; they are gone with the process, however it ends.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, Protocol

from florist.common.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

#: Added to the name of a file that is being written.
_PART = ".part"


class Storage(Protocol):
    """Files of one union; safe to use from several threads, each with files of its own."""

    def writing(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A file that takes its name, safe from a power cut, when the block ends well."""
        ...

    def reading(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A file that `size` knows."""
        ...

    def append(self, name: str, data: bytes) -> None:
        """Add to the end of a file; on disk when this returns."""
        ...

    def size(self, name: str) -> int | None:
        """Bytes of a file; None if there is none of that name."""
        ...

    def scratch(self) -> AbstractContextManager[BinaryIO]:
        """A nameless file to write and to read again; gone after the block."""
        ...

    def clear(self) -> None:
        """Remove all files."""
        ...

    def require(self, size: int) -> None:
        """Check that the files may come to so many bytes in all.

        Raises:
            ConfigurationError: there is no room.
        """
        ...


class FolderStorage:
    """Files in a folder of the run directory, readable by their owner only."""

    def __init__(self, folder: Path) -> None:
        """The folder is made when the first file is."""
        self.folder = folder

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        with self._told():
            self._make()
            part = self.folder / (name + _PART)
            with part.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.rename(self.folder / name)
            self._sync()

    @contextmanager
    def reading(self, name: str) -> Iterator[BinaryIO]:
        with self._told(), (self.folder / name).open("rb") as file:
            yield file

    def append(self, name: str, data: bytes) -> None:
        with self._told():
            self._make()
            is_new = self.size(name) is None
            with (self.folder / name).open("ab", buffering=0) as file:
                file.write(data)
                os.fdatasync(file.fileno())
            if is_new:
                self._sync()

    def size(self, name: str) -> int | None:
        with self._told(), suppress(FileNotFoundError):
            return (self.folder / name).stat().st_size
        return None

    @contextmanager
    def scratch(self) -> Iterator[BinaryIO]:
        with self._told():
            self._make()
            with tempfile.TemporaryFile(dir=self.folder) as file:
                yield file

    def clear(self) -> None:
        with self._told():
            if self.folder.exists():
                shutil.rmtree(self.folder)

    def require(self, size: int) -> None:
        with self._told():
            self._make()
            there = sum(entry.stat().st_size for entry in self.folder.iterdir())
            free = shutil.disk_usage(self.folder).free
        if size > there + free:
            raise self._unwritable(
                f"has {_gigabytes(there + free)} for files that take up to {_gigabytes(size)}"
            )

    def _make(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _sync(self) -> None:
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What goes wrong with the disk, in our words."""
        try:
            yield
        except OSError as error:
            raise self._unwritable(f"cannot be used: {error.strerror or error}") from None

    def _unwritable(self, what: str) -> ConfigurationError:
        error = ConfigurationError(
            f"{self.folder} {what}; make room there, or mend it, and start again: what is finished "
            "is kept"
        )
        error.returns = True  # the peer, who holds the key to our secrets, is to wait
        return error


class MemoryStorage:
    """The same in memory: for tests, and for sets that are small and need not survive."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        with io.BytesIO() as file:
            yield file
            self.files[name] = file.getvalue()

    @contextmanager
    def reading(self, name: str) -> Iterator[BinaryIO]:
        with io.BytesIO(self.files[name]) as file:
            yield file

    def append(self, name: str, data: bytes) -> None:
        self.files[name] = self.files.get(name, b"") + data

    def size(self, name: str) -> int | None:
        return len(self.files[name]) if name in self.files else None

    @contextmanager
    def scratch(self) -> Iterator[BinaryIO]:
        with io.BytesIO() as file:
            yield file

    def clear(self) -> None:
        self.files.clear()

    def require(self, size: int) -> None:
        """Memory is not measured."""


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
