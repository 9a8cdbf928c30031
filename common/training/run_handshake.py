"""The handshake of a training run: a joint schedule, and the step at which to start or resume.

Each party commits to a nonce before it sees the other's, so neither can choose the schedule. A run
is identified by a digest of its seed. Each party says which run and which steps it has, and both
resume from the newest step that both have. If they have nothing in common, the run is refused and
nothing on disk is deleted. But if one party was stopped before it wrote anything, and no step was
made yet, both start over.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError, FloristError
from florist.common.session.nonces import check_commitment, commitment, fresh_nonce
from florist.common.training.schedule import joint_seed
from florist.common.transport.messages import NonceReveal, TrainingOpening

if TYPE_CHECKING:
    from collections.abc import Sequence

    from florist.common.core.roles import RoleName
    from florist.common.transport.channel import Channel

#: The channel of a run, from its handshake to its last gradient.
TRAINING = "training"


@dataclass(frozen=True, slots=True)
class ResumableRun:
    """A run that this party can resume: the seed of its schedule, and the steps on disk."""

    seed: bytes = field(repr=False)
    steps: Sequence[int]
    #: The number of records that its journal must have at least.
    journal_records: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class OpenedRun:
    """The result of the handshake: the schedule's seed and the first step."""

    seed: bytes
    first_step: int
    #: Whether to resume from a checkpoint, which may be that of step 0.
    resumed: bool


def open_run(
    channel: Channel,
    role: RoleName,
    union_sha256: bytes,
    *,
    have: ResumableRun | None,
    nonce: bytes | None = None,
) -> OpenedRun:
    """Agree with the peer on the seed and the first step.

    Args:
        channel: the training channel, unused so far.
        role: of this party; the active party's nonce comes first in the seed.
        union_sha256: digest of the union in this party's alignment.
        have: the run that this party has on disk, if any.
        nonce: fixed in experiments; None draws a random one.

    Raises:
        ConfigurationError: the unions differ, or the parties' checkpoints are not of one run. Both
            parties raise it.
        ProtocolViolation: the peer's nonce is not the one it committed to.
    """
    nonce = nonce or fresh_nonce()
    ours = TrainingOpening(
        union_sha256=union_sha256,
        run=run_id(have.seed) if have else b"",
        steps=tuple(have.steps) if have else (),
        commitment=commitment(nonce),
    )
    channel.send(ours)
    theirs = channel.receive(TrainingOpening)
    channel.send(NonceReveal(nonce))
    try:
        step = _common_step(ours, theirs)
    except ConfigurationError:
        with suppress(FloristError):  # stay until the peer has found the cause as well
            channel.receive(NonceReveal)
        raise
    revealed = channel.receive(NonceReveal).nonce
    check_commitment(revealed, theirs.commitment)
    if have and step is not None:
        return OpenedRun(have.seed, step, resumed=True)
    pair = (nonce, revealed) if role == "active" else (revealed, nonce)
    return OpenedRun(joint_seed(*pair, union_sha256), 0, resumed=False)


def _common_step(ours: TrainingOpening, theirs: TrainingOpening) -> int | None:
    """Return the newest step from which both can resume; None to start over."""
    if theirs.union_sha256 != ours.union_sha256:
        raise ConfigurationError(
            "the two parties' alignments are of different runs: both parties must align again with "
            "--force"
        )
    common = set(ours.steps) & set(theirs.steps) if ours.run == theirs.run else set()
    if common:
        return max(common)
    if any((*ours.steps, *theirs.steps)) or (ours.steps and theirs.steps):
        raise ConfigurationError(
            "the two parties' checkpoints are not of one run, or have no step in common: restore "
            "them and check run_directory on both sides, or start over on both sides with --force"
        )
    return None


def run_id(seed: bytes) -> bytes:
    """Return the ID of a run, which does not reveal its seed."""
    return hashlib.sha256(b"florist/run/1" + seed).digest()
