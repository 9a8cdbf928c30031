"""An append-only file of small records, of which none is lost unnoticed.

A record has 64 bytes, so that it never crosses a sector of the disk: after a power failure it is
there or not. Space is reserved in advance with zeros, which makes a sync cheaper. Each record has a
checksum and says how many records before it were known to be on disk. If one of those is missing
later, or any record is damaged, the file is refused: the disk has lost what it had confirmed.
Records that were never confirmed may be missing.
"""

from __future__ import annotations

import os
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError
from florist.common.storage.durable import sync
from florist.common.storage.private_files import make_private_folder, private_opener

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future
    from pathlib import Path

#: The length of a record's content.
CONTENT_BYTES = 56

_RECORD_BYTES = 64
_HEAD = struct.Struct("<II")
_EMPTY = bytes(_RECORD_BYTES)
#: Bytes that are reserved at once.
_RESERVED = 1 << 16


class DamagedRecords(Exception):  # noqa: N818 - named after the cause
    """The file does not contain what was written to it."""


class RecordLog:
    """The file at one party. Not thread-safe, apart from its own sync in the background."""

    def __init__(self, path: Path) -> None:
        """Keep the records in this file, which is created by `open`."""
        self.path = path
        self._file: int | None = None
        self._count = 0
        self._confirmed = 0
        self._reserved = 0
        self._syncs: ThreadPoolExecutor | None = None
        self._pending: tuple[int, Future[None]] | None = None

    @property
    def count(self) -> int:
        """The number of records in the file."""
        return self._count

    @property
    def confirmed(self) -> int:
        """The number of records that are known to be on disk."""
        return self._confirmed

    def read(self) -> list[bytes]:
        """Return the contents of all records; none if the file does not exist.

        Raises:
            DamagedRecords: a record is damaged, or one that was confirmed is missing.
            ConfigurationError: the file cannot be read.
        """
        try:
            stored = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigurationError(f"{self.path} cannot be read: {error.strerror}") from None
        found: list[bytes] = []
        confirmed, is_whole = 0, True
        for start in range(0, len(stored), _RECORD_BYTES):
            record = stored[start : start + _RECORD_BYTES]
            if not any(record):
                is_whole = False
                continue
            if len(record) < _RECORD_BYTES:
                raise DamagedRecords
            checksum, before = _HEAD.unpack_from(record)
            if checksum != zlib.crc32(record[4:]):
                raise DamagedRecords
            confirmed = max(confirmed, before)
            if is_whole:
                found.append(record[_HEAD.size :])
        if len(found) < confirmed:
            raise DamagedRecords
        return found

    def open(self, count: int) -> None:
        """Open the file for appending behind its first `count` records; delete all others.

        Raises:
            ConfigurationError: the file cannot be written.
        """
        self.close()
        with self._disk_errors():
            make_private_folder(self.path.parent)
            self._file = private_opener(str(self.path), os.O_WRONLY | os.O_CREAT)
            os.ftruncate(self._file, count * _RECORD_BYTES)
            self._count = count
            self._reserved = count * _RECORD_BYTES
            self._confirmed = 0  # what a killed process wrote may not be on disk yet
            sync(self.path.parent)

    def append(self, content: bytes) -> None:
        """Add a record; it is on disk after `settle`, or earlier.

        Raises:
            ConfigurationError: the file cannot be written.
        """
        assert self._file is not None
        body = struct.pack(f"<I{CONTENT_BYTES}s", self._confirmed, content)
        record = struct.pack("<I", zlib.crc32(body)) + body
        place = self._count * _RECORD_BYTES
        with self._disk_errors():
            while place + _RECORD_BYTES > self._reserved:
                # May be incomplete if the disk is full; then the next attempt fails.
                self._reserved += os.pwrite(self._file, bytes(_RESERVED), self._reserved)
            os.pwrite(self._file, record, place)
        self._count += 1

    def begin_sync(self) -> None:
        """Write all records to disk in the background, unless that is under way.

        Raises:
            ConfigurationError: an earlier one failed.
        """
        with self._disk_errors():
            if self._pending is not None:
                if not self._pending[1].done():
                    return
                self._await_sync()
            if self._file is not None and self._confirmed < self._count:
                if self._syncs is None:
                    self._syncs = ThreadPoolExecutor(1, thread_name_prefix="journal")
                self._pending = self._count, self._syncs.submit(os.fdatasync, self._file)

    def settle(self, count: int | None = None) -> None:
        """Wait until the first `count` records are on disk, by default all of them.

        Raises:
            ConfigurationError: the file cannot be written.
        """
        with self._disk_errors():
            self._await_sync()
            if self._file is not None and self._confirmed < (
                self._count if count is None else count
            ):
                os.fdatasync(self._file)
                self._confirmed = self._count

    def _await_sync(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            count, done = pending
            done.result()
            self._confirmed = count

    def close(self) -> None:
        """Close the file; it can be opened again."""
        with suppress(OSError):
            self._await_sync()
        if self._syncs is not None:
            self._syncs.shutdown()
            self._syncs = None
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def delete(self) -> None:
        """Close and delete the file.

        Raises:
            ConfigurationError: it cannot be deleted.
        """
        self.close()
        with self._disk_errors():
            self.path.unlink(missing_ok=True)

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigurationError(
                f"{self.path} cannot be written: {error.strerror or error}; free some space or "
                "fix the permissions, and start again"
            ) from None
