"""The journal of one union: which exchanges are finished, so that a later attempt can resume.

It also records what the peer has sent: under our secret exponents we answer one set per step and no
other, however often the peer asks. See docs/decisions/0004-resuming-a-union.md.
"""

from __future__ import annotations

import hashlib
import logging
import struct
import zlib
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from florist.common.core.errors import ConfigurationError, ProtocolViolation
from florist.common.privacy.commitment import SetCommitment, StoredCommitment, SubsetKey
from florist.common.psu.stored_sets import SetFacts, StoredSet
from florist.common.storage.files import FolderStorage
from florist.common.transport.messages import Step

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.storage.elements import Elements
    from florist.common.storage.files import Storage
    from florist.common.transport.messages import UnionAnnouncement

log = logging.getLogger("florist.align")

#: How often a union may start over after the peer has received something from us. Each time the
#: peer learns sizes, and could have changed its set to learn more from them.
MAX_STARTS = 16

#: The name of the set of our own hashed IDs.
IDS = "ids"

_FILE = "journal.json"

#: The digest of a chunk that the peer sent, and a checksum of the record.
_CHUNK = struct.Struct("<32sI")

Hex = Annotated[str, Field(pattern="^([0-9a-f]{2})*$")]


class _StoredFacts(BaseModel):
    """`SetFacts` as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    count: int = Field(ge=0)
    sha256: Hex
    #: Bytes of a row; None if the rows are elements.
    width: int | None = Field(default=None, gt=0)


class _JournalFile(BaseModel):
    """The contents of the journal's file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Literal[4] = 4
    #: Identifies the two parties and tables, as we see them.
    identity: Hex
    token: Hex
    #: Our secrets, encrypted under a key that only the peer has.
    sealed: Hex
    peer_size: int = Field(ge=0)
    #: The peer's commitment to its set, and the roots of our own subsets: people, dummies, pools.
    #: Empty in the journal of a branch.
    peer_root: Hex = ""
    own_roots: tuple[Hex, Hex, Hex] = ("", "", "")
    starts: int = Field(ge=1)
    #: Our own hashed IDs, once they are completely stored.
    ids: _StoredFacts | None = None
    #: By step: the sets that finished exchanges stored, and the sets that the peer sent.
    finished: dict[int, _StoredFacts] = {}
    received: dict[int, _StoredFacts] = {}
    #: The steps of which chunks were received, each recorded in a file of its own.
    chunked: tuple[int, ...] = ()


