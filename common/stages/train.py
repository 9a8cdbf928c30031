"""The second stage, the same for both roles: from alignments and tables to a trained half."""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from florist.common.audit.audit_folder import AuditFolder
from florist.common.audit.self_audit import AuditPlan
from florist.common.bundle.saving import BundleContents, save_bundle
from florist.common.core.errors import ConfigurationError
from florist.common.core.progress import CountedProgress
from florist.common.core.release import RELEASE
from florist.common.data.feature_store import FeatureStore
from florist.common.data.scan_table import scan_table
from florist.common.psu.alignment import Sizes
from florist.common.reports.training_report import Report, render
from florist.common.session.reconnect import run_with_peer
from florist.common.session.run_directory import RunDirectory
from florist.common.session.stage_state import StageState
from florist.common.stages.training_session import RunSetup, resumable, train_with_peer
from florist.common.storage.files import FolderStorage
from florist.common.synthetic.labels import label_strategy
from florist.common.synthetic.membership import Membership
from florist.common.training.blocks import check_block_size
from florist.common.training.devices import deterministic, pick_device, set_threads
from florist.common.training.event_files import EventFiles
from florist.common.training.half_setup import HalfSetup
from florist.common.training.half_state import tensors_of
from florist.common.training.run_checkpoints import RunCheckpoints
from florist.common.training.run_handshake import run_id
from florist.common.training.training_data import TrainingData, TrainingTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    from florist.common.core.progress import Progress
    from florist.common.data.labels import Labels
    from florist.common.data.preprocessing import Preprocessing
    from florist.common.data.scan_table import TableScan
    from florist.common.session.run_directory import Alignment, AlignmentSummary, TableName
    from florist.common.session.session import Session
    from florist.common.session.stage_state import StageOptions
    from florist.common.settings.agreement import TrainingAgreement
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.role import Role
    from florist.common.stages.training_session import Trained
    from florist.common.training.history import History

log = logging.getLogger("florist.train")

#: Below so many, a warning says how to get more.
FEW_STEPS = 100


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Prepared:
    """A party's data, ready for a model."""

    preprocessing: Preprocessing
    data: TrainingData
    summary: AlignmentSummary
    class_names: tuple[str, ...]


def train(role: Role, config: PartyConfig, options: StageOptions, progress: Progress) -> Path:
    """Train with the peer; save this party's half in the run directory; return where.

    Tables, settings, checkpoints and results in the way are checked before the peer is called.
    """
    runs = RunDirectory(config.run_directory)
    stage = StageState(runs, "train", force=options.force)
    with runs.locked():
        # Two at least: the peer may have been stopped one behind.
        store = RunCheckpoints(runs.checkpoints, config.training.checkpoint_keep)
        stage.refuse_complete()
        check_settings(role, config)
        prepared = prepare(role, config, runs)
        if options.force:
            store.clear()
        half_setup = HalfSetup(
            prepared.data,
            numeric=len(prepared.preprocessing.numeric_columns),
            cardinalities=prepared.preprocessing.cardinalities,
            model=config.model,
            optimiser=config.optimiser,
            processes=config.training.processes,
        )
        run_setup = RunSetup(
            union_sha256=bytes.fromhex(prepared.summary.union_sha256),
            store=store,
            identity={
                "agreement": hashlib.sha256(config.agreement.canonical().encode()).hexdigest(),
                "union": prepared.summary.union_sha256,
                "table": prepared.summary.table_fingerprint,
            },
            seed=config.training.seed,
            on_checkpoint=_watch(config, runs),
            on_start=role.on_run_start,
            audit=AuditPlan(config.audit, AuditFolder(runs.audit)),
        )
        resumable(run_setup)

        def work(session: Session) -> None:
            counted = CountedProgress(progress, session.count_work)
            trained = train_with_peer(
                session, role.name, role.make_half(), half_setup, run_setup, counted
            )
            _save(runs, config, prepared, trained, session, role)

        run_with_peer(role, config, stage, work, plaintext=options.plaintext)
        store.clear()
    return runs.training


