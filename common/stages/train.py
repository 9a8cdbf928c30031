"""The second stage: from alignments and tables to a trained half of the model."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from florist.common.audit.audit_folder import AuditFolder
from florist.common.audit.self_audit import AuditPlan
from florist.common.bundle.manifest import read_manifest
from florist.common.bundle.saving import BundleContents, save_bundle
from florist.common.core.errors import ConfigurationError
from florist.common.core.interrupts import allow_interrupts
from florist.common.core.progress import CountedProgress
from florist.common.core.release import RELEASE
from florist.common.data.column_report import INSPECTED_ROWS, inspect_table
from florist.common.evidence.record import AggregateFacts, StageFacts
from florist.common.privacy.ledger import open_ledger
from florist.common.reports.training_report import TrainingReport, render
from florist.common.stages.overlap import check_union_overlap
from florist.common.stages.result_files import json_text, replace_file, write_json
from florist.common.stages.stage import Stage
from florist.common.stages.stage_evidence import model_facts, union_facts
from florist.common.stages.training_session import (
    RunSetup,
    Trained,
    find_resumable,
    train_with_peer,
)
from florist.common.stages.training_tables import PreparedTables, prepare_tables
from florist.common.storage.manifest import write_manifest
from florist.common.synthetic.label_strategies import label_strategy
from florist.common.training.aggregate_run import AggregateRecord
from florist.common.training.event_files import EventFiles
from florist.common.training.half_setup import HalfSetup
from florist.common.training.half_state import tensors_of
from florist.common.training.mlflow_run import MlflowRun, public_parameters
from florist.common.training.row_codec import check_block_size
from florist.common.training.run_checkpoints import RunCheckpoints
from florist.common.training.run_handshake import run_id
from florist.common.training.run_inputs import Inputs, compared_settings
from florist.common.training.training_journal import TrainingJournal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from florist.common.data.column_report import TableReport
    from florist.common.session.run_directory import RunDirectory
    from florist.common.session.session import Session
    from florist.common.settings.agreement import TrainingAgreement
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.role import Role
    from florist.common.training.history import History


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TrainInputs:
    """The data of a run, and the settings that the half and the run are made from."""

    prepared: PreparedTables
    half: HalfSetup
    run: RunSetup


class TrainStage(Stage[TrainInputs, Trained]):
    """Trains the model with the peer and saves this party's half."""

    name = "train"
    #: As written before the session ended.
    _report: TrainingReport | None = None

    @contextmanager
    def open_inputs(self) -> Iterator[TrainInputs]:
        config, runs = self.config, self.runs
        # Keeps at least two: the peer may have been stopped one checkpoint earlier.
        store = RunCheckpoints(runs.checkpoints, config.training.checkpoint_keep)
        journal = TrainingJournal(runs.training_journal)
        check_settings(self.role, config)
        check_union_overlap(config, runs.load_summary())
        prepared = prepare_tables(self.role, config, runs)
        aggregate = AggregateRecord(runs.checkpoints)
        if self.options.force:
            store.clear()
            journal.delete()
            aggregate.delete()
        half = HalfSetup(
            prepared.data,
            numeric=len(prepared.preprocessing.numeric_columns),
            cardinalities=prepared.preprocessing.cardinalities,
            model=config.model,
            optimiser=config.optimiser,
            processes=config.training.processes,
        )
        run = RunSetup(
            union_sha256=bytes.fromhex(prepared.summary.union_sha256),
            store=store,
            journal=journal,
            identity={
                "agreement": hashlib.sha256(config.agreement.canonical().encode()).hexdigest(),
                "union": prepared.summary.union_sha256,
                "table": prepared.summary.table_fingerprint,
                # Sums over another number of processes round differently, so steps that were
                # exchanged before could not be repeated.
                "number of processes (training.processes)": str(config.training.processes),
                # Where the agreement says `auto`, another release may choose other numbers.
                "batch size and learning rate": _steps(prepared.data.agreement),
            },
            inputs=Inputs(compared_settings(config), prepared.contents),
            seed=config.training.seed,
            on_start=self.role.on_run_start,
            on_checkpoint=_event_writer(config, runs),
            audit=AuditPlan(config.audit, AuditFolder(runs.audit)),
            max_resumptions=config.training.max_resumptions,
            aggregate=aggregate,
        )
        resumable = find_resumable(run)
        with self._accounted(run, prepared, resumes=resumable is not None) as accounted:
            yield TrainInputs(prepared, half, accounted)

    @contextmanager
    def _accounted(
        self, run: RunSetup, prepared: PreparedTables, *, resumes: bool
    ) -> Iterator[RunSetup]:
        """Account for the label aggregate that the active party will release, if any.

        A run that resumes has released it already.

        Raises:
            ConfigurationError: the budget does not suffice.
        """
        privacy = prepared.data.agreement.known_aggregate_privacy
        if privacy is None or resumes or not self.role.has_labels:
            yield run
            return
        people = prepared.data.train.rows
        with open_ledger(self.config) as ledger:
            if not (run.aggregate.exists and ledger.is_aggregate_charged()):
                ledger.check_budget(0, privacy)

            def charge(is_new: bool) -> None:  # noqa: FBT001 - a callback
                if is_new or not ledger.is_aggregate_charged():
                    ledger.charge_aggregate(privacy, people)

            yield replace(run, before_aggregate=charge)
            ledger.settle_aggregate("finished")

    def work(self, inputs: TrainInputs, session: Session) -> Trained:
        progress = CountedProgress(self.progress, session.count_work)
        return train_with_peer(
            session, self.role.name, self.role.make_half, inputs.half, inputs.run, progress
        )

    def save(self, inputs: TrainInputs, outcome: Trained, session: Session, folder: Path) -> None:
        tensors, _ = outcome.half.state()
        contents = BundleContents(
            role=self.role.name,
            run=run_id(outcome.run.schedule.seed),
            agreement=self.config.agreement,
            union_sha256=inputs.prepared.summary.union_sha256,
            model=self.config.model,
            weights=tensors_of("model", tensors),
            preprocessing=inputs.prepared.preprocessing,
            calibration=outcome.half.calibration(),
            class_names=inputs.prepared.class_names,
        )
        save_bundle(folder, contents, session)
        allow_interrupts()  # the peer has completed the last step
        history = outcome.run.history
        write_json(
            folder / "metrics.json",
            {
                "test": _test_metrics(history),
                "epochs": len(history.epochs),
                "audit": outcome.audit.summary() if outcome.audit else None,
            },
        )
        write_json(folder / "history.json", history.to_json())
        if outcome.run.inputs is not None:
            outcome.run.inputs.save(folder)

    def facts(self, inputs: TrainInputs, outcome: Trained, folder: Path) -> StageFacts:
        role, found = self.role.name, read_manifest(folder, self.role.name)
        aligned = union_facts(role, inputs.prepared.summary, self.runs.alignment / "train")
        model = model_facts(role, found.manifest.run, found.digest.hex(), found.peer_digest.hex())
        known = inputs.run.aggregate.facts()
        aggregate = None if known is None else AggregateFacts(**asdict(known))
        return StageFacts({"train": aligned}, model, aggregate)

    def report(self, inputs: TrainInputs, outcome: Trained, session: Session, evidence: str) -> str:
        self._report = self._training_report(inputs, outcome, session, evidence)
        return render(self._report)

    def after_peer(self, inputs: TrainInputs, outcome: Trained, folder: Path) -> None:
        # With an evaluation, its report has the comparison; the peer would wait for it here.
        if not self.config.training.worth or self.config.agreement.evaluation.table:
            return
        worth = self.role.worth_of_training(
            outcome.half, inputs.half, inputs.prepared.preprocessing, self.runs, self.progress
        )
        assert self._report is not None
        replace_file(folder / "worth.json", json_text(worth.to_json(), allow_nan=False))
        replace_file(folder / "report.html", render(replace(self._report, worth=worth)))

    def _training_report(
        self, inputs: TrainInputs, outcome: Trained, session: Session, evidence: str
    ) -> TrainingReport:
        config, summary, history = self.config, inputs.prepared.summary, outcome.run.history
        return TrainingReport(
            party=config.party.name,
            peer=config.party.peer,
            role=self.role.name,
            release=RELEASE,
            finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
            agreement=config.agreement.model_copy(
                update={"training": inputs.prepared.data.agreement}
            ).model_dump(mode="json"),
            sizes=summary.sizes,
            privacy=summary.privacy,
            history=history,
            metrics=_test_metrics(history),
            calibration=outcome.half.calibration_points(),
            comparison=None,
            model=outcome.half.describe(),
            bytes_sent=session.traffic.sent,
            bytes_received=session.traffic.received,
            audit=outcome.audit,
            evidence=evidence,
            columns=_column_report(config),
        )

    def clean_up(self, inputs: TrainInputs) -> None:
        inputs.run.store.clear()
        inputs.run.journal.delete()
        inputs.run.aggregate.delete()
        if self.runs.tensorboard.is_dir():
            write_manifest(self.runs.tensorboard)


