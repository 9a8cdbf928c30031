"""The stages of a run and their state at this party: to do, finished here, or complete.

A party that has saved its result does not know whether the peer has saved its own until the peer
says goodbye. Until then the stage is finished here but not complete: a peer that was killed just
before it could save reconnects, and both repeat the rest of the stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from florist.common.core.errors import ConfigurationError
from florist.common.session.evaluated_model import is_outdated

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.session.run_directory import RunDirectory

StageName = Literal["align", "train", "evaluate"]

#: The folder of each stage's result, in the order in which the stages run.
RESULT_FOLDERS: dict[StageName, str] = {
    "align": "alignment",
    "train": "training",
    "evaluate": "evaluation",
}

#: What each stage does, for the command's help.
STAGE_SUMMARIES: dict[StageName, str] = {
    "align": "compute the private set union",
    "train": "train the model on the union",
    "evaluate": "estimate the model's metrics without knowing who is shared",
}

#: In the order in which they run.
STAGES: tuple[StageName, ...] = tuple(RESULT_FOLDERS)

#: What a party can be told to run: a stage, all incomplete stages, or the prediction service.
StageChoice = Literal["all", StageName, "serve"]

CHOICES: tuple[StageChoice, ...] = get_args(StageChoice)


@dataclass(frozen=True, slots=True)
class StageOptions:
    """Options of a stage from the command line."""

    #: Connect without TLS.
    plaintext: bool = False
    #: Start over: replace finished results and resume nothing.
    force: bool = False
    #: The file to which this process writes its log, if any; its digest becomes evidence.
    log_file: Path | None = None
    #: Why the difference guard of the privacy ledger is overridden; None: it is not.
    accept_difference: str | None = None


class StageState:
    """The state of one stage, as recorded in the run directory."""

    def __init__(self, runs: RunDirectory, name: StageName, *, force: bool = False) -> None:
        """With `force`, an existing result is ignored."""
        self.name = name
        self._result = runs.result(name)
        self._pending = runs.pending(name)
        self._ignored = force
        self._training = runs.result("train")

    @property
    def is_finished(self) -> bool:
        """Whether this party has its result, and for an evaluation that of the present model."""
        if self._ignored or not self._result.exists():
            return False
        return self.name != "evaluate" or not is_outdated(self._training, self._result)

    @property
    def is_complete(self) -> bool:
        """Whether this party has its result and knows that the peer has its own."""
        return self.is_finished and not self._pending.exists()

    def refuse_complete(self) -> None:
        """Raise if the stage is complete.

        Raises:
            ConfigurationError: says how to run the stage again.
        """
        if self.is_complete:
            raise ConfigurationError(
                f"{self._result} contains a finished result; set another run_directory, or replace "
                "it with --force"
            )

    def finish(self) -> None:
        """Record that this party has saved its result."""
        self._ignored = False

    def close(self) -> None:
        """Record that the peer has its result too."""
        self._pending.unlink(missing_ok=True)