class Journal:
    """The journal of one union and its stored sets; safe to use from several threads."""

    def __init__(self, storage: Storage, width: int, identity: bytes) -> None:
        """Load the journal from storage; a journal with another `identity` is ignored."""
        self.storage = storage
        self._width = width
        self._identity = identity.hex()
        self._lock = Lock()
        self._record = self._load()

    @property
    def record(self) -> _JournalFile | None:
        """What the file contains; None if it is missing or damaged."""
        return self._record

    # -- state -------------------------------------------------------------------------------------

    @property
    def token(self) -> bytes:
        """Identifies the union in progress, here and at the peer; empty if there is none."""
        record = self._record
        return bytes.fromhex(record.token) if record and record.identity == self._identity else b""

    @property
    def sealed(self) -> bytes:
        """Our secrets, encrypted under a key that only the peer has."""
        return bytes.fromhex(self._now.sealed)

    @property
    def peer_size(self) -> int:
        """The size of the peer's set, as it announced."""
        return self._now.peer_size

    def commitment(self, key: bytes) -> StoredCommitment:
        """The commitments of both parties to their sets; `key` is that of our own."""
        people, dummies, pools = map(bytes.fromhex, self._now.own_roots)
        own = SetCommitment(people, dummies, pools, SubsetKey.derived(key, "people"))
        return StoredCommitment(own, bytes.fromhex(self._now.peer_root))

    @property
    def ids(self) -> StoredSet | None:
        """Our own hashed IDs, dummies included, in row order; None until they are stored."""
        return self._stored(IDS, self._now.ids) if self._now.ids else None

    def stored_result(self, step: Step) -> StoredSet:
        """The set that the finished exchange starting with `step` stored."""
        return self._stored(set_name(step), self._now.finished[step])

    @property
    def finished(self) -> list[int]:
        """The first steps of the finished exchanges."""
        return sorted(self._now.finished)

    def drop_damaged(self) -> bool:
        """Drop exchanges whose sets are damaged; return False if the union cannot be resumed."""
        record = self._now
        if self.ids is not None and not self.ids.is_intact:
            log.warning("%s is damaged or lost, so that the union starts over", IDS)
            return False
        if not all(map(self.has_intact_chunks, Step)):
            log.warning("a record of received elements is damaged, so that the union starts over")
            return False
        lost = [
            step
            for step, facts in record.finished.items()
            if facts.sha256 and not self._stored(set_name(step), facts).is_intact
        ]
        if lost:
            log.warning(
                "the results of %d finished exchanges are damaged or lost; they are repeated",
                len(lost),
            )
        with self._lock:
            kept = {step: facts for step, facts in record.finished.items() if step not in lost}
            self._record = record.model_copy(update={"finished": kept})
        return True

    # -- events ------------------------------------------------------------------------------------

    def begin(
        self, token: bytes, sealed: bytes, peer: UnionAnnouncement, own: SetCommitment
    ) -> None:
        """Start a new union; nothing of an earlier one is kept.

        Args:
            token: identifies the union.
            sealed: our secrets, encrypted.
            peer: what the peer has announced.
            own: our commitment to our set.

        Raises:
            ConfigurationError: it was started too often.
        """
        roots = (own.people.hex(), own.dummies.hex(), own.pools.hex())
        self._begin(token, sealed, peer.size, peer_root=peer.set_root.hex(), own_roots=roots)

    def begin_part(self, token: bytes, peer_size: int) -> None:
        """Start a new union as a branch, which has neither secrets nor commitments to keep.

        Raises:
            ConfigurationError: it was started too often.
        """
        self._begin(token, b"", peer_size)

    def _begin(
        self,
        token: bytes,
        sealed: bytes,
        peer_size: int,
        *,
        peer_root: str = "",
        own_roots: tuple[str, str, str] = ("", "", ""),
    ) -> None:
        before = self._record
        starts = before.starts + bool(before.received) if before else 1
        if starts > MAX_STARTS:
            raise ConfigurationError(
                f"this union was started {MAX_STARTS} times and never completed. Each time the "
                "peer learns the sizes again, and a malicious peer could infer from them who is "
                "shared; if you know why it fails, start over with --force"
            )
        self.storage.clear()
        with self._lock:
            self._save(
                _JournalFile(
                    identity=self._identity,
                    token=token.hex(),
                    sealed=sealed.hex(),
                    peer_size=peer_size,
                    peer_root=peer_root,
                    own_roots=own_roots,
                    starts=starts,
                )
            )

    def keep_ids(self, facts: SetFacts) -> None:
        """Record that our hashed IDs are stored."""
        with self._lock:
            self._save(self._now.model_copy(update={"ids": _packed(facts)}))

    def check_received(self, step: Step, facts: SetFacts) -> None:
        """Record what the peer sent, before any answer to it is sent.

        Raises:
            ProtocolViolation: the peer sent something else in an earlier attempt.
        """
        with self._lock:
            before = self._now.received.get(step)
            if before is None:
                received = {**self._now.received, int(step): _packed(facts)}
                self._save(self._now.model_copy(update={"received": received}))
            elif _plain(before) != facts:
                raise _other_set(step)

    def check_chunk(self, step: Step, number: int, chunk: Elements) -> None:
        """Record one chunk of a set that is answered chunk by chunk, before it is answered.

        Raises:
            ProtocolViolation: the peer sent something else in an earlier attempt.
        """
        digest, name = hashlib.sha256(chunk.data).digest(), _chunks_name(step)
        size, position = self.storage.size(name) or 0, number * _CHUNK.size
        if position < size:
            with self.storage.reading(name) as file:
                file.seek(position)
                if file.read(len(digest)) != digest:
                    raise _other_set(step)
        else:
            with self._lock:
                if step not in self._now.chunked:
                    chunked = (*self._now.chunked, int(step))
                    self._save(self._now.model_copy(update={"chunked": chunked}))
            self.storage.append(name, _CHUNK.pack(digest, self._checksum(number, digest)))

    def has_intact_chunks(self, step: Step) -> bool:
        """Whether the records of `check_chunk` are as they were written, for this union."""
        name = _chunks_name(step)
        if not self.storage.size(name):
            return step not in self._now.chunked
        with self.storage.reading(name) as file:
            content = file.read()
        return len(content) % _CHUNK.size == 0 and all(
            checksum == self._checksum(number, digest)
            for number, (digest, checksum) in enumerate(_CHUNK.iter_unpack(content))
        )

    def _checksum(self, number: int, digest: bytes) -> int:
        """The checksum of a record, which belongs to this union and place."""
        return zlib.crc32(self.token + number.to_bytes(8) + digest)

    def finish(self, step: Step, facts: SetFacts, width: int | None = None) -> None:
        """Record that the exchange starting with `step` is finished, and its set, if any, stored.

        The facts of an exchange that stores no set have no digest. `width` is that of a stored row;
        by default it is an element.
        """
        with self._lock:
            finished = {**self._now.finished, int(step): _packed(facts, width)}
            self._save(self._now.model_copy(update={"finished": finished}))

    # -- the file ----------------------------------------------------------------------------------

    @property
    def _now(self) -> _JournalFile:
        assert self._record is not None, "the union has not started"
        return self._record

    def _stored(self, name: str, facts: _StoredFacts) -> StoredSet:
        return StoredSet(self.storage, name, facts.width or self._width, _plain(facts))

    def _load(self) -> _JournalFile | None:
        if self.storage.size(_FILE) is None:
            return None
        with self.storage.reading(_FILE) as file:
            text = file.read()
        content, _, digest = text.rpartition(b"\n")
        try:
            if digest != hashlib.sha256(content).hexdigest().encode():
                raise ValueError("another digest")  # noqa: TRY301 - as for other damage
            return _JournalFile.model_validate_json(content)
        except (ValueError, ValidationError):
            log.warning("%s is damaged or of another release, so that the union starts over", _FILE)
            return None

    def _save(self, record: _JournalFile) -> None:
        content = record.model_dump_json().encode()
        with self.storage.writing(_FILE) as file:
            file.write(content + b"\n" + hashlib.sha256(content).hexdigest().encode())
        self._record = record


