"""The journal of a training run: digests of what was received and sent, across restarts.

A peer that resumes at an earlier step could ask for a batch again with other embeddings, and learn
from the answers under the same secret draws who is shared. So a block that was received before is
accepted again only with the same bytes, and a block that was sent before is sent again only with
the same bytes. See docs/concepts/reliability.md.

The file is a sequence of records of fixed length, each with a checksum. A record of a received
block is on disk before anything that depends on the block is sent (`settle`).
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from florist.common.core.errors import ConfigurationError, ProtocolViolation
from florist.common.storage.durable import sync
from florist.common.storage.private_files import make_private_folder, private_opener

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from florist.common.transport.messages import Data

#: How often a run may start over without --force because the peer says that it has no checkpoint
#: yet, although this party has sent it something. Each time the peer sees new random draws.
MAX_STARTS = 4

_DIGEST_BYTES = 16
_BODY = struct.Struct(f"<BBxxIQ{_DIGEST_BYTES}s")
_CHECKSUM = struct.Struct("<I")
_RECORD_BYTES = _BODY.size + _CHECKSUM.size


class BlockKind(IntEnum):
    """What a block contains; a block of test embeddings has an epoch in place of a step."""

    EMBEDDINGS = 1
    GRADIENTS = 2
    TEST_EMBEDDINGS = 3

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", " ")


class _Event(IntEnum):
    #: The first record: the ID of the run, and in place of the step how often it was started.
    STARTED = 1
    #: The run was resumed at this step.
    RESUMED = 2
    RECEIVED = 3
    SENT = 4


class _Record(NamedTuple):
    event: int
    kind: int
    start: int
    step: int
    digest: bytes

    @property
    def block(self) -> tuple[int, int, int, int]:
        return self[:4]

    def to_bytes(self) -> bytes:
        body = _BODY.pack(*self)
        return body + _CHECKSUM.pack(zlib.crc32(body))


class DifferentBlock(ProtocolViolation):
    """The peer sent other bytes for a part of training that was answered before."""

    advice = (
        "If the peer changed its hardware, device, threads, processes, optimiser or data since the "
        "run was interrupted, restore them there and start again, or start over on both sides with "
        "--force. Otherwise do not trust this peer."
    )


class NotReproducible(ConfigurationError):  # noqa: N818 - named after the event, like the others
    """This party computed other values than before the run was interrupted."""

    advice = (
        "Restore this party's hardware, release, optimiser, training.device, training.threads and "
        "training.processes and start again, or start over on both sides with --force."
    )

    @property
    def for_peer(self) -> str:
        return self.reason.replace("this party", "it")


class TooManyResumptions(ConfigurationError):  # noqa: N818 - named after the event
    """The run was interrupted more often than this party's limit allows."""

    advice = "Find out why the run is interrupted so often; then raise the limit or start over."

    @property
    def for_peer(self) -> str:
        return "the run was resumed more often than its limit allows"


class CannotStartOver(ConfigurationError):  # noqa: N818 - named after the event
    """The peer has no checkpoint of a run in which this party has already answered it."""

    advice = "Start over on both sides with --force."

    @property
    def for_peer(self) -> str:
        return self.reason


