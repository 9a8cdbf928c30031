"""The training loop, the same for both parties. Each party's `Half` implements the step."""

from __future__ import annotations

from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from florist.common.core.errors import FloristError, Interrupted, PeerFailed, TransportError
from florist.common.core.interrupts import allow_interrupts, postpone_interrupts
from florist.common.training.feed import Feed
from florist.common.training.row_codec import Diverged, all_finite
from florist.common.training.run_checkpoints import RunCheckpoint
from florist.common.training.run_facts import RunFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from florist.common.core.progress import StepProgress
    from florist.common.label_aggregate.first_model import Aggregate, FirstModel
    from florist.common.synthetic.calibration import Calibration
    from florist.common.synthetic.secret_draws import SecretDraws
    from florist.common.training.aggregate_run import AggregateRun
    from florist.common.training.feed import Position
    from florist.common.training.history import CalibrationPoints, EpochFigures, History
    from florist.common.training.run_checkpoints import RunCheckpoints
    from florist.common.training.run_facts import HalfFacts
    from florist.common.training.run_inputs import InputRecord
    from florist.common.training.schedule import Schedule
    from florist.common.training.seen_rows import SeenRows
    from florist.common.training.training_journal import TrainingJournal
    from florist.common.transport.channel import Channel

Batch = TypeVar("Batch")

#: Seconds that a stop signal waits for a step at which the peer stops too. A step that takes longer
#: is interrupted, and the run resumes from a checkpoint that both parties have.
STEP_GRACE = 10.0


class Half(Protocol[Batch]):
    """A party's half of the split model in training."""

    def prepare(self, position: Position, ranks: npt.NDArray[np.int64]) -> Batch:
        """Collect this party's data of a batch; called one batch ahead, in a background thread."""
        ...

    @property
    def is_consistent(self) -> bool:
        """Whether the state is that between two steps, even if a step is in progress."""
        ...

    def step(self, position: Position, batch: Batch) -> None:
        """Run forward, backward and update together with the peer."""
        ...

    def between_steps(self) -> None:
        """Stop here if the operator has stopped this party, and the peer will stop here too."""
        ...

    def end_epoch(self, epoch: int) -> EpochFigures:
        """Return the epoch's loss and, if there is a test table, the metrics on it."""
        ...

    def state(self) -> tuple[dict[str, Tensor], HalfFacts]:
        """Return the tensors and facts from which `load` resumes, bit for bit."""
        ...

    def load(self, tensors: dict[str, Tensor], facts: HalfFacts) -> None:
        """Restore a state that `state` returned."""
        ...

    def finish(self) -> None:
        """Set the final weights; called once, after the last step."""
        ...

    def close(self) -> None:
        """Release resources; always called at the end. `state` and `describe` still work."""
        ...

    def describe(self) -> dict[str, str]:
        """Return a description of each model, for reports."""
        ...

    def calibration(self) -> Calibration | None:
        """Return how logits become predictions; at the active party only."""
        ...

    def calibration_points(self) -> CalibrationPoints | None:
        """Return the last epoch's calibration on the test table, if this party knows it."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A run in progress: its schedule, secret draws, history and checkpoints."""

    schedule: Schedule
    draws: SecretDraws
    history: History
    store: RunCheckpoints
    #: Steps between checkpoints within an epoch; 0 for none.
    checkpoint_every: int
    #: Digests of the agreement, union and table; stored in each checkpoint.
    identity: dict[str, str]
    #: Called with the history after each checkpoint.
    on_checkpoint: Callable[[History], None]
    #: Called with the number of completed steps after each step and its checkpoint; may raise to
    #: stop the run.
    after_step: Callable[[int], None]
    #: Digests of what was received and sent, so that nothing else is answered after a resumption.
    journal: TrainingJournal
    #: What the run was started with; None in simulations.
    inputs: InputRecord | None = None
    #: The channel of oblivious transfers, if the agreement needs them.
    transfers: Channel | None = None
    #: The means of a label aggregate; None without one, and in a run that is resumed.
    aggregate: AggregateRun | None = None
    #: Called by the passive party with what it learns from the label aggregate; None if nobody
    #: asks.
    observe_aggregate: Callable[[Aggregate, FirstModel], None] | None = None
    #: Called with the rows of each part of a step that the peer has seen; None if nobody asks.
    observe: Callable[[SeenRows], None] | None = None


def train(half: Half[Batch], run: Run, first_step: int, progress: StepProgress) -> None:
    """Run all steps from `first_step` on; both parties write checkpoints at the same steps.

    A stop signal takes effect at a step at which the peer stops as well, so that both resume there.
    After the last step it is postponed until `allow_interrupts` is called.
    """
    schedule = run.schedule
    progress.expect((schedule.steps - first_step) * schedule.batch_size)
    if not run.store.steps():
        save(half, run, 0)
    with (
        closing(Feed(schedule, half.prepare).from_step(first_step)) as batches,
        _stopping_between_steps(),
    ):
        for done in range(first_step + 1, schedule.steps + 1):
            with _saved_if_interrupted(half, run, done - 1):
                position, batch = next(batches)
                half.step(position, batch)
            if done % schedule.steps_per_epoch == 0:
                run.history.epochs.append(half.end_epoch(position.epoch))
                save(half, run, done)
            elif run.checkpoint_every and done % run.checkpoint_every == 0:
                save(half, run, done)
            with _saved_if_interrupted(half, run, done):
                progress.advance(schedule.batch_size)
                run.after_step(done)
                half.between_steps()
    half.finish()


@contextmanager
def _stopping_between_steps() -> Iterator[None]:
    """Postpone a stop signal to a place at which the halves say that both parties can stop.

    After the last step, that is when the peer has sent something further: the caller allows it.
    """
    postpone_interrupts(STEP_GRACE)
    try:
        yield
    except BaseException:
        allow_interrupts()
        raise


@contextmanager
def _saved_if_interrupted(half: Half[Batch], run: Run, done: int) -> Iterator[None]:
    """Save a checkpoint if the block is interrupted while the state is that after `done` steps."""
    try:
        yield
    except (TransportError, PeerFailed, KeyboardInterrupt, Interrupted):
        if half.is_consistent:
            with suppress(FloristError):  # the interruption is the error to report
                run.store.save_interrupted(_checkpoint(half, run, done))
        raise


def save(half: Half[Batch], run: Run, done: int) -> None:
    """Write a checkpoint of the run after `done` steps.

    Raises:
        Diverged: a weight or moment is not finite; earlier checkpoints remain.
    """
    run.store.save(_checkpoint(half, run, done))
    run.on_checkpoint(run.history)


def _checkpoint(half: Half[Batch], run: Run, done: int) -> RunCheckpoint:
    tensors, facts = half.state()
    if not all(map(all_finite, tensors.values())):
        raise Diverged(
            "training diverged (NaN or infinity in the weights); reduce optimiser.learning_rate on "
            "either side and start over"
        )
    return RunCheckpoint(
        step=done,
        tensors=tensors,
        facts=RunFacts(
            half=facts,
            seed=run.schedule.seed.hex(),
            secret=run.draws.secret.hex(),
            history=run.history,
            identity=run.identity,
            inputs=run.inputs,
            journal_records=run.journal.confirmed,
        ),
    )