def check_settings(role: Role, config: PartyConfig) -> None:
    """Check the settings of the model and of the agreement.

    Raises:
        ConfigurationError: names the key and the fix.
    """
    agreement = config.agreement.training
    check_block_size(agreement)
    label_strategy(agreement.labels.strategy, agreement.classes)
    role.check_model(config)


def _column_report(config: PartyConfig) -> TableReport | None:
    try:
        return inspect_table(
            config.data.train,
            config.agreement.id_normalisation,
            config.data.preprocessing,
            max_rows=INSPECTED_ROWS,
        )
    except ConfigurationError:  # the table was removed meanwhile
        return None


def _steps(agreement: TrainingAgreement) -> str:
    return f"{agreement.known_batch_size}, {agreement.known_learning_rate!r}"


def _event_writer(config: PartyConfig, runs: RunDirectory) -> Callable[[History], None]:
    """Return what records the history: event files, MLflow, both or none."""
    records: list[Callable[[History], None]] = []
    if config.training.tensorboard:
        records.append(EventFiles(runs.tensorboard).update)
    if config.training.mlflow is not None:
        training = config.agreement.training
        parameters = public_parameters(
            agreement=training, model=config.model, optimiser=config.optimiser
        )
        uri, party = config.training.mlflow, config.party.name
        records.append(MlflowRun(uri, party, parameters, training.epochs).update)

    def record(history: History) -> None:
        for each in records:
            each(history)

    return record


def _test_metrics(history: History) -> dict[str, float]:
    """Return the figures on the test table after the last epoch, where there are any."""
    last = history.epochs[-1]
    figures = {"auc": last.auc, "ace": last.ace, "log_loss": last.log_loss}
    return {name: value for name, value in figures.items() if value is not None}
