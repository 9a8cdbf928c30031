"""A grid of trials: every method with every ratio, seed and hyper-parameter, on all cores.

Each finished trial is saved in its own file, named by a digest of everything that determines its
results. A grid that was interrupted or extended therefore runs only the missing trials.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic import field_validator as check_field

from florist.common.core.errors import ConfigurationError, FloristError
from florist.common.core.interrupts import uninterrupted
from florist.common.settings.agreement import BatchSize, LearningRate
from florist.common.settings.data import PreprocessingSettings
from florist.common.settings.section import Section
from florist.common.settings.training import Model
from florist.experiments.methods import METHODS, Method
from florist.experiments.people import PeopleSettings
from florist.experiments.people_sources import load_any_people
from florist.experiments.trial import Trial, TrialAudit, TrialResult, run_trial, trial_digest
from florist.experiments.trial_results import ResultStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from florist.common.core.progress import Progress
    from florist.experiments.people import People

    #: Runs one trial on these people, with this audit.
    RunTrial = Callable[[People, Trial, TrialAudit | None], TrialResult]

log = logging.getLogger("florist.simulate")

Numbers = Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)]
BatchSizes = Annotated[list[BatchSize], Field(min_length=1)]
Rates = Annotated[list[LearningRate], Field(min_length=1)]


class MethodSettings(Section):
    """A known method by its name, or a new one: a known method with changes."""

    name: str = Field(min_length=1, description="Name of a known method, or of a new one.")
    base: str | None = Field(default=None, description="The known method that a new one changes.")
    agreement: dict[str, object] = Field(
        default={}, description="Keys of agreement.training to change."
    )
    epochs: Numbers | None = Field(default=None, description="Overrides the grid's value.")
    batch_size: BatchSizes | None = Field(default=None, description="Overrides the grid's value.")
    learning_rate: Rates | None = Field(default=None, description="Overrides the grid's value.")

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _makes_a_method(self) -> Self:
        if self.base is None and self.agreement:
            raise ValueError(
                "to change the agreement, give a new `name`, and a known method as `base`"
            )
        if self.base is not None and self.name in METHODS.names:
            raise ValueError(f"{self.name!r} is a known method; choose a new `name`")
        try:
            self.method  # noqa: B018 - making it validates it
        except ConfigurationError as error:
            raise ValueError(error.reason) from None
        except ValidationError as error:
            raise ValueError(str(error.errors()[0]["ctx"]["error"])) from None
        return self

    @property
    def method(self) -> Method:
        if self.base is None:
            return METHODS[self.name]
        return METHODS[self.base].but(self.name, **self.agreement)


class Ratio(Section):
    """The fraction of people that each party lacks."""

    alpha: float = Field(ge=0, lt=1, description="Fraction of people without features.")
    beta: float = Field(ge=0, lt=1, description="Fraction of people without a label.")

    @model_validator(mode="before")
    @classmethod
    def _alike(cls, value: object) -> object:
        return {"alpha": value, "beta": value} if isinstance(value, int | float) else value


class GridSettings(Section):
    """The settings of a grid: all combinations of methods, ratios, seeds and hyper-parameters."""

    data: PeopleSettings = Field(description="The people.")
    methods: list[MethodSettings] = Field(
        min_length=1,
        description="Methods to compare: names, or new methods with `name` and `base`.",
    )
    ratios: list[Ratio] = Field(
        min_length=1,
        description="Fractions of people lacked: `alpha` and `beta`, or one number for both.",
    )
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] = Field(
        default=[0], description="Each seed repeats all trials with other random choices."
    )
    epochs: Numbers = Field(default=[1], description="Numbers of passes over the union.")
    batch_size: BatchSizes = Field(
        default=["auto"], description="Numbers of UIDs per step; auto: by the size of the union."
    )
    learning_rate: Rates = Field(
        default=["auto"],
        description="Highest learning rates of both parties; auto: by the number of steps.",
    )
    lacked_by_both: Literal["absent", "dummies"] = Field(
        default="absent",
        description="People whom both lack: absent, as in a union, or dummies, as in the paper.",
    )
    active_dummies: int = Field(
        default=0,
        ge=0,
        description="Further dummies of the active party, which it uses as known stand-ins.",
    )
    passive_dummies: int = Field(
        default=0, ge=0, description="Dummies of the passive party, likewise."
    )
    preprocessing: PreprocessingSettings = Field(
        default=PreprocessingSettings(min_count=10, scaling="log"),
        description="Preprocessing of the features.",
    )
    model: Model = Field(default=Model(), description="The model of both parties.")
    audit: TrialAudit | None = Field(
        default=TrialAudit(), description="The attacks to make; null: none."
    )
    choose_by: Literal["auc", "ace", "log_loss"] = Field(
        default="auc",
        description="Validation metric that chooses hyper-parameters: auc, ace or log_loss.",
    )

    @check_field("methods")
    @classmethod
    def _have_names(cls, methods: list[MethodSettings]) -> list[MethodSettings]:
        names = [method.name for method in methods]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"has {twice[0]!r} twice; remove one")
        return methods

    def trials(self) -> list[Trial]:
        """Return all trials, seed by seed, so that an interrupted grid has complete comparisons."""
        return [
            Trial(
                method=settings.method,
                # This baseline lacks nobody, whatever the ratio.
                alpha=0.0 if settings.method.who == "everybody" else ratio.alpha,
                beta=0.0 if settings.method.who == "everybody" else ratio.beta,
                seed=seed,
                epochs=epochs,
                batch_size=batch_size,
                learning_rate=learning_rate,
                lacked_by_both=self.lacked_by_both,
                active_dummies=self.active_dummies,
                passive_dummies=self.passive_dummies,
                min_count=self.preprocessing.min_count,
                scaling=self.preprocessing.scaling,
                bins=self.preprocessing.bins,
                model=self.model,
            )
            for seed, settings in product(self.seeds, self.methods)
            for ratio in (self.ratios[:1] if settings.method.who == "everybody" else self.ratios)
            for epochs, batch_size, learning_rate in product(
                settings.epochs or self.epochs,
                settings.batch_size or self.batch_size,
                settings.learning_rate or self.learning_rate,
            )
        ]


@dataclass(frozen=True, slots=True)
class Failure:
    """A trial that failed, and why."""

    trial: Trial
    reason: str

    def __str__(self) -> str:
        return f"{described(self.trial)}: {self.reason}"


class TrialsFailed(FloristError):  # noqa: N818 - it reads as what happened
    """Some trials of a simulation failed. The results of the others are kept."""

    exit_code = 1
    origin = "simulation"
    advice = "Fix the cause and run the same grid again: only the missing trials are run."

    def __init__(self, failures: Sequence[Failure]) -> None:
        self.failures = tuple(failures)
        super().__init__(f"{len(failures)} trials failed: " + "; ".join(map(str, failures)))


def described(trial: Trial) -> str:
    """Describe a trial in one line."""
    return (
        f"{trial.method.name}, alpha {trial.alpha:g}, beta {trial.beta:g}, {trial.epochs} epochs, "
        f"batch {trial.batch_size}, rate {trial.learning_rate}, seed {trial.seed}"
    )


def run_trials(
    data: PeopleSettings,
    trials: Sequence[Trial],
    audit: TrialAudit | None,
    folder: Path,
    jobs: int,
    progress: Progress,
    run: RunTrial = run_trial,
) -> tuple[list[TrialResult], list[Failure]]:
    """Run the trials that `folder` does not hold yet.

    Args:
        data: the people of all trials.
        trials: the trials, without duplicates.
        audit: None skips the attacks.
        folder: where results are kept.
        jobs: number of processes; 1 runs all trials in this process.
        progress: counts trials.
        run: runs one trial; with several processes it must be picklable.

    Returns:
        All results, in the order of `trials`, and the failures.

    Raises:
        ConfigurationError: the data cannot be used.
    """
    store = ResultStore(folder)
    people_digest = data.digest()
    digests = [trial_digest(people_digest, trial, audit) for trial in trials]
    todo = [
        _Job(trial, audit, digest, folder, run)
        for trial, digest in zip(trials, digests, strict=True)
        if store.load(digest) is None
    ]
    log.info("%d trials, %d of them finished already", len(trials), len(trials) - len(todo))
    failures: list[Failure] = []
    if todo:
        people = load_any_people(
            data
        )  # also with several processes, so that unusable data fail here
        with progress.step("trials") as step:
            step.expect(len(todo))
            for failure in _here(people, todo) if jobs == 1 else _in_processes(data, todo, jobs):
                if failure is not None:
                    log.error("%s", failure)
                    failures.append(failure)
                step.advance(1)
    found = (store.load(digest) for digest in digests)
    return [result for result in found if result is not None], failures


@dataclass(frozen=True, slots=True)
class _Job:
    trial: Trial
    audit: TrialAudit | None
    digest: str
    folder: Path
    run: RunTrial

    def __call__(self, people: People) -> Failure | None:
        """Run the trial and save its result; an error ends this trial only."""
        try:
            ResultStore(self.folder).save(self.digest, self.run(people, self.trial, self.audit))
        except FloristError as error:
            return Failure(self.trial, error.reason)
        except Exception as error:  # noqa: BLE001 - the other trials continue; the failure is reported
            return Failure(self.trial, f"{type(error).__name__}: {error}")
        return None


def _here(people: People, jobs: Sequence[_Job]) -> Iterator[Failure | None]:
    return (job(people) for job in jobs)


def _in_processes(
    data: PeopleSettings, jobs: Sequence[_Job], processes: int
) -> Iterator[Failure | None]:
    """Run the jobs in other processes; yield their outcomes in the order in which they end."""
    with ProcessPoolExecutor(
        min(processes, len(jobs)),
        # Not forked: threads of torch and Arrow do not survive a fork.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_set_up_worker,
        initargs=(data,),
    ) as pool:
        try:
            with uninterrupted(), _interrupts_blocked():
                waiting = {pool.submit(_work, job): job for job in jobs}
            while waiting:
                for done in wait(waiting, return_when=FIRST_COMPLETED).done:
                    job = waiting.pop(done)
                    error = done.exception()
                    yield (
                        done.result()
                        if error is None
                        else Failure(
                            job.trial, f"its process ended ({error}); is there enough memory?"
                        )
                    )
        except BaseException:
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Processes that start here do not see Ctrl-C before they are ready for it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


#: The people of a worker process.
_people: People


def _set_up_worker(data: PeopleSettings) -> None:
    global _people  # noqa: PLW0603 - loaded once per process, not once per trial
    # Ctrl-C reaches all processes: each stops its trial.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    Thread(target=_end_with_parent, daemon=True).start()
    _people = load_any_people(data)


def _end_with_parent() -> None:
    """End this worker when its parent is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _work(job: _Job) -> Failure | None:
    return job(_people)
