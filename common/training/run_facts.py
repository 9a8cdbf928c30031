"""The JSON part of a training checkpoint: everything in it besides tensors."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from pydantic import Field

from florist.common.settings.section import StrictModel
from florist.common.training.history import History
from florist.common.training.run_inputs import InputRecord

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class OptimiserFacts:
    """Which optimiser a state belongs to: its name, and the tables that it updates sparsely."""

    name: str
    sparse: list[str]


@dataclass(frozen=True, slots=True)
class HalfFacts:
    """What the state of a half contains besides tensors."""

    optimiser: OptimiserFacts


class RunFacts(StrictModel):
    """All that a run needs to resume, besides the tensors of its half."""

    half: HalfFacts
    #: Seed of the schedule and secret of this party's draws, in hex.
    seed: str = Field(repr=False)
    secret: str = Field(repr=False)
    history: History
    #: Digests of the agreement, union and table; a run resumes only with the same ones.
    identity: dict[str, str]
    #: What the run was started with; checkpoints of earlier releases do not say.
    inputs: InputRecord | None = None
    #: The number of records of the journal that were on disk; fewer later mean that some were lost.
    journal_records: int = 0

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> Self:
        """Read what `to_json` returned."""
        # Through JSON, because strict validation accepts dataclasses as dictionaries only there.
        return cls.model_validate_json(json.dumps(dict(values)))

    def to_json(self) -> dict[str, object]:
        """Return the facts as JSON values."""
        return self.model_dump(mode="json")
