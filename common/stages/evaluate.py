"""The third stage, the same for both roles: how good is the model, without knowing who is shared?

The evaluation tables are aligned by a union of their own, which is kept: a model that is evaluated
again meets the same people with the same stand-ins. Method: docs/concepts/evaluation.md.
"""

from __future__ import annotations

import json
import logging
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from florist.common.bundle.bundle import ActiveBundle
from florist.common.bundle.comparing import compare_bundles
from florist.common.bundle.loading import load_bundle
from florist.common.core.errors import ConfigurationError
from florist.common.core.progress import CountedProgress
from florist.common.core.release import RELEASE
from florist.common.core.stage_timer import StageTimer
from florist.common.data.feature_store import FeatureStore, in_memory
from florist.common.data.id_check import fingerprint
from florist.common.data.scan_table import scan_table
from florist.common.data.table_ids import IdReader
from florist.common.evaluation.evaluation import check_labels
from florist.common.evaluation.parts import EVALUATION, EvaluationParts
from florist.common.evaluation.reserved_rows import most_stand_ins, random_rows
from florist.common.groups import make_group
from florist.common.psu.alignment import Sizes
from florist.common.psu.executor import LocalExecutor
from florist.common.psu.sealed_keys import SecretsInMemory
from florist.common.psu.union_runner import LocalUnionRunner
from florist.common.reports.evaluation_report import EvaluationReport, render
from florist.common.session.mutual_check import mutual_check
from florist.common.session.reconnect import run_with_peer
from florist.common.session.run_directory import Alignment, EvaluationUnion, RunDirectory
from florist.common.session.stage_state import StageState
from florist.common.stages.align import Aligner
from florist.common.storage.files import FolderStorage
from florist.common.storage.id_column import quick_digests
from florist.common.synthetic.features import FEATURE_STRATEGIES
from florist.common.synthetic.membership import Membership
from florist.common.synthetic.secret_draws import SecretDraws
from florist.common.training.devices import pick_device, set_threads
from florist.common.transport.messages import EvaluationOpening

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from florist.common.bundle.bundle import Bundle
    from florist.common.core.progress import Progress
    from florist.common.data.features import Features
    from florist.common.evaluation.evaluation import Evaluation
    from florist.common.groups.group import Group
    from florist.common.session.session import Session
    from florist.common.session.stage_state import StageOptions
    from florist.common.settings.agreement import TrainingAgreement
    from florist.common.settings.data import Table
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.role import Role
    from florist.common.storage.id_column import IdColumn
    from florist.common.transport.channel import Channel

log = logging.getLogger("florist.evaluate")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Table:
    """The evaluation table as the model takes it."""

    ids: IdColumn
    fingerprint: str
    features: Features | None
    labels: npt.NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(self.ids)


def evaluate(role: Role, config: PartyConfig, options: StageOptions, progress: Progress) -> Path:
    """Evaluate the trained model with the peer; save what was found; return where.

    Files, settings and results in the way are checked before the peer is called.
    """
    runs = RunDirectory(config.run_directory)
    stage = StageState(runs, "evaluate", force=options.force)
    with runs.locked():
        stage.refuse_complete()
        settings = _table_settings(config)
        set_threads(config.training.threads)
        bundle = load_bundle(runs, role.name, pick_device(config.training.device))
        check_strategy(bundle.agreement.training)
        table = _read(config, settings, bundle)
        kept = runs.load_evaluation_union()
        if kept is not None:
            _check_same_table(kept.alignment, table, runs)
        people = _people(role, config, table)
        group = make_group(config.agreement.group, config.compute.engine, config.compute.threads)

        def work(session: Session) -> None:
            compare_bundles(session, bundle)
            channel = session.channel(EVALUATION)
            meeting = _Meeting(role, config, runs, group, session, channel, progress, people)
            union = _common_union(meeting, table)
            runs.begin_evaluation()
            parts = _parts(config, union, table)
            counted = CountedProgress(progress, session.count_work)
            with counted.step("evaluating") as step:
                found = role.make_evaluator()(bundle, parts, channel, step)
            _save(runs, config, role, bundle, union.alignment, found, session)

        with closing(group):
            run_with_peer(role, config, stage, work, plaintext=options.plaintext)
    return runs.evaluation


# --- before the peer is called ---


def check_strategy(agreement: TrainingAgreement) -> None:
    """Refuse a model whose feature strategy leaves nothing to estimate from.

    Raises:
        ConfigurationError: says why.
    """
    strategy = agreement.features.strategy
    if not FEATURE_STRATEGIES[strategy].looks_real:
        good = [name for name in FEATURE_STRATEGIES.names if FEATURE_STRATEGIES[name].looks_real]
        raise ConfigurationError(
            f"agreement.training.features.strategy: a model trained with {strategy} cannot be "
            "evaluated privately. The labels of people without real features are independent of "
            "what it predicts for them, but these predictions come from made-up embeddings and are "
            "not distributed as those of real people, so that the two cannot be told from their "
            f"mixture; train with {' or '.join(good)}"
        )


