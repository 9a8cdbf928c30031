"""A journal of what was received and sent: the same question gets the same answer, and no other.

A peer that could have something answered again for other values would learn from the two answers,
under the same secret draws, who is shared. So a block that was received before is accepted again
only with the same bytes, and a block that was sent before is sent again only with the same bytes,
across restarts. Training and evaluation each have a journal; see docs/concepts/reliability.md.

The journal contains a keyed digest of each block. The record of a received block is on disk before
anything that depends on the block is sent: call `settle_received` first.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from threading import Lock
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from florist.common.core.errors import ConfigurationError, ProtocolViolation
from florist.common.storage.record_log import CONTENT_BYTES, DamagedRecords, RecordLog

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.transport.messages import Data

DIGEST_BYTES = 32
_CONTENT = struct.Struct(f"<BBxxIQ{DIGEST_BYTES}s")
assert _CONTENT.size <= CONTENT_BYTES

#: The same fields without padding, 12 bytes: the nonce of a block's digest.
_NONCE = struct.Struct("<BBI6s")


class BlockKind(IntEnum):
    """What a block contains; the comments say what its `step` is."""

    #: The step of training.
    EMBEDDINGS = 1
    GRADIENTS = 2
    #: The epoch.
    TEST_EMBEDDINGS = 3
    #: The number of the model, see `EvaluationJournal`.
    EVALUATION_EMBEDDINGS = 4
    EVALUATION_SUMMARY = 5
    #: 0: the base transfers, of which a run has one message in each direction.
    BASE_TRANSFERS = 6
    #: The number of the block.
    TRANSFERS = 7
    #: The step of training.
    CHOICES = 8
    OFFERS = 9

    @property
    def label(self) -> str:
        """The content in words."""
        match self:
            case BlockKind.EVALUATION_EMBEDDINGS:
                return "embeddings"
            case BlockKind.EVALUATION_SUMMARY:
                return "figures"
            case BlockKind.OFFERS:
                return "embeddings"
            case _:
                return self.name.lower().replace("_", " ")

    def place(self, step: int, start: int) -> str:
        """Name a block in a message."""
        match self:
            case BlockKind.TEST_EMBEDDINGS:
                unit = f"the test of epoch {step}"
            case BlockKind.EVALUATION_EMBEDDINGS:
                unit = "the evaluation"
            case BlockKind.EVALUATION_SUMMARY:
                return "the evaluation"
            case BlockKind.BASE_TRANSFERS:
                return "the start of the run"
            case BlockKind.TRANSFERS:
                return f"block {step} of the transfers"
            case _:
                unit = f"step {step}"
        return f"{unit}, row {start}"


class Event(IntEnum):
    """What a record says."""

    #: The first record: what the journal belongs to. In place of the step: how often it started.
    STARTED = 1
    #: The run was resumed at this step.
    RESUMED = 2
    RECEIVED = 3
    SENT = 4
    #: A model is evaluated; its number is in place of the step.
    MODEL = 5


class Record(NamedTuple):
    """One record of a journal."""

    event: int
    kind: int
    start: int
    step: int
    digest: bytes

    @property
    def block(self) -> tuple[int, int, int, int]:
        return self[:4]


class DifferentBlock(ProtocolViolation):
    """The peer sent other bytes for a part that was answered before."""

    advice = (
        "If the peer changed its hardware, device, threads, processes, optimiser or data since the "
        "run was interrupted, restore them there and start again, or start over on both sides with "
        "--force. Otherwise do not trust this peer."
    )

    @property
    def for_peer(self) -> str:
        return self.reason.replace("the peer sent", "this party sent")


class NotReproducible(ConfigurationError):  # noqa: N818 - named after the event, like the others
    """This party computed other values than it sent before."""

    advice = (
        "Restore this party's hardware, release, optimiser, training.device, training.threads and "
        "training.processes and start again, or start over on both sides with --force."
    )

    @property
    def for_peer(self) -> str:
        return self.reason.replace("this party", "it")


class JournalLost(ConfigurationError):  # noqa: N818 - named after the event
    """The journal of what was answered is missing or damaged, so nothing can be compared to it."""

    advice = (
        "Restore the file from a backup that is as new as the rest of the run directory, or start "
        "over as the message says. Check the disk."
    )

    @property
    def for_peer(self) -> str:
        return "its journal of what was answered is missing or damaged"


class AnswerJournal:
    """The journal of one stage at one party; subclasses say when it begins and is resumed.

    Blocks may be checked and recorded by several threads.
    """

    #: When a block was exchanged before, and the errors if it has changed.
    earlier: ClassVar[str] = "before the run was interrupted"
    different: ClassVar[type[DifferentBlock]] = DifferentBlock
    not_reproducible: ClassVar[type[NotReproducible]] = NotReproducible
    #: How to start over if the journal is lost.
    start_over: ClassVar[str] = "start over on both sides with --force"

    def __init__(self, path: Path | None) -> None:
        """Keep the journal in this file; None keeps none, for runs that are never resumed."""
        self._log = None if path is None else RecordLog(path)
        self._known: dict[tuple[int, int, int, int], bytes] = {}
        self._mac: AESGCM | None = None
        self._lock = Lock()
        #: The number of records up to the last one of a received block.
        self._received = 0

    @property
    def confirmed(self) -> int:
        """The number of records that are known to be on disk."""
        return 0 if self._log is None else self._log.confirmed

    # -- blocks ------------------------------------------------------------------------------------

    def received(self, kind: BlockKind, step: int, start: int, values: Data) -> None:
        """Check a block from the peer and record it. Call `settle_received` before answering it.

        Raises:
            DifferentBlock: other bytes were received for it before.
        """
        with self._lock:
            accepted = self._accepts(Event.RECEIVED, kind, step, start, values)
            if self._log is not None:
                self._received = self._log.count
        if not accepted:
            raise self.different(
                f"{kind.place(step, start)}: the peer sent other {kind.label} {self.earlier}. Only "
                "the same bytes are answered again, because other answers under the same random "
                "draws would reveal who is shared"
            )

    def sent(self, kind: BlockKind, step: int, start: int, values: Data) -> None:
        """Check a block that is about to be sent to the peer and record it.

        Raises:
            NotReproducible: other bytes were sent for it before.
        """
        with self._lock:
            accepted = self._accepts(Event.SENT, kind, step, start, values)
        if not accepted:
            raise self.not_reproducible(
                f"{kind.place(step, start)}: this party sent other {kind.label} {self.earlier}, "
                "and only the same bytes are sent again; its hardware, release, data or settings "
                "have changed"
            )

    def begin_sync(self) -> None:
        """Start to write all records to disk, in the background."""
        if self._log is not None:
            with self._lock:
                self._log.begin_sync()

    def settle_received(self) -> None:
        """Wait until the records of all received blocks are on disk."""
        if self._log is not None:
            with self._lock:
                self._log.settle(self._received)

    def settle(self) -> None:
        """Wait until all records are on disk."""
        if self._log is not None:
            with self._lock:
                self._log.settle()

    def _accepts(self, event: Event, kind: BlockKind, step: int, start: int, values: Data) -> bool:
        """Return whether the block is new or has the same bytes as before; record a new one."""
        if self._mac is None:
            return True
        block = (int(event), int(kind), start, step)
        # A tag of GMAC takes a tenth of the time of a hash. Each block has its own nonce, the peer
        # never sees a tag, and without the key it cannot find other bytes with the same tag.
        nonce = _NONCE.pack(event, kind, start, step.to_bytes(6, "little"))
        digest = self._mac.encrypt(nonce, b"", values).ljust(DIGEST_BYTES, b"\0")
        earlier = self._known.get(block)
        if earlier is not None:
            return earlier == digest
        self._append(Record(*block, digest))
        return True

    def problem(self, owner: bytes, confirmed: int) -> str:
        """Return what is wrong with the file at rest, as the rest of a sentence; "" if nothing.

        Args:
            owner: the ID of what the journal belongs to.
            confirmed: the number of records that are known to have been on disk.
        """
        assert self._log is not None
        try:
            records = self._read()
        except JournalLost:
            return "is damaged"
        if len(records) < confirmed:
            return f"has {len(records)} records, but had {confirmed}"
        if records and records[0].digest != owner_digest(owner):
            return "belongs to another run"
        return ""

    # -- the file ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the file; the journal can be opened again."""
        with self._lock:
            if self._log is not None:
                self._log.close()
            self._mac, self._known = None, {}

    def delete(self) -> None:
        """Delete the journal: the run is complete or starts over."""
        self.close()
        if self._log is not None:
            self._log.delete()

    def _open(self, key: bytes, records: list[Record]) -> None:
        """Open the file for appending behind these records."""
        assert self._log is not None
        self.close()
        self._mac = AESGCM(key)
        self._known = {
            record.block: record.digest
            for record in records
            if record.event in (Event.RECEIVED, Event.SENT)
        }
        self._log.open(len(records))
        # What a killed process wrote may not be on disk yet.
        self._received = len(records)

    def _append(self, record: Record) -> None:
        assert self._log is not None
        self._log.append(_CONTENT.pack(*record))

    def _read(self) -> list[Record]:
        """Return all records.

        Raises:
            JournalLost: the file is damaged.
        """
        assert self._log is not None
        try:
            contents = self._log.read()
        except DamagedRecords:
            raise self._lost("is damaged, or was written by another release") from None
        return [Record(*_CONTENT.unpack_from(content)) for content in contents]

    def _lost(self, problem: str) -> JournalLost:
        assert self._log is not None
        return JournalLost(
            f"{self._log.path} {problem}. It lists what was answered, so that nothing is answered "
            f"twice with different values; without it, {self.start_over}"
        )


def owner_digest(owner: bytes) -> bytes:
    """The ID of what a journal belongs to, as its first record contains it."""
    return owner[:DIGEST_BYTES].ljust(DIGEST_BYTES, b"\0")
