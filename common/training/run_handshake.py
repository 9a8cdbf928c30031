"""How a training run opens: a schedule that both made, from the start or from a common step.

Each party commits to a nonce before it sees the other's, so neither can choose the schedule. A run
is known by a digest of its seed; a party tells which run and which steps it has, and both go on
from the newest step that both have. What cannot be brought together is refused, and nothing on disk
is lost; but where one was stopped before it wrote anything, and nothing was learnt yet, both begin
anew.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError, FloristError
from florist.common.training.schedule import (
    check_commitment,
    commitment,
    fresh_nonce,
    joint_seed,
)
from florist.common.transport.messages import NonceReveal, TrainingOpening

if TYPE_CHECKING:
    from collections.abc import Sequence

    from florist.common.core.roles import RoleName
    from florist.common.transport.channel import Channel

#: The channel that carries a run from its opening to its last gradient.
TRAINING = "training"


@dataclass(frozen=True, slots=True)
class ResumableRun:
    """A run that this party can go on with: the seed it was made with, and its steps on disk."""

    seed: bytes = field(repr=False)
    steps: Sequence[int]


@dataclass(frozen=True, slots=True, repr=False)
class OpenedRun:
    """What both parties now have: the schedule's seed and the step to begin with."""

    seed: bytes
    first_step: int
    #: Whether to go on from a checkpoint, which may be that of step 0.
    resumed: bool


def open_run(
    channel: Channel,
    role: RoleName,
    union_sha256: bytes,
    *,
    have: ResumableRun | None,
    nonce: bytes | None = None,
) -> OpenedRun:
    """Agree on seed and first step.

    Args:
        channel: the training channel, unused so far.
        role: whose nonce comes first in the seed.
        union_sha256: of the union that this party aligned.
        have: the run that this party has begun, if any.
        nonce: fixed in experiments; None draws one.

    Raises:
        ConfigurationError: another union, or the checkpoints of the two are not of one run. Both
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
        with suppress(FloristError):  # or the peer, told that we stop, would not read why
            channel.receive(NonceReveal)
        raise
    revealed = channel.receive(NonceReveal).nonce
    check_commitment(revealed, theirs.commitment)
    if have and step is not None:
        return OpenedRun(have.seed, step, resumed=True)
    pair = (nonce, revealed) if role == "active" else (revealed, nonce)
    return OpenedRun(joint_seed(*pair, union_sha256), 0, resumed=False)


def _common_step(ours: TrainingOpening, theirs: TrainingOpening) -> int | None:
    """The newest step that both can go on from; None to begin anew."""
    if theirs.union_sha256 != ours.union_sha256:
        raise ConfigurationError(
            "the two parties hold alignments of different runs: align again, both, with --force"
        )
    common = set(ours.steps) & set(theirs.steps) if ours.run == theirs.run else set()
    if common:
        return max(common)
    if any((*ours.steps, *theirs.steps)) or (ours.steps and theirs.steps):
        raise ConfigurationError(
            "the two parties' checkpoints are not of one run, or have no step in common: restore "
            "them and check run_directory on both sides, or start anew, both with --force"
        )
    return None


def run_id(seed: bytes) -> bytes:
    """Tells runs apart without telling their seed."""
    return hashlib.sha256(b"florist/run/1" + seed).digest()
