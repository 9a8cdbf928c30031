"""The third stage: estimate how good the model is without revealing who is shared.

The evaluation tables are aligned by a union of their own. Method: docs/concepts/evaluation.md.
"""

from __future__ import annotations

import logging
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from florist.common.bundle.bundle import ActiveBundle
from florist.common.bundle.comparing import compare_bundles
from florist.common.bundle.loading import load_bundle
from florist.common.core.errors import ConfigurationError
from florist.common.core.progress import CountedProgress
from florist.common.core.release import RELEASE
from florist.common.evaluation.evaluation_data import EVALUATION, EvaluationData
from florist.common.evaluation.evaluation_journal import EvaluationJournal
from florist.common.evidence.record import StageFacts
from florist.common.groups import make_group
from florist.common.privacy.ledger import open_ledger
from florist.common.reports.evaluation_report import EvaluationReport, render
from florist.common.stages.evaluation_checks import (
    PeopleAnnouncement,
    check_kept_union,
    releases,
    table_settings,
)
from florist.common.stages.evaluation_table import read_evaluation_table
from florist.common.stages.evaluation_union import UnionAgreement
from florist.common.stages.result_files import json_text, replace_file, write_json
from florist.common.stages.stage import Stage
from florist.common.stages.stage_evidence import model_facts, union_facts
from florist.common.synthetic.feature_strategies import FEATURE_STRATEGIES
from florist.common.synthetic.membership import Membership
from florist.common.synthetic.secret_draws import SecretDraws
from florist.common.training.devices import pick_device, set_threads
from florist.common.training.run_inputs import InputRecord, Inputs, load_record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pydantic import JsonValue

    from florist.common.bundle.bundle import Bundle
    from florist.common.evaluation.worth import Evaluated
    from florist.common.groups.group import Group
    from florist.common.privacy.ledger import Ledger
    from florist.common.session.alignment_result import EvaluationUnion
    from florist.common.session.run_directory import RunDirectory
    from florist.common.session.session import Session
    from florist.common.settings.agreement import TrainingAgreement
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.evaluation_table import EvaluationTable

log = logging.getLogger("florist.evaluate")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EvaluateInputs:
    """The model and the table to evaluate it on."""

    bundle: Bundle
    table: EvaluationTable
    announcement: PeopleAnnouncement
    group: Group
    ledger: Ledger


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EvaluateOutcome:
    """What is known when the last message was sent, and how to find out the rest."""

    report: EvaluationReport
    evaluated: Evaluated


