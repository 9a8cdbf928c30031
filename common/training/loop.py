"""The loop over steps, the same for both parties; a party's half does the rest."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from florist.common.core.errors import FloristError, Interrupted, PeerFailed, TransportError
from florist.common.training.blocks import Diverged, all_finite
from florist.common.training.checkpoint import Checkpoint
from florist.common.training.feed import Feed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from florist.common.core.progress import StepProgress
    from florist.common.synthetic.calibration import Calibration
    from florist.common.synthetic.secret_draws import SecretDraws
    from florist.common.training.feed import Position
    from florist.common.training.history import CalibrationPoints, EpochFigures, History
    from florist.common.training.run_checkpoints import RunCheckpoints
    from florist.common.training.schedule import Schedule

Batch = TypeVar("Batch")


class Half(Protocol[Batch]):
    """A party's half of the model in training."""

    def prepare(self, position: Position, ranks: npt.NDArray[np.int64]) -> Batch:
        """This party's side of a batch: called one batch ahead, in a thread of its own."""
        ...

    @property
    def is_consistent(self) -> bool:
        """Whether the state is that between two steps, even if one is under way."""
        ...

    def step(self, position: Position, batch: Batch) -> None:
        """Forward, backward, update, together with the peer."""
        ...

    def end_epoch(self, epoch: int) -> EpochFigures:
        """What the epoch gave, evaluated if there is a test table."""
        ...

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and JSON facts from which `load` goes on, bit for bit."""
        ...

    def load(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None: ...

    def finish(self) -> None:
        """Called once after the last step: the weights are those to keep."""
        ...

    def close(self) -> None:
        """Called in any case when no more steps come; `state` and `describe` still work."""
        ...

    def describe(self) -> dict[str, Any]:
        """The model, for people."""
        ...

    def calibration(self) -> Calibration | None:
        """By which logits become predictions; the active party's only."""
        ...

    def calibration_points(self) -> CalibrationPoints | None:
        """The last epoch's calibration on the test table, where this party knows it."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A run under way: its schedule, its secret, its record, and where it is kept."""

    schedule: Schedule
    draws: SecretDraws
    history: History
    store: RunCheckpoints
    #: Steps between two checkpoints within an epoch; 0 for none.
    checkpoint_every: int
    #: Tells whose run it is: a checkpoint of another agreement or union is refused.
    identity: dict[str, str]
    #: Called after each checkpoint, with the history as it is then.
    on_checkpoint: Callable[[History], None]
    #: Called after each step, once it is kept, with the number of steps done; may end the run.
    after_step: Callable[[int], None]


def train(half: Half[Batch], run: Run, first_step: int, progress: StepProgress) -> None:
    """Run all steps from `first_step` on; keep checkpoints that both parties make alike."""
    schedule = run.schedule
    progress.expect((schedule.steps - first_step) * schedule.batch_size)
    if not run.store.steps():
        save(half, run, 0)
    for position, batch in Feed(schedule, half.prepare).from_step(first_step):
        with _kept_if_broken_off(half, run, position.step):
            half.step(position, batch)
        progress.advance(schedule.batch_size)
        done = position.step + 1
        ends_epoch = done % schedule.steps_per_epoch == 0
        if ends_epoch:
            run.history.epochs.append(half.end_epoch(position.epoch))
        if ends_epoch or (run.checkpoint_every and done % run.checkpoint_every == 0):
            save(half, run, done)
        run.after_step(done)
    half.finish()


@contextmanager
def _kept_if_broken_off(half: Half[Batch], run: Run, done: int) -> Iterator[None]:
    """If the step ends before it changed anything, the run can go on from there."""
    try:
        yield
    except (TransportError, PeerFailed, KeyboardInterrupt, Interrupted):
        if half.is_consistent:
            with suppress(FloristError):  # what ended the step is the news
                run.store.save_interrupted(_checkpoint(half, run, done))
        raise


def save(half: Half[Batch], run: Run, done: int) -> None:
    """Keep the run as it is after `done` steps.

    Raises:
        Diverged: a weight or moment is not finite; the checkpoints before stay.
    """
    run.store.save(_checkpoint(half, run, done))
    run.on_checkpoint(run.history)


def _checkpoint(half: Half[Batch], run: Run, done: int) -> Checkpoint:
    tensors, facts = half.state()
    if not all(map(all_finite, tensors.values())):
        raise Diverged(
            "training diverged: weights are not finite; make optimiser.learning_rate smaller on "
            "either side, and start anew"
        )
    return Checkpoint(
        step=done,
        tensors=tensors,
        facts={
            "half": facts,
            "seed": run.schedule.seed.hex(),
            "secret": run.draws.secret.hex(),
            "history": run.history.to_json(),
            "identity": run.identity,
        },
    )