def _table_settings(config: PartyConfig) -> Table:
    if not config.agreement.evaluation.table:
        raise ConfigurationError(
            "agreement.evaluation.table: is false, so there is nothing to evaluate on; make it "
            "true on both sides, and name your table at data.evaluation"
        )
    if config.data.evaluation_table is None:
        raise ConfigurationError(
            "data.evaluation: missing; the agreement says that both parties have an evaluation "
            "table (agreement.evaluation.table)"
        )
    return config.data.evaluation_table


def _read(config: PartyConfig, settings: Table, bundle: Bundle) -> _Table:
    """The evaluation table, treated as that of training was.

    Raises:
        ConfigurationError: names the file or key and the fix.
    """
    preprocessing, classes = bundle.preprocessing, bundle.agreement.training.classes
    found = scan_table(
        settings,
        config.agreement.id_normalisation,
        config.data.preprocessing,
        FeatureStore(config.training.table_bytes, FolderStorage(config.run_directory)),
        known=preprocessing,
        with_labels=isinstance(bundle, ActiveBundle),
        with_ids=True,
    )
    labels = None
    if isinstance(bundle, ActiveBundle):
        assert found.labels is not None
        labels = found.labels.labels(classes, names=bundle.class_names).classes
        check_labels(labels, classes)
    assert found.ids is not None
    _warn_of_training_people(config, found.ids)
    log.info("%s rows read from the evaluation table, %r", f"{found.rows:,}", bundle)
    # In memory: from files, the time of a part would tell which of its rows were read before.
    features = in_memory(found) if any(preprocessing.sizes) else None
    return _Table(found.ids, found.fingerprint, features, labels)


def _warn_of_training_people(config: PartyConfig, ids: IdColumn) -> None:
    """The model knows them, so that it looks better than it is."""
    if not config.data.train.path.exists():
        return
    ours = np.sort(quick_digests(ids))
    is_known = np.zeros(len(ours), dtype=bool)
    for part in IdReader(config.data.train, config.agreement.id_normalisation).read():
        digests = quick_digests(part)
        place = np.searchsorted(ours, digests)
        is_known[place[ours.take(place, mode="clip") == digests]] = True
    if known := int(is_known.sum()):
        log.warning(
            "%s of our %s people to evaluate on are in our training table too: the estimate is "
            "too good to be true; take them out of data.evaluation",
            f"{known:,}",
            f"{len(ids):,}",
        )


def _check_same_table(alignment: Alignment, table: _Table, runs: RunDirectory) -> None:
    if alignment.summary.table_fingerprint != table.fingerprint:
        raise ConfigurationError(
            "data.evaluation: its IDs are not those that were aligned for an earlier evaluation; "
            f"put the table back as it was, or name another run_directory. {_anew(runs)}"
        )


def _anew(runs: RunDirectory) -> str:
    return (
        f"To align anew, both delete {runs.evaluation_alignment.name} from their run directories: "
        "people who are evaluated again then have other stand-ins, and by comparing both times "
        "the active party can find out who is shared"
    )


def _people(role: Role, config: PartyConfig, table: _Table) -> int:
    """As active party: the people we would have scored; else those we can stand in for.

    Raises:
        ConfigurationError: the table is too small.
    """
    if role.name == "active":
        return len(table) + config.alignment.dummies
    if config.agreement.evaluation.stand_ins == "once":
        return most_stand_ins(len(table), config.alignment.dummies)
    return 0


# --- with the peer ---


@dataclass(frozen=True, slots=True)
class _Meeting:
    """A session, and whose it is."""

    role: Role
    config: PartyConfig
    runs: RunDirectory
    group: Group
    session: Session
    channel: Channel
    progress: Progress
    people: int


def _common_union(meeting: _Meeting, table: _Table) -> EvaluationUnion:
    """The union that both have, or a new one if it is not too late for that.

    Raises:
        ConfigurationError: it is too late; both parties raise it.
    """
    runs = meeting.runs
    kept = runs.load_evaluation_union()
    ours = _opening(meeting, kept)
    theirs = _open(meeting, ours, kept)
    if kept is None or theirs.union_sha256 != ours.union_sha256:
        kept = _align(meeting, table, _rows_in_union(meeting, table, ours, theirs))
        runs.save_evaluation_union(kept)
        # Each is told that the other has saved it, before anything is told of the people in it.
        _open(meeting, _opening(meeting, kept), kept)
    return kept


def _opening(meeting: _Meeting, kept: EvaluationUnion | None) -> EvaluationOpening:
    digest = bytes.fromhex(kept.alignment.summary.union_sha256) if kept else b""
    return EvaluationOpening(digest, meeting.people, meeting.runs.has_begun_evaluation)


