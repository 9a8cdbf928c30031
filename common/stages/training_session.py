"""Training with a peer over a link: open or resume the run, audit it, train to its end.

Needs neither configuration files nor gRPC: the train stage, tests and simulations all use it.
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from florist.common.audit.self_audit import AuditedRun, start_audit
from florist.common.core.allocator import keep_freed_memory
from florist.common.core.errors import ConfigurationError
from florist.common.synthetic.secret_draws import SecretDraws
from florist.common.training.aggregate_run import AGGREGATE, AggregateRecord, AggregateRun
from florist.common.training.history import History
from florist.common.training.loop import Half, Run, train
from florist.common.training.run_handshake import TRAINING, ResumableRun, open_run, run_id
from florist.common.training.run_inputs import InputRecord
from florist.common.training.schedule import Schedule
from florist.common.training.transfers import TRANSFERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.audit.findings import AuditRecord
    from florist.common.audit.self_audit import AuditPlan
    from florist.common.core.progress import Progress
    from florist.common.core.roles import RoleName
    from florist.common.label_aggregate.first_model import Aggregate, FirstModel
    from florist.common.settings.agreement import TrainingAgreement
    from florist.common.training.half_setup import HalfSetup
    from florist.common.training.run_checkpoints import RunCheckpoint, RunCheckpoints
    from florist.common.training.run_handshake import OpenedRun
    from florist.common.training.run_inputs import Inputs
    from florist.common.training.seen_rows import SeenRows
    from florist.common.training.training_journal import TrainingJournal
    from florist.common.transport.channel import Channel, Link


log = logging.getLogger("florist.train")


class OtherInputs(ConfigurationError):  # noqa: N818 - named after the event
    """An interrupted run was started with other settings or tables than it would resume with."""

    advice = (
        "Restore what the message names and start again: the run resumes. Or start over on both "
        "sides with --force."
    )

    @property
    def for_peer(self) -> str:
        return "its settings or data have changed since the run was interrupted"


def _ignore_start(_run: Run, _audit: AuditRecord | None) -> None:
    """The default when nobody observes the run."""


def _ignore_checkpoint(_history: History) -> None:
    """The default when nobody observes the run."""


def _ignore_release(_is_new: bool) -> None:  # noqa: FBT001 - a callback
    """The default when nobody accounts for what is released."""


def _ignore_step(_done: int) -> None:
    """The default when the party does not audit itself."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RunSetup:
    """What a training run is made from, besides the half."""

    union_sha256: bytes
    store: RunCheckpoints
    journal: TrainingJournal
    #: Digests of agreement, union and table; checkpoints with others are refused.
    identity: dict[str, str]
    #: The settings and the content of the tables; a run with others is not resumed.
    inputs: Inputs | None = None
    #: Fixed in experiments; None uses the operating system's randomness.
    seed: int | None = None
    #: Called before the first step, with the record of the self-audit, if there is one.
    on_start: Callable[[Run, AuditRecord | None], None] = _ignore_start
    #: Called after each checkpoint.
    on_checkpoint: Callable[[History], None] = _ignore_checkpoint
    #: Called with what the parties have seen of each other, after each part of a step.
    observe: Callable[[SeenRows], None] | None = None
    #: Called by the passive party with what it learns from the label aggregate.
    observe_aggregate: Callable[[Aggregate, FirstModel], None] | None = None
    #: How we audit what we send; None for no audit.
    audit: AuditPlan | None = None
    #: The files of the label aggregate.
    aggregate: AggregateRecord = AggregateRecord(None)  # noqa: RUF009 - has no state
    #: Called by the active party before it releases a label aggregate, with whether its noise is
    #: new.
    before_aggregate: Callable[[bool], None] = _ignore_release
    #: How often the run may be resumed.
    max_resumptions: int = 64


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Trained:
    """A finished training run."""

    half: Half[Any]
    run: Run
    #: The findings of the self-audit, if there was one.
    audit: AuditRecord | None = None


