"""A worker on the cluster: opens sealed jobs, executes them, and seals the answers.

It runs as a Ray actor in its own process and does not import Ray. It keeps its keys in memory only,
so a restarted worker does not know the sessions of its predecessor.
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
    """A worker's reply to a handshake; nothing in it is secret."""

    public: bytes
    release: str
    engine: str
    #: Why it cannot work on its node; empty if it can.
    obstacle: str


def incompatibility(greeting: Greeting) -> str:
    """Return why we cannot use the process with this greeting; empty if we can."""
    if greeting["release"] != RELEASE:
        return f"a node has release {greeting['release']} of FLORIST"
    return f"on a node, {greeting['obstacle']}" if greeting["obstacle"] else ""


#: The answer of a process that does not know the session.
UNKNOWN_SESSION = b""


class Worker:
    """Executes jobs in one thread; there are as many workers as cores."""

    def __init__(self, group: str, engine: str) -> None:
        """Take the names of the group and of its engine."""
        self._name, self._engine = group, engine
        self._group: Group | None = None
        self._lock = Lock()
        self._sessions: dict[bytes, SealedSession] = {}

    def handshake(self, driver: bytes) -> Greeting:
        """Open a sealed session with the driver that has this public key."""
        greeting = Greeting(public=b"", release=RELEASE, engine="", obstacle="")
        with self._lock:
            if self._group is None:
                try:
                    self._group = make_group(self._name, self._engine, threads=1)
                except ConfigurationError as error:
                    return {**greeting, "obstacle": str(error)}
            ours = KeyExchange()
            self._sessions[driver] = ours.as_worker(driver)
        return {**greeting, "public": ours.public, "engine": self._group.engine}

    def run(self, driver: bytes, sealed: bytes) -> bytes:
        """Return the sealed answer to a sealed job, or `UNKNOWN_SESSION`."""
        session = self._sessions.get(driver)
        if session is None or self._group is None:
            return UNKNOWN_SESSION
        try:
            outcome = Outcome.DONE
            answer = execute(Job.from_bytes(session.open(sealed)), self._group)
        except ProtocolViolation as error:
            outcome, answer = Outcome.VIOLATION, str(error).encode()
        except Exception as error:  # noqa: BLE001 - reported to the driver, sealed; not to Ray's logs
            outcome, answer = Outcome.FAILED, f"{type(error).__name__}: {error}".encode()
        return session.seal(answer + bytes([outcome]), answers=sealed)


def execute(job: Job, group: Group) -> bytes:
    """Execute a job and return the result as bytes.

    Raises:
        ProtocolViolation: an element is invalid.
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