def _open(
    meeting: _Meeting, ours: EvaluationOpening, kept: EvaluationUnion | None
) -> EvaluationOpening:
    """Compare unions; other ones will do as long as nothing was told of the people in them.

    Raises:
        ConfigurationError: they are different, and in use, or nobody is shared; both parties raise
            it.
    """
    runs = meeting.runs

    def check(theirs: EvaluationOpening) -> None:
        if ours.union_sha256 == theirs.union_sha256:
            if kept is not None:
                _check_shared(kept.alignment)
        elif ours.started or theirs.started:
            raise ConfigurationError(
                "the two parties do not hold the same alignment of their evaluation tables: "
                f"restore {runs.evaluation_alignment}, here or there. {_anew(runs)}"
            )

    return mutual_check(meeting.channel, ours, check)


def _rows_in_union(
    meeting: _Meeting, table: _Table, ours: EvaluationOpening, theirs: EvaluationOpening
) -> int:
    """How many of our people are to be in the union; the others are kept out.

    Raises:
        ConfigurationError: too few are left.
    """
    config = meeting.config
    if config.agreement.evaluation.stand_ins == "repeated":
        return len(table)
    if meeting.role.name == "passive":
        return len(table) - min(ours.people, theirs.people)
    allowed = theirs.people - config.alignment.dummies
    if allowed < 4:
        raise ConfigurationError(
            f"the peer's evaluation table can stand in for {theirs.people:,} people only, and we "
            f"have {config.alignment.dummies:,} dummies (alignment.dummies): it takes a larger "
            "table there, fewer dummies here, or agreement.evaluation.stand_ins: repeated"
        )
    return min(len(table), allowed)


def _align(meeting: _Meeting, table: _Table, count: int) -> EvaluationUnion:
    """A union with `count` of our people, and the secret by which they were chosen."""
    config = meeting.config
    seed = config.training.seed
    draws = SecretDraws.fresh()
    if seed is not None:
        draws = SecretDraws.from_seed(seed).derive("evaluation")
    rows = random_rows(len(table), count, draws)
    log.info("%s of our %s people to evaluate on take part", f"{count:,}", f"{len(table):,}")
    aligner = Aligner(
        meeting.role,
        config,
        LocalUnionRunner(LocalExecutor(meeting.group)),
        meeting.session,
        meeting.progress,
        StageTimer(),
        meeting.runs.work("evaluate"),
        SecretsInMemory(),
    )
    people = table.ids.take(rows)
    some = aligner.align("evaluation", people, fingerprint(people))
    ranks = np.full(len(table), -1, dtype=np.int64)
    ranks[rows] = some.rank_of_row
    meeting.runs.drop_work("evaluate")  # another attempt has other people take part
    summary = replace(some.summary, rows=len(table), table_fingerprint=table.fingerprint)
    return EvaluationUnion(Alignment(summary, ranks), draws.secret)


def _check_shared(alignment: Alignment) -> None:
    """Both know the sizes, so both refuse."""
    if not alignment.summary.shared_size:
        raise ConfigurationError(
            "data.evaluation: the parties' people to evaluate on have nobody in common, so no "
            "prediction is of real features and an estimate is impossible"
        )


def _parts(config: PartyConfig, union: EvaluationUnion, table: _Table) -> EvaluationParts:
    summary, ranks = union.alignment.summary, union.alignment.rank_of_row
    row_of_rank = np.full(summary.union_size, -1, dtype=np.int64)
    in_union = np.flatnonzero(ranks >= 0)
    row_of_rank[ranks[in_union]] = in_union
    return EvaluationParts(
        agreement=config.agreement.evaluation,
        membership=Membership(row_of_rank),
        sizes=Sizes(summary.own_size, summary.peer_size, summary.union_size),
        kept_out=np.flatnonzero(ranks < 0),
        features=table.features,
        labels=table.labels,
        draws=SecretDraws(union.secret),
    )


# --- the result ---


def _save(
    runs: RunDirectory,
    config: PartyConfig,
    role: Role,
    bundle: Bundle,
    alignment: Alignment,
    found: Evaluation | None,
    session: Session,
) -> None:
    summary = alignment.summary
    report = EvaluationReport(
        party=config.party.name,
        peer=config.party.peer,
        role=role.name,
        release=RELEASE,
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        run=bundle.run.hex(),
        agreement=config.agreement.evaluation.model_dump(mode="json"),
        table_rows=summary.rows,
        own_size=summary.own_size,
        peer_size=summary.peer_size,
        union_size=summary.union_size,
        shared_size=summary.shared_size,
        found=found,
        own_features=isinstance(bundle, ActiveBundle) and bundle.has_features,
        bytes_sent=session.traffic.sent,
        bytes_received=session.traffic.received,
    )
    if report.warning:
        log.warning("%s", report.warning)
    with runs.finishing("evaluate") as folder:
        _write_json(folder / "evaluation.json", report.to_json())
        (folder / "report.html").write_text(render(report), encoding="utf-8")


def _write_json(path: Path, facts: dict[str, Any]) -> None:
    text = json.dumps(facts, indent=2, sort_keys=True, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