class EvaluateStage(Stage[EvaluateInputs, EvaluateOutcome]):
    """Evaluates the trained model with the peer."""

    name = "evaluate"
    #: A sentence on who has signed the evidence, once it is known.
    _evidence = ""

    @contextmanager
    def open_inputs(self) -> Iterator[EvaluateInputs]:
        config = self.config
        settings = table_settings(config)
        set_threads(config.training.threads)
        bundle = load_bundle(self.runs, self.role.name, pick_device(config.training.device))
        check_strategy(bundle.agreement.training)
        table = read_evaluation_table(config, settings, bundle)
        check_kept_union(self.runs, table.fingerprint, config.agreement.evaluation)
        check_kept_table(self.runs, table, bundle)
        compute = config.compute
        with open_ledger(config) as ledger:
            announcement = PeopleAnnouncement(
                self.role,
                config,
                len(table),
                partial(ledger.charge, "evaluation", announced="people"),
            )
            announcement.check()
            ledger.prepare(
                {"evaluation": table.ids}, accept_difference=self.options.accept_difference
            )
            if self.runs.load_evaluation_union() is None:
                ledger.check_budget(releases(config))
            with closing(
                make_group(config.agreement.group, compute.engine, compute.threads)
            ) as group:
                yield EvaluateInputs(bundle, table, announcement, group, ledger)

    def work(self, inputs: EvaluateInputs, session: Session) -> EvaluateOutcome:
        compare_bundles(session, inputs.bundle)
        run_name = inputs.bundle.run.hex()[:12]
        log.info("evaluating the model of run %s", run_name, extra={"run": run_name})
        channel = session.channel(EVALUATION)
        union = UnionAgreement(
            self.role,
            self.config,
            self.runs,
            inputs.group,
            session,
            channel,
            self.progress,
            inputs.table,
            inputs.announcement,
            inputs.ledger,
        ).common_union()
        progress = CountedProgress(self.progress, session.count_work)
        with (
            closing(EvaluationJournal(self.runs.evaluation_journal)) as journal,
            progress.step("evaluating") as step,
        ):
            self._open_journal(journal, union, inputs.bundle)
            parts = _parts(self.config, union, inputs.table, journal)
            evaluated = self.role.evaluate(inputs.bundle, parts, channel, step)
            journal.settle()
            self.runs.mark_evaluation_started(journal.confirmed)
        config, bundle, summary = self.config, inputs.bundle, union.alignment.summary
        report = EvaluationReport(
            party=config.party.name,
            peer=config.party.peer,
            role=self.role.name,
            release=RELEASE,
            finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
            run=bundle.run.hex(),
            model=(bundle.digest.hex(), bundle.peer_digest.hex()),
            agreement=config.agreement.evaluation.model_dump(mode="json"),
            table_rows=summary.rows,
            sizes=summary.sizes,
            privacy=summary.privacy,
            found=evaluated.found,
            own_features=bundle.has_features if isinstance(bundle, ActiveBundle) else None,
            bytes_sent=session.traffic.sent,
            bytes_received=session.traffic.received,
        )
        return EvaluateOutcome(report, evaluated)

    def _open_journal(
        self, journal: EvaluationJournal, union: EvaluationUnion, bundle: Bundle
    ) -> None:
        """Look up what was answered about this model, before anything is revealed."""
        journal.open(
            bytes.fromhex(union.alignment.summary.union_sha256),
            bundle.run + bundle.digest + bundle.peer_digest,
            SecretDraws(union.secret).derive("journal").secret,
            self.config.agreement.evaluation.max_models,
            must_exist=self.runs.has_started_evaluation,
            confirmed=self.runs.journal_records(),
        )
        self.runs.mark_evaluation_started(journal.confirmed)

    def save(
        self, inputs: EvaluateInputs, outcome: EvaluateOutcome, session: Session, folder: Path
    ) -> None:
        if outcome.report.warning:
            log.warning("%s", outcome.report.warning)
        write_json(folder / "evaluation.json", outcome.report.to_json(), allow_nan=False)
        settings: dict[str, JsonValue] = {"model": _model_id(inputs.bundle)}
        InputRecord.of(Inputs(settings, {"evaluation": inputs.table.content})).save(folder)

    def facts(self, inputs: EvaluateInputs, outcome: EvaluateOutcome, folder: Path) -> StageFacts:
        summary, bundle = self.runs.load_summary("evaluation"), inputs.bundle
        aligned = union_facts(self.role.name, summary, self.runs.evaluation_alignment)
        model = model_facts(
            self.role.name, bundle.run.hex(), bundle.digest.hex(), bundle.peer_digest.hex()
        )
        return StageFacts({"evaluation": aligned}, model)

    def report(
        self, inputs: EvaluateInputs, outcome: EvaluateOutcome, session: Session, evidence: str
    ) -> str:
        self._evidence = evidence
        return render(replace(outcome.report, evidence=evidence))

    def after_peer(self, inputs: EvaluateInputs, outcome: EvaluateOutcome, folder: Path) -> None:
        if not self.config.training.worth:
            return
        worth = outcome.evaluated.worth(self.config, self.progress)
        report = replace(outcome.report, worth=worth, evidence=self._evidence)
        replace_file(folder / "evaluation.json", json_text(report.to_json(), allow_nan=False))
        replace_file(folder / "report.html", render(report))


def check_kept_table(runs: RunDirectory, table: EvaluationTable, bundle: Bundle) -> None:
    """Check that the features and labels are those of an earlier evaluation of this model.

    The same questions are answered again, and no others. For another model, other features are
    accepted, and reported.

    Raises:
        ConfigurationError: they have changed; names the columns.
    """
    record = load_record(runs, "evaluate")
    if record is None or not (changes := record.changed_content("evaluation", table.content)):
        return
    if record.settings.get("model") == _model_id(bundle):
        raise ConfigurationError(
            f"{changes}, and this model was evaluated before; restore the table. The earlier "
            "result is still valid"
        )
    log.warning("%s; the figures are not comparable with those of the earlier model", changes)


def _model_id(bundle: Bundle) -> str:
    return (bundle.digest + bundle.peer_digest).hex()


def check_strategy(agreement: TrainingAgreement) -> None:
    """Refuse a model whose feature strategy makes an estimate impossible.

    Raises:
        ConfigurationError: says why.
    """
    strategy = agreement.features.strategy
    if not FEATURE_STRATEGIES[strategy].looks_real:
        good = [name for name in FEATURE_STRATEGIES.names if FEATURE_STRATEGIES[name].looks_real]
        raise ConfigurationError(
            f"agreement.training.features.strategy: a model trained with {strategy} cannot be "
            "evaluated privately. The labels of people without real features are independent of "
            "what it predicts for them, but these predictions come from synthetic embeddings and "
            "are distributed differently from those of real people, so the two cannot be separated "
            f"in their mixture; train with {' or '.join(good)}"
        )


def _parts(
    config: PartyConfig,
    union: EvaluationUnion,
    table: EvaluationTable,
    journal: EvaluationJournal,
) -> EvaluationData:
    summary, ranks = union.alignment.summary, union.alignment.rank_of_row
    row_of_rank = np.full(summary.union_size, -1, dtype=np.int64)
    in_union = np.flatnonzero(ranks >= 0)
    row_of_rank[ranks[in_union]] = in_union
    return EvaluationData(
        agreement=config.agreement.evaluation,
        membership=Membership(row_of_rank),
        sizes=summary.sizes,
        kept_out=np.flatnonzero(ranks < 0),
        features=table.features,
        labels=table.labels,
        draws=SecretDraws(union.secret),
        journal=journal,
    )
