"""What the exchange of a label aggregate needs besides the data: a channel, a secret and a record.

If a run is interrupted before its first checkpoint, it starts over. The aggregate must not: with
new noise, the passive party would have two noised versions of the same sums. So its secret is kept
in a file until training is complete, everything that is sent is a function of it and of the data,
and the active party answers only one request.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from florist.common.core.errors import ProtocolViolation
from florist.common.session.retention import if_damaged
from florist.common.storage.manifest import DamagedFile, ListedFolder, private_content
from florist.common.transport.messages import AggregateAnswer, AggregateRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt

    from florist.common.core.progress import Progress
    from florist.common.transport.channel import Channel

    Bytes = npt.NDArray[np.uint8]

Sums = TypeVar("Sums", AggregateRequest, AggregateAnswer)

#: The channel of the exchange.
AGGREGATE = "aggregate"

#: Ciphertexts per message: 1 MiB.
_CIPHERTEXTS = 16_384

_KEY, _ANSWERED, _FACTS = "aggregate.key", "aggregate.answered", "aggregate.json"


@dataclass(frozen=True, slots=True)
class AggregateFacts:
    """What both parties know of an aggregate."""

    epsilon: float
    delta: float
    coordinates: int
    columns: int
    #: The parameter sigma of the noise on each sum, in units of the codes.
    deviation: float


class AggregateRecord:
    """The files of an aggregate: its secret, the request that was answered, and its facts.

    They are deleted when training is complete or starts over.
    """

    def __init__(self, folder: Path | None) -> None:
        """Keep files in a folder; None keeps nothing, for a run that cannot be resumed."""
        self._files = (
            None if folder is None else ListedFolder(folder, if_damaged(f"{folder.name}/{_KEY}"))
        )

    @property
    def exists(self) -> bool:
        """Whether the aggregate was begun already, so that its noise stays the same."""
        return self._files is not None and self._files.exists(_KEY)

    def secret(self) -> tuple[bytes, bool]:
        """Return the secret of 32 bytes, and whether it is a new one.

        Raises:
            ConfigurationError: the file cannot be read or written, or is damaged.
        """
        if self._files is None:
            return secrets.token_bytes(32), True
        is_new = not self._files.exists(_KEY)
        content = private_content(self._files, _KEY, lambda: _with_digest(secrets.token_bytes(32)))
        secret = content[:32]
        # With another secret, the same sums would get new noise that nobody accounts for.
        if content != _with_digest(secret):
            raise DamagedFile(
                f"{self._files.folder / _KEY} is damaged; start over with --force on both sides"
            )
        return secret, is_new

    def check_request(self, digest: bytes) -> None:
        """Record the only request to answer, durably; call it before the answer.

        Raises:
            ProtocolViolation: another request was answered before.
        """
        if self._files is None:
            return
        if not self._files.exists(_ANSWERED):
            self._files.write(_ANSWERED, digest)
            return
        if not hmac.compare_digest(self._files.read(_ANSWERED), digest):
            raise ProtocolViolation(
                "the label aggregate: the peer requests other sums than before, which would reveal "
                "more than agreed; its data or settings have changed, or it has lost its secret. "
                "Start over with --force on both sides"
            )

    def keep_facts(self, facts: AggregateFacts) -> None:
        """Keep what is known of the aggregate, for the evidence of a run that is resumed."""
        if self._files is not None:
            self._files.write(_FACTS, json.dumps(asdict(facts)).encode())

    def facts(self) -> AggregateFacts | None:
        """Return what was kept; None if there is no aggregate.

        Raises:
            ConfigurationError: the file is damaged.
        """
        if self._files is None or not self._files.exists(_FACTS):
            return None
        try:
            return AggregateFacts(**json.loads(self._files.read(_FACTS)))
        except (ValueError, TypeError):
            raise DamagedFile(
                f"{self._files.folder / _FACTS} is damaged; start over with --force on both sides"
            ) from None

    def delete(self) -> None:
        """Delete all files."""
        if self._files is not None:
            self._files.delete((_KEY, _ANSWERED, _FACTS))


def _with_digest(secret: bytes) -> bytes:
    return secret + hashlib.sha256(secret).digest()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AggregateRun:
    """The means of one exchange."""

    channel: Channel
    #: Secret of this party, 32 bytes.
    secret: bytes
    #: Public, and equal at both parties: identifies the union.
    session: bytes
    record: AggregateRecord
    #: Called by the active party before its first release.
    before_release: Callable[[], None]
    progress: Progress

    def secret_for(self, *parts: bytes) -> bytes:
        """Derive a secret that is different for different data."""
        digest = hashlib.sha256()
        for part in parts:
            digest.update(len(part).to_bytes(8))
            digest.update(part)
        return hmac.digest(self.secret, digest.digest(), "sha256")

    def session_of(self, output: int) -> bytes:
        """Return the session of one sum per coordinate."""
        return hashlib.sha256(b"florist/aggregate/1" + self.session + output.to_bytes(4)).digest()


def send_sums(channel: Channel, kind: type[Sums], sums: Bytes) -> None:
    """Send what is computed for each coordinate: (coordinates, outputs, bytes)."""
    for part in spans(len(sums), sums.shape[1]):
        channel.send(kind(part.start, np.ascontiguousarray(sums[part]).reshape(-1).data))


def received_sums(channel: Channel, kind: type[Sums], shape: tuple[int, int, int]) -> Bytes:
    """Receive what the peer has computed for each coordinate: (coordinates, outputs, bytes).

    Raises:
        ProtocolViolation: a message is of other coordinates or has another size.
    """
    parts = []
    for part in spans(shape[0], shape[1]):
        block = channel.receive(kind)
        wanted = (part.stop - part.start) * shape[1] * shape[2]
        if block.start != part.start or len(block.values) != wanted:
            raise ProtocolViolation(
                f"the label aggregate: {len(block.values)} bytes for coordinates from "
                f"{block.start} on, not {wanted} from {part.start} on"
            )
        parts.append(np.frombuffer(block.values, dtype=np.uint8))
    return np.concatenate(parts).reshape(shape)


def spans(total: int, outputs: int) -> list[slice]:
    """Divide a range into parts that fit into a message, with one ciphertext for each output."""
    size = max(_CIPHERTEXTS // outputs, 1)
    return [slice(at, min(at + size, total)) for at in range(0, total, size)]