def _watch(config: PartyConfig, runs: RunDirectory) -> Callable[[History], None]:
    if not config.training.tensorboard:
        return lambda _: None
    return EventFiles(runs.path / "tensorboard").update


def check_settings(role: Role, config: PartyConfig) -> None:
    """Refuse what cannot be trained by.

    Raises:
        ConfigurationError: names the key and the fix.
    """
    agreement, hidden = config.agreement.training, config.model.hidden
    check_block_size(agreement)
    label_strategy(agreement.labels.strategy, agreement.classes)
    if role.name == "passive" and hidden[-1] != agreement.cut_width:
        raise ConfigurationError(
            f"model.hidden: ends with {hidden[-1]} units, but the agreed cut has "
            f"{agreement.cut_width}; make its last number {agreement.cut_width}"
        )


def prepare(role: Role, config: PartyConfig, runs: RunDirectory) -> Prepared:
    """Read the tables, check that they are those that were aligned, fit the preprocessing.

    Raises:
        ConfigurationError: names the file or key and the fix.
    """
    agreement = config.agreement.training
    with _feature_room(config, runs) as room:
        train, preprocessing, summary, names = _train_table(role, config, runs, room)
        test = (
            _test_table(config, runs, room, preprocessing, names) if agreement.test_table else None
        )
    set_threads(config.training.threads, config.training.processes)
    device = pick_device(config.training.device, config.training.processes)
    if device.type == "cpu":
        deterministic()  # a run that is resumed ends with the same weights to the last bit
    log.info("%s rows, %r, device %s", f"{summary.rows:,}", preprocessing, device)
    _warn_of_few_steps(agreement, summary.union_size)
    return Prepared(
        preprocessing, TrainingData(agreement, device, train, test), summary, names or ()
    )


@contextmanager
def _feature_room(config: PartyConfig, runs: RunDirectory) -> Iterator[FeatureStore]:
    try:
        yield FeatureStore(config.training.table_bytes, FolderStorage(runs.work("train")))
    finally:
        runs.drop_work("train")  # what is in use has no name
        pa.default_memory_pool().release_unused()  # reading tables leaves a lot


def _train_table(
    role: Role, config: PartyConfig, runs: RunDirectory, room: FeatureStore
) -> tuple[TrainingTable, Preprocessing, AlignmentSummary, tuple[str, ...] | None]:
    """The table; what was learned from it; how it is aligned; what its classes are called."""
    alignment = runs.load_alignment("train")
    found = scan_table(
        config.data.train,
        config.agreement.id_normalisation,
        config.data.preprocessing,
        room,
        with_labels=role.name == "active",
    )
    _check_same_table(alignment, found.fingerprint, "train")
    if not alignment.summary.shared_size:
        raise ConfigurationError(
            "data.train: the parties have no person in common, so features and labels never meet "
            "and there is nothing to learn"
        )
    if role.name == "passive" and not _has_features(found.preprocessing):
        raise ConfigurationError(
            "data.train: the passive party needs features; name columns as `numeric` or "
            "`categorical`"
        )
    labels = found.labels.labels(config.agreement.training.classes) if found.labels else None
    parts = _table_parts(alignment, found, room, labels)
    return parts, found.preprocessing, alignment.summary, labels.names if labels else None


def _test_table(
    config: PartyConfig,
    runs: RunDirectory,
    room: FeatureStore,
    preprocessing: Preprocessing,
    names: tuple[str, ...] | None,
) -> TrainingTable:
    """The test table, treated as that of training was; with labels where `names` has classes."""
    agreement, table = config.agreement.training, config.data.test_table
    if table is None:
        raise ConfigurationError("data.test: missing; the agreement says that there is one")
    alignment = runs.load_alignment("test")
    found = scan_table(
        table,
        config.agreement.id_normalisation,
        config.data.preprocessing,
        room,
        known=preprocessing,
        with_labels=names is not None,
    )
    _check_same_table(alignment, found.fingerprint, "test")
    _check_all_shared(alignment)
    labels = found.labels.labels(agreement.classes, names=names) if found.labels else None
    if labels and len(set(labels.classes.tolist())) < agreement.classes:
        raise ConfigurationError(
            "data.test: has no row of some classes, and AUC needs rows of every class; add some"
        )
    return _table_parts(alignment, found, room, labels)