class AnswerJournal:
    """The journal of one run at one party."""

    def __init__(self, path: Path | None) -> None:
        """Keep the journal in this file; None keeps none, for runs that are never resumed."""
        self._path = path
        self._file: int | None = None
        self._earlier: dict[tuple[int, int, int, int], bytes] = {}
        self._key = b""
        self._syncs = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._pending: Future[None] | None = None
        #: Whether records were written since the pending sync started.
        self._is_dirty = False

    # -- opening -----------------------------------------------------------------------------------

    def start(self, run: bytes, key: bytes) -> None:
        """Begin the journal of a new run, which replaces that of an earlier one.

        Args:
            run: the ID of the run.
            key: a secret of this party, for the digests.

        Raises:
            CannotStartOver: the earlier run has been answered by the peer, or was started too
                often. An honest peer has a checkpoint before it answers anything.
        """
        if self._path is None:
            return
        records = self._read()
        events = [record.event for record in records]
        if _Event.RECEIVED in events:
            raise CannotStartOver(
                "the peer has no checkpoint of a run in which it has already sent data, so the run "
                "cannot be resumed; start over on both sides with --force"
            )
        starts = 1
        if records:
            starts = records[0].step + (_Event.SENT in events)
        if starts > MAX_STARTS:
            raise CannotStartOver(
                f"the run was started {MAX_STARTS} times, and each time the peer lost its data "
                "before the first step; start over on both sides with --force"
            )
        self._open(key, [])
        self._append(_Record(_Event.STARTED, 0, 0, starts, _short(run)))
        self.settle()
        with self._disk_errors():
            sync(self._path.parent)

    def resume(self, run: bytes, key: bytes, first_step: int, limit: int) -> int:
        """Continue the journal of a run; return how often the run has been resumed.

        A run without a journal, such as that of an earlier release, gets one from now on.

        Raises:
            TooManyResumptions: more than `limit` times.
        """
        if self._path is None:
            return 0
        records = self._read()
        if not records or records[0].digest != _short(run):
            self.delete()
            self.start(run, key)
            records = []
        resumptions = 1 + sum(record.event == _Event.RESUMED for record in records)
        if resumptions > limit:
            raise TooManyResumptions(
                f"this run was resumed {limit} times already (training.max_resumptions); if you "
                "know why it is interrupted, raise the limit"
            )
        if records:
            self._open(key, records)
        self._append(_Record(_Event.RESUMED, 0, 0, first_step, b""))
        return resumptions

    # -- blocks ------------------------------------------------------------------------------------

    def received(self, kind: BlockKind, step: int, start: int, values: Data) -> None:
        """Check a block from the peer and record it. Call `settle` before answering it.

        Raises:
            DifferentBlock: other bytes were received for it before.
        """
        if not self._is_known(_Event.RECEIVED, kind, step, start, values):
            raise DifferentBlock(
                f"{_place(kind, step, start)}: the peer sent other {kind.label} before the run was "
                "interrupted. Only the same bytes are answered again, because other answers under "
                "the same random draws would reveal who is shared"
            )

    def sent(self, kind: BlockKind, step: int, start: int, values: Data) -> None:
        """Check a block that is about to be sent to the peer and record it.

        Raises:
            NotReproducible: other bytes were sent for it before.
        """
        if not self._is_known(_Event.SENT, kind, step, start, values):
            raise NotReproducible(
                f"{_place(kind, step, start)}: this party sent other {kind.label} before the run "
                "was interrupted, and only the same bytes are sent again; its hardware, release or "
                "settings have changed"
            )

    def settle(self) -> None:
        """Wait until all records are on disk."""
        with self._disk_errors():
            self._await_sync()
            if self._is_dirty and self._file is not None:
                self._is_dirty = False
                os.fdatasync(self._file)

    def _await_sync(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _is_known(
        self, event: _Event, kind: BlockKind, step: int, start: int, values: Data
    ) -> bool:
        """Return whether the block is new or has the same bytes as before; record a new one."""
        if self._file is None:
            return True
        block = (int(event), int(kind), start, step)
        digest = hashlib.sha256(self._key + struct.pack("<BBIQ", *block))
        digest.update(values)
        short = digest.digest()[:_DIGEST_BYTES]
        earlier = self._earlier.get(block)
        if earlier is not None:
            return earlier == short
        self._append(_Record(*block, short))
        return True

    # -- the file ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the file; the journal can be opened again."""
        with suppress(OSError):
            self._await_sync()
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._earlier = {}

    def delete(self) -> None:
        """Delete the journal: the run is complete or starts over."""
        self.close()
        if self._path is not None:
            with self._disk_errors():
                self._path.unlink(missing_ok=True)

    def _open(self, key: bytes, records: list[_Record]) -> None:
        """Open the file for appending behind these records."""
        assert self._path is not None
        self.close()
        self._key = key
        self._earlier = {record.block: record.digest for record in records}
        with self._disk_errors():
            make_private_folder(self._path.parent)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            self._file = private_opener(str(self._path), flags)
            os.ftruncate(self._file, len(records) * _RECORD_BYTES)

    def _append(self, record: _Record) -> None:
        with self._disk_errors():
            assert self._file is not None
            content = record.to_bytes()
            if os.write(self._file, content) != len(content):
                raise OSError(None, "no space left")
            if record.event == _Event.SENT:
                return
            # The sync runs in the background while this party computes the answer.
            self._is_dirty = True
            if self._pending is None or self._pending.done():
                self._await_sync()
                self._is_dirty = False
                self._pending = self._syncs.submit(os.fdatasync, self._file)

    def _read(self) -> list[_Record]:
        """Return all records; one that was not completely written, and those after it, are lost."""
        assert self._path is not None
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigurationError(f"{self._path} cannot be read: {error.strerror}") from None
        records = []
        for position in range(0, len(content) - _RECORD_BYTES + 1, _RECORD_BYTES):
            body = content[position : position + _BODY.size]
            if _CHECKSUM.unpack_from(content, position + _BODY.size) != (zlib.crc32(body),):
                break
            records.append(_Record(*_BODY.unpack(body)))
        if records and records[0].event != _Event.STARTED:
            return []
        return records

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigurationError(
                f"{self._path} cannot be written: {error.strerror or error}; free some space or "
                "fix the permissions, and start again"
            ) from None


def _place(kind: BlockKind, step: int, start: int) -> str:
    unit = "the test of epoch" if kind is BlockKind.TEST_EMBEDDINGS else "step"
    return f"{unit} {step}, row {start}"


def _short(run: bytes) -> bytes:
    return run[:_DIGEST_BYTES]