def train_with_peer(
    link: Link,
    role: RoleName,
    make_half: Callable[[HalfSetup, Channel, Run], Half[Any]],
    half_setup: HalfSetup,
    run_setup: RunSetup,
    progress: Progress,
) -> Trained:
    """Open a run with the peer, or resume one, and train to its end.

    Raises:
        ConfigurationError: the checkpoints belong to another agreement, union or table; or the run
            was resumed too often.
        StoppedByPolicy: the self-audit found more than the configured limit.
    """
    agreement = half_setup.data.agreement
    have = find_resumable(run_setup)
    channel = link.channel(TRAINING)
    draws = SecretDraws.fresh() if run_setup.seed is None else SecretDraws.from_seed(run_setup.seed)
    opened = open_run(
        channel,
        role,
        run_setup.union_sha256,
        have=have,
        nonce=None if run_setup.seed is None else draws.derive("nonce").secret,
    )
    run_name = run_id(opened.seed).hex()[:12]
    log.info("training run %s", run_name, extra={"run": run_name})
    checkpoint = run_setup.store.load(opened.first_step) if opened.resumed else None
    if checkpoint is not None:
        draws = SecretDraws(bytes.fromhex(checkpoint.facts.secret))
    with closing(run_setup.journal):
        _open_journal(run_setup, opened, draws, have.journal_records if have else 0)
        schedule = Schedule(
            opened.seed,
            half_setup.data.train.sizes.union,
            agreement.known_batch_size,
            agreement.epochs,
        )
        audit = start_audit(
            run_setup.audit,
            AuditedRun(
                role,
                half_setup.data,
                schedule,
                opened.first_step,
                run_setup.union_sha256,
                opened.resumed,
            ),
        )
        run = Run(
            schedule=schedule,
            draws=draws,
            history=checkpoint.facts.history if checkpoint else History(),
            store=run_setup.store,
            checkpoint_every=agreement.checkpoint_every,
            identity=run_setup.identity,
            on_checkpoint=run_setup.on_checkpoint,
            after_step=audit.after_step if audit else _ignore_step,
            journal=run_setup.journal,
            inputs=_input_record(run_setup, checkpoint),
            transfers=link.channel(TRANSFERS) if agreement.stand_ins == "oblivious" else None,
            aggregate=None if checkpoint else _aggregate_run(link, run_setup, agreement, progress),
            observe_aggregate=run_setup.observe_aggregate,
            observe=audit.see if audit else run_setup.observe,
        )
        record = audit.record if audit else None
        run_setup.on_start(run, record)
        half = make_half(half_setup, channel, run)
        if checkpoint is None:
            run_setup.store.clear()
        else:
            half.load(dict(checkpoint.tensors), checkpoint.facts.half)
        with (
            closing(half),
            keep_freed_memory(),
            progress.step("training") as step,
        ):
            train(half, run, opened.first_step, step)
    return Trained(half, run, record)


def _input_record(setup: RunSetup, checkpoint: RunCheckpoint | None) -> InputRecord | None:
    """Return the record of what the run was started with, which stays the same."""
    if checkpoint is not None and checkpoint.facts.inputs is not None:
        return checkpoint.facts.inputs
    return None if setup.inputs is None else InputRecord.of(setup.inputs)


def _aggregate_run(
    link: Link, setup: RunSetup, agreement: TrainingAgreement, progress: Progress
) -> AggregateRun | None:
    """Return the means of the label aggregate, if one is agreed."""
    if agreement.known_aggregate_privacy is None:
        return None
    secret, is_new = setup.aggregate.secret()
    if setup.seed is not None:
        secret = SecretDraws.from_seed(setup.seed).derive("aggregate").secret
    return AggregateRun(
        link.channel(AGGREGATE),
        secret,
        setup.union_sha256,
        setup.aggregate,
        partial(setup.before_aggregate, is_new),
        progress,
    )


def _open_journal(setup: RunSetup, opened: OpenedRun, draws: SecretDraws, confirmed: int) -> None:
    run, key = run_id(opened.seed), draws.derive("journal").secret
    if not opened.resumed:
        setup.journal.start(run, key)
        return
    limit = setup.max_resumptions
    resumptions = setup.journal.resume(run, key, opened.first_step, limit, confirmed)
    log.info(
        "resuming from step %d (resumption %d of at most %d)",
        opened.first_step,
        resumptions,
        limit,
    )


def find_resumable(setup: RunSetup) -> ResumableRun | None:
    """Return the run whose checkpoints are on disk, if any.

    Raises:
        OtherInputs: it belongs to another agreement, union or table, or to other settings.
        DamagedFile: all its checkpoints are damaged.
    """
    steps = setup.store.loadable_steps()
    if not steps:
        return None
    newest = setup.store.load(max(steps))
    facts = newest.facts
    others = [what for what, ours in setup.identity.items() if facts.identity.get(what) != ours]
    changes = facts.inputs.differences(setup.inputs) if facts.inputs and setup.inputs else []
    if others or changes:
        kind = f"another {' and another '.join(others)}" if others else "other settings or data"
        named = f": {'; '.join(changes)}" if changes else ""
        raise OtherInputs(
            f"the checkpoints in {setup.store.directory} belong to {kind}{named}; restore it, or "
            "start over with --force"
        )
    return ResumableRun(bytes.fromhex(facts.seed), steps, facts.journal_records)
