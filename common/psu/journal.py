"""What one union has got done, on record, so that a later attempt need not do it again.

Also what the peer has sent: an answer under our secret exponents is given for one set per step and
no other, however often the peer asks. See docs/decisions/0004-resuming-a-union.md.
"""

from __future__ import annotations

import hashlib
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from florist.common.core.errors import ConfigurationError, ProtocolViolation
from florist.common.psu.stored_sets import SetFacts, StoredSet

if TYPE_CHECKING:
    from florist.common.storage.elements import Elements
    from florist.common.storage.files import Storage
    from florist.common.transport.messages import Step

#: Times that a union may be begun anew after the peer has had something of us. Every time the peer
#: learns sizes, and could have changed its set to learn more from them.
MOST_STARTS = 16

#: The set of our own hashed IDs.
IDS = "ids"

_FILE = "journal.json"

Hex = Annotated[str, Field(pattern="^([0-9a-f]{2})*$")]


class _StoredFacts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    count: int = Field(ge=0)
    sha256: Hex


class _JournalFile(BaseModel):
    """The journal's file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Literal[1] = 1
    #: Of what is aligned with whom, as we see it.
    identity: Hex
    token: Hex
    #: Our exponents, sealed under a key that only the peer has.
    sealed: Hex
    peer_size: int = Field(ge=0)
    starts: int = Field(ge=1)
    #: Our own hashed IDs, once they are stored.
    ids: _StoredFacts | None = None
    #: By step: what we have of a finished exchange, and the sets that the peer sent.
    finished: dict[int, _StoredFacts] = {}
    received: dict[int, _StoredFacts] = {}


class Journal:
    """The record of one union, and the sets that go with it; safe to use from several threads."""

    def __init__(self, storage: Storage, width: int, identity: bytes) -> None:
        """What storage has of the union called `identity`; of any other, nothing."""
        self.storage = storage
        self._width = width
        self._identity = identity.hex()
        self._lock = Lock()
        self._record = self._load()

    # -- where it stands ---------------------------------------------------------------------------

    @property
    def token(self) -> bytes:
        """Names the union under way, here and at the peer; empty if there is none."""
        record = self._record
        return bytes.fromhex(record.token) if record and record.identity == self._identity else b""

    @property
    def sealed(self) -> bytes:
        return bytes.fromhex(self._now.sealed)

    @property
    def peer_size(self) -> int:
        """As the peer announced it."""
        return self._now.peer_size

    @property
    def ids(self) -> StoredSet | None:
        """Our own hashed IDs, in row order, with their dummies."""
        return self._stored(IDS, self._now.ids) if self._now.ids else None

    def stored_result(self, step: Step) -> StoredSet:
        """The set that the finished exchange starting with `step` stored."""
        return self._stored(name_of(step), self._now.finished[step])

    @property
    def finished(self) -> list[int]:
        return sorted(self._now.finished)

    def drop_unsound(self) -> bool:
        """Forget what the storage no longer has; False if the union cannot go on without it."""
        record = self._now
        if self.ids is not None and not self.ids.is_sound:
            return False
        lost = [
            step
            for step, facts in record.finished.items()
            if facts.sha256 and not self._stored(name_of(step), facts).is_sound
        ]
        with self._lock:
            kept = {step: facts for step, facts in record.finished.items() if step not in lost}
            self._record = record.model_copy(update={"finished": kept})
        return True

    # -- what happens ------------------------------------------------------------------------------

    def begin(self, token: bytes, sealed: bytes, peer_size: int) -> None:
        """Begin anew: nothing of an earlier union is kept.

        Raises:
            ConfigurationError: it was begun too often.
        """
        before = self._record
        starts = before.starts + bool(before.received) if before else 1
        if starts > MOST_STARTS:
            raise ConfigurationError(
                f"this union was begun {MOST_STARTS} times and never finished. Each time the peer "
                "learns the sizes anew, and an ill-meaning one could learn from them who is "
                "shared; if you know why it fails, begin anew with --force"
            )
        self.storage.clear()
        with self._lock:
            self._save(
                _JournalFile(
                    identity=self._identity,
                    token=token.hex(),
                    sealed=sealed.hex(),
                    peer_size=peer_size,
                    starts=starts,
                )
            )

    def keep_ids(self, facts: SetFacts) -> None:
        """Our hashed IDs are stored."""
        with self._lock:
            self._save(self._now.model_copy(update={"ids": _packed(facts)}))

    def check_received(self, step: Step, facts: SetFacts) -> None:
        """Put on record what the peer sent, before anything that comes of it is sent.

        Raises:
            ProtocolViolation: in an earlier attempt it sent something else.
        """
        with self._lock:
            before = self._now.received.get(step)
            if before is None:
                received = {**self._now.received, int(step): _packed(facts)}
                self._save(self._now.model_copy(update={"received": received}))
            elif _plain(before) != facts:
                raise _other_set(step)

    def check_chunk(self, step: Step, number: int, chunk: Elements) -> None:
        """The same for one chunk of a set that is answered chunk by chunk.

        Raises:
            ProtocolViolation: as above.
        """
        digest = hashlib.sha256(chunk.data).digest()
        name = f"{name_of(step)}.received"
        size, place = self.storage.size(name) or 0, number * len(digest)
        if place < size:
            with self.storage.reading(name) as file:
                file.seek(place)
                if file.read(len(digest)) != digest:
                    raise _other_set(step)
        else:
            self.storage.append(name, digest)

    def finish(self, step: Step, facts: SetFacts) -> None:
        """The exchange that begins with `step` is finished here, and its set, if any, stored.

        One that leaves no set has no digest.
        """
        with self._lock:
            finished = {**self._now.finished, int(step): _packed(facts)}
            self._save(self._now.model_copy(update={"finished": finished}))

    # -- its file ----------------------------------------------------------------------------------

    @property
    def _now(self) -> _JournalFile:
        assert self._record is not None, "the union has not begun"
        return self._record

    def _stored(self, name: str, facts: _StoredFacts) -> StoredSet:
        return StoredSet(self.storage, name, self._width, _plain(facts))

    def _load(self) -> _JournalFile | None:
        if self.storage.size(_FILE) is None:
            return None
        with self.storage.reading(_FILE) as file:
            text = file.read()
        try:
            return _JournalFile.model_validate_json(text)
        except ValidationError:
            return None

    def _save(self, record: _JournalFile) -> None:
        with self.storage.writing(_FILE) as file:
            file.write(record.model_dump_json().encode())
        self._record = record


def name_of(step: Step | int) -> str:
    """The file of the set that the exchange beginning with `step` leaves."""
    return f"step-{int(step)}"


def _plain(facts: _StoredFacts) -> SetFacts:
    return SetFacts(facts.count, bytes.fromhex(facts.sha256))


def _packed(facts: SetFacts) -> _StoredFacts:
    return _StoredFacts(count=facts.count, sha256=facts.sha256.hex())


def _other_set(step: Step) -> ProtocolViolation:
    return ProtocolViolation(
        f"step {step.label}: the peer sends other elements than before the interruption"
    )