def _table_parts(
    alignment: Alignment, found: TableScan, room: FeatureStore, labels: Labels | None
) -> TrainingTable:
    summary = alignment.summary
    return TrainingTable(
        Membership.of(alignment.rank_of_row, summary.union_size),
        Sizes(summary.own_size, summary.peer_size, summary.union_size),
        room.hold(found) if _has_features(found.preprocessing) else None,
        labels.classes if labels else None,
    )


def _has_features(preprocessing: Preprocessing) -> bool:
    return bool(preprocessing.numeric_columns or preprocessing.categorical_columns)


def _check_same_table(alignment: Alignment, found: str, table: TableName) -> None:
    if alignment.summary.table_fingerprint != found:
        raise ConfigurationError(
            f"data.{table}: its IDs are not those that were aligned; put the table back as it was, "
            "or align again with --force"
        )


def _check_all_shared(alignment: Alignment) -> None:
    summary = alignment.summary
    if not summary.rows == summary.peer_size == summary.union_size:
        raise ConfigurationError(
            "data.test: the two test tables must list the same people, without dummies; here "
            f"{summary.rows:,} and {summary.peer_size:,} make a union of {summary.union_size:,}"
        )


# -- the result ------------------------------------------------------------------------------------


def _save(
    runs: RunDirectory,
    config: PartyConfig,
    prepared: Prepared,
    trained: Trained,
    session: Session,
    role: Role,
) -> None:
    """This party's half with all that is needed to use it, its figures, and a report."""
    history = trained.run.history
    last = history.epochs[-1]
    metrics = {
        name: value
        for name in ("auc", "ace", "log_loss")
        if (value := getattr(last, name)) is not None
    }
    report = Report(
        party=config.party.name,
        peer=config.party.peer,
        role=role.name,
        release=RELEASE,
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        agreement=config.agreement.model_dump(mode="json"),
        union_size=prepared.summary.union_size,
        own_size=prepared.summary.own_size,
        peer_size=prepared.summary.peer_size,
        shared_size=prepared.summary.shared_size,
        history=history,
        metrics=metrics,
        calibration=trained.half.calibration_points(),
        comparison=None,
        model=trained.half.describe(),
        bytes_sent=session.traffic.sent,
        bytes_received=session.traffic.received,
        audit=trained.audit,
    )
    tensors, _ = trained.half.state()
    contents = BundleContents(
        role=role.name,
        run=run_id(trained.run.schedule.seed),
        agreement=config.agreement,
        union_sha256=prepared.summary.union_sha256,
        model=config.model,
        weights=tensors_of("model", tensors),
        preprocessing=prepared.preprocessing,
        calibration=trained.half.calibration(),
        class_names=prepared.class_names,
    )
    with runs.finishing("train") as folder:
        save_bundle(folder, contents, session)
        _write_json(
            folder / "metrics.json",
            {
                "test": metrics,
                "epochs": len(history.epochs),
                "audit": trained.audit.summary() if trained.audit else None,
            },
        )
        _write_json(folder / "history.json", history.to_json())
        (folder / "report.html").write_text(render(report), encoding="utf-8")


def _warn_of_few_steps(agreement: TrainingAgreement, union_size: int) -> None:
    steps = agreement.epochs * -(-union_size // agreement.batch_size)
    if steps < FEW_STEPS:
        log.warning(
            "only %d steps: a model learns little in less than %d; agree on a smaller "
            "agreement.training.batch_size than %d",
            steps,
            FEW_STEPS,
            agreement.batch_size,
        )


def _write_json(path: Path, facts: dict[str, Any]) -> None:
    path.write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n", encoding="utf-8")
