"""A worker on the cluster: opens sealed jobs, does them, seals the answers.

It runs as a Ray actor in a process of its own and needs nothing of Ray itself. It keeps its keys in
memory only, so one that was restarted does not know those who spoke with the one before.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from florist.common.cluster.sealed_jobs import Job, KeyExchange, Kind, Outcome, SealedSession
from florist.common.core.errors import ConfigurationError, ProtocolViolation
from florist.common.core.release import RELEASE
from florist.common.groups import make_group
from florist.common.groups.group import Exponent
from florist.common.storage.element_sets import sorted_set
from florist.common.storage.id_column import unpacked_ids

if TYPE_CHECKING:
    from florist.common.groups.group import Group
    from florist.common.storage.elements import Elements


class Greeting(TypedDict):
    """How a worker introduces itself: nothing in it is secret."""

    public: bytes
    release: str
    engine: str
    #: Why it cannot work here; empty if it can.
    obstacle: str


def incompatibility(greeting: Greeting) -> str:
    """Why whoever greets so cannot work for us; empty if it can."""
    if greeting["release"] != RELEASE:
        return f"a node has release {greeting['release']} of FLORIST"
    return f"on a node, {greeting['obstacle']}" if greeting["obstacle"] else ""


#: The answer of a worker that does not know with whom it speaks.
UNKNOWN_SESSION = b""


class Worker:
    """Works with one thread: there are as many workers as cores."""

    def __init__(self, group: str, engine: str) -> None:
        """As in the agreement, and as configured."""
        self._name, self._engine = group, engine
        self._group: Group | None = None
        self._lock = Lock()
        self._conversations: dict[bytes, SealedSession] = {}

    def introduce(self, driver: bytes) -> Greeting:
        """Begin a conversation with the driver whose public half this is, which names it."""
        greeting = Greeting(public=b"", release=RELEASE, engine="", obstacle="")
        with self._lock:
            if self._group is None:
                try:
                    self._group = make_group(self._name, self._engine, threads=1)
                except ConfigurationError as error:
                    return {**greeting, "obstacle": str(error)}
            ours = KeyExchange()
            self._conversations[driver] = ours.as_worker(driver)
        return {**greeting, "public": ours.public, "engine": self._group.engine}

    def run(self, driver: bytes, sealed: bytes) -> bytes:
        """The sealed answer to a sealed job, or `UNKNOWN_SESSION`."""
        conversation = self._conversations.get(driver)
        if conversation is None or self._group is None:
            return UNKNOWN_SESSION
        try:
            outcome = Outcome.DONE
            answer = do(Job.from_bytes(conversation.open(sealed)), self._group)
        except ProtocolViolation as error:
            outcome, answer = Outcome.VIOLATION, str(error).encode()
        except Exception as error:  # noqa: BLE001 - the driver is told, sealed; Ray's logs are not
            outcome, answer = Outcome.FAILED, f"{type(error).__name__}: {error}".encode()
        return conversation.seal(answer + bytes([outcome]), answers=sealed)


def do(job: Job, group: Group) -> bytes:
    """The result of a job, as bytes.

    Raises:
        ProtocolViolation: the elements are not what they must be.
    """
    match job.kind:
        case Kind.HASH:
            return group.hash_ids(unpacked_ids(_data(job), job.number)).tobytes()
        case Kind.SORT:
            return sorted_set(_rows(job)).tobytes()
        case Kind.CHECK_AND_RAISE:
            group.validate(_rows(job))
    return group.power(_rows(job), Exponent(job.exponent)).tobytes()


def _data(job: Job) -> memoryview:
    (data,) = job.payload
    return memoryview(data)


def _rows(job: Job) -> Elements:
    return np.frombuffer(_data(job), dtype=np.uint8).reshape(-1, job.number)