def damaged_files(folder: Path) -> list[str]:
    """Return the names of the damaged or missing files of a union in progress; reads all of it."""
    storage = FolderStorage(folder)
    found = Journal(storage, 1, b"")
    if (record := found.record) is None:
        return [_FILE]
    journal = Journal(storage, 1, bytes.fromhex(record.identity))
    sets = {set_name(step): facts for step, facts in record.finished.items() if facts.sha256}
    if record.ids is not None:
        sets[IDS] = record.ids
    damaged = [name for name, facts in sets.items() if _sha256(folder / name) != facts.sha256]
    chunks = (step for step in Step if not journal.has_intact_chunks(step))
    return sorted([*damaged, *map(_chunks_name, chunks)])


def _sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def set_name(step: Step | int) -> str:
    """Return the name of the set that the exchange starting with `step` stores."""
    return f"step-{int(step)}"


def _chunks_name(step: Step) -> str:
    """Return the name of the record of what the peer sent chunk by chunk."""
    return f"{set_name(step)}.received"


def _plain(facts: _StoredFacts) -> SetFacts:
    return SetFacts(facts.count, bytes.fromhex(facts.sha256))


def _packed(facts: SetFacts, width: int | None = None) -> _StoredFacts:
    return _StoredFacts(count=facts.count, sha256=facts.sha256.hex(), width=width)


def _other_set(step: Step) -> ProtocolViolation:
    return ProtocolViolation(
        f"step {step.label}: the peer sent different elements before the interruption"
    )
