"""The stages of a run, and how a party stands with each: to do, finished here, or over.

A party that has saved its result cannot know whether its peer has, until the peer says goodbye.
Until then the stage is finished here, but not over: a peer that was killed just before it could
save finds us again, and both do the rest once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from florist.common.core.errors import ConfigurationError

if TYPE_CHECKING:
    from florist.common.session.run_directory import RunDirectory

StageName = Literal["align", "train", "evaluate"]

#: The folder of each stage's result, in the order in which the stages run.
RESULT_FOLDERS: dict[StageName, str] = {
    "align": "alignment",
    "train": "training",
    "evaluate": "evaluation",
}

#: In the order in which they run.
STAGES: tuple[StageName, ...] = tuple(RESULT_FOLDERS)

#: What a party can be told to run: a stage, all incomplete stages, or the prediction service.
StageChoice = Literal["all", StageName, "serve"]

CHOICES: tuple[StageChoice, ...] = get_args(StageChoice)


@dataclass(frozen=True, slots=True)
class StageOptions:
    """What the command line decides."""

    plaintext: bool = False
    #: Begin anew: replace what is finished, and go on with nothing that was begun.
    force: bool = False


class StageState:
    """One stage of a run, by what is in the run directory."""

    def __init__(self, runs: RunDirectory, name: StageName, *, force: bool = False) -> None:
        """With `force` the result that is there counts for nothing."""
        self.name = name
        self._result = runs.result(name)
        self._pending = runs.pending(name)
        self._ignored = force

    @property
    def is_finished(self) -> bool:
        """Whether our result is there."""
        return self._result.exists() and not self._ignored

    @property
    def is_complete(self) -> bool:
        """Whether the peer's is too, as far as we know."""
        return self.is_finished and not self._pending.exists()

    def refuse_complete(self) -> None:
        """Raise if there is nothing to do.

        Raises:
            ConfigurationError: says how to do it all the same.
        """
        if self.is_complete:
            raise ConfigurationError(
                f"{self._result} holds a finished result; name another run_directory, "
                "or replace it with --force"
            )

    def finish(self) -> None:
        """Our result has been saved."""
        self._ignored = False

    def close(self) -> None:
        """The peer has its result too."""
        self._pending.unlink(missing_ok=True)
