"""Who sends which step of a union, and the elements of a step as they were received."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.transport.messages import SetChunk, Step
from florist.common.transport.recording import Direction
from tests.support.parties import other

if TYPE_CHECKING:
    from florist.common.core.roles import RoleName
    from florist.common.storage.elements import Elements
    from florist.common.transport.recording import RecordingLink

#: The steps that the active party sends, by Algorithm 1.
FROM_ACTIVE = frozenset(
    {
        Step.ACTIVE_FIRST_ROUND,
        Step.PASSIVE_FIRST_ROUND_BACK,
        Step.SECOND_ROUND,
        Step.ACTIVE_HASHING,
        Step.PASSIVE_HASHING_BACK,
        Step.ANCHORS,
    }
)
#: The steps that the merging party sends, by the merged protocol.
FROM_MERGING = frozenset(
    {Step.MERGING_SET, Step.COMPLETING_SET_BACK, Step.REMAINDER, Step.ANCHORS},
)


def sender(step: Step, merging: RoleName | None) -> RoleName:
    """Return the party that sends a step; `merging` is None for Algorithm 1."""
    if merging is None:
        return "active" if step in FROM_ACTIVE else "passive"
    return merging if step in FROM_MERGING else other(merging)


def received_elements(link: RecordingLink, step: Step, width: int) -> Elements:
    """Return what a party received in a step, as rows of `width` bytes."""
    parts = [
        record.message.elements
        for record in link.records
        if record.direction is Direction.RECEIVED
        and isinstance(record.message, SetChunk)
        and record.message.step is step
    ]
    return np.frombuffer(b"".join(parts), np.uint8).reshape(-1, width)
