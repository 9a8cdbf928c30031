"""Agreeing with the peer on the union of the evaluation tables, and aligning them once.

The union is kept: a model that is evaluated again sees the same people with the same stand-ins.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ConfigurationError
from florist.common.core.stage_timer import StageTimer
from florist.common.core.text import for_owner
from florist.common.data.id_check import fingerprint
from florist.common.evaluation.reserved_rows import random_rows
from florist.common.psu.executor import LocalExecutor
from florist.common.psu.sealed_keys import SecretsInMemory
from florist.common.psu.union_runner import LocalUnionRunner
from florist.common.session.alignment_result import Alignment, EvaluationUnion
from florist.common.session.mutual_check import mutual_check
from florist.common.stages.evaluation_checks import how_to_align_again
from florist.common.stages.overlap import check_union_overlap
from florist.common.stages.table_aligner import TableAligner, settle_finished
from florist.common.synthetic.secret_draws import SecretDraws
from florist.common.transport.messages import EvaluationOpening

if TYPE_CHECKING:
    from florist.common.core.progress import Progress
    from florist.common.groups.group import Group
    from florist.common.privacy.ledger import Ledger
    from florist.common.session.run_directory import RunDirectory
    from florist.common.session.session import Session
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.evaluation_checks import PeopleAnnouncement
    from florist.common.stages.evaluation_table import EvaluationTable
    from florist.common.stages.role import Role
    from florist.common.transport.channel import Channel

log = logging.getLogger("florist.evaluate")


@dataclass(frozen=True, slots=True)
class UnionAgreement:
    """Finds the union that both parties hold, or makes one, in one session."""

    role: Role
    config: PartyConfig
    runs: RunDirectory
    group: Group
    session: Session
    channel: Channel
    progress: Progress
    table: EvaluationTable
    announcement: PeopleAnnouncement
    ledger: Ledger

    def common_union(self) -> EvaluationUnion:
        """Return the union that both hold, or a new one if none has been used yet.

        Raises:
            ConfigurationError: they hold different ones, and one has been used; both parties raise
                it.
        """
        kept = self.runs.load_evaluation_union()
        ours = self._opening(kept)
        theirs = self._exchange(ours, kept)
        if kept is None or theirs.union_sha256 != ours.union_sha256:
            kept = self._align(self._rows_in_union(ours))
            self.runs.save_evaluation_union(kept)
            # Each learns that the other has saved it before anything is sent about its people.
            self._exchange(self._opening(kept), kept)
        return kept

    def _opening(self, kept: EvaluationUnion | None) -> EvaluationOpening:
        digest = bytes.fromhex(kept.alignment.summary.union_sha256) if kept else b""
        return EvaluationOpening(digest, 0, self.runs.has_started_evaluation)

    def _exchange(self, ours: EvaluationOpening, kept: EvaluationUnion | None) -> EvaluationOpening:
        """Compare unions. Different ones are acceptable as long as neither has been used.

        Raises:
            ConfigurationError: they differ and one has been used, or nobody is shared; both parties
                raise it.
            OverlapOutsideLimits: too few or too many people are shared; both parties raise it.
        """

        def check(theirs: EvaluationOpening) -> None:
            if ours.union_sha256 == theirs.union_sha256:
                if kept is not None:
                    _check_shared(kept.alignment)
                    check_union_overlap(self.config, kept.alignment.summary, "evaluation")
            elif ours.started or theirs.started:
                raise ConfigurationError(
                    "the two parties do not hold the same alignment of their evaluation tables: "
                    f"restore {self.runs.evaluation_alignment}, here or at the peer. "
                    f"{how_to_align_again(self.runs)}"
                )

        return mutual_check(self.channel, ours, check)

    def _rows_in_union(self, opening: EvaluationOpening) -> int:
        """Return how many of our people to put into the union; the others are kept out."""
        rows = len(self.table)
        if self.config.agreement.evaluation.stand_ins == "repeated":
            return rows
        ours = replace(opening, people=self.announcement.people())
        theirs = mutual_check(self.channel, ours, lambda _: None)
        return self.role.rows_for_union(self.config, rows, ours.people, theirs.people)

    def _align(self, count: int) -> EvaluationUnion:
        """Make a union with `count` of our people, chosen at random by a secret that is kept."""
        table, seed = self.table, self.config.training.seed
        draws = SecretDraws.fresh()
        if seed is not None:
            draws = SecretDraws.from_seed(seed).derive("evaluation")
        rows = random_rows(len(table), count, draws)
        log.info(
            "some or all people in our evaluation table take part",
            extra=for_owner(f"{count:,} of {len(table):,}"),
        )
        aligner = TableAligner(
            self.role,
            self.config,
            LocalUnionRunner(LocalExecutor(self.group)),
            self.session,
            self.progress,
            StageTimer(),
            self.runs.work("evaluate"),
            SecretsInMemory(),
            before_announcing=self.ledger.charge,
        )
        people = table.ids.take(rows)
        some = aligner.align("evaluation", people, fingerprint(people))
        settle_finished(self.ledger, "evaluation", some.summary.sizes)
        ranks = np.full(len(table), -1, dtype=np.int64)
        ranks[rows] = some.rank_of_row
        self.runs.drop_work("evaluate")  # another attempt chooses other people
        summary = replace(some.summary, rows=len(table), table_fingerprint=table.fingerprint)
        return EvaluationUnion(Alignment(summary, ranks, some.commitment), draws.secret)


def _check_shared(alignment: Alignment) -> None:
    """Refuse a union of disjoint sets; both parties know the sizes, so both raise."""
    if alignment.summary.sizes.shared_estimate <= 0:
        raise ConfigurationError(
            "data.evaluation: the parties' evaluation tables have nobody in common, so no "
            "prediction is based on real features and an estimate is impossible"
        )
