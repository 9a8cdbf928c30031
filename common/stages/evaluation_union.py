"""Agreeing with the peer on the union of the evaluation tables, and aligning them once.

The union is kept: a model that is evaluated again sees the same people with the same stand-ins.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ConfigurationError
from florist.common.core.stage_timer import StageTimer
from florist.common.core.text import for_owner
from florist.common.data.id_check import fingerprint
from florist.common.evaluation.reserved_rows import random_rows
from florist.common.psu.executor import LocalExecutor
from florist.common.psu.padded_set import noise_of
from florist.common.psu.sealed_keys import SecretsInMemory
from florist.common.psu.union_runner import LocalUnionRunner
from florist.common.session.alignment_result import Alignment, EvaluationUnion
from florist.common.session.mutual_check import mutual_check
from florist.common.stages.overlap import check_union_overlap
from florist.common.stages.table_aligner import TableAligner, settle_finished
from florist.common.synthetic.secret_draws import SecretDraws
from florist.common.transport.messages import EvaluationOpening

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.core.progress import Progress
    from florist.common.groups.group import Group
    from florist.common.privacy.count_noise import CountNoise
    from florist.common.privacy.ledger import Ledger
    from florist.common.session.run_directory import RunDirectory
    from florist.common.session.session import Session
    from florist.common.settings.agreement import EvaluationAgreement
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.evaluation_table import EvaluationTable
    from florist.common.stages.role import Role
    from florist.common.transport.channel import Channel

log = logging.getLogger("florist.evaluate")


def check_kept_union(
    runs: RunDirectory, table: EvaluationTable, agreement: EvaluationAgreement
) -> None:
    """Check that a union kept from an earlier evaluation is of the same table and stand-ins.

    Raises:
        ConfigurationError: it is of another table, or was made for other stand-ins.
    """
    kept = runs.load_evaluation_union()
    if kept is None:
        return
    summary = kept.alignment.summary
    stand_ins = summary.agreement.get("evaluation", {}).get("stand_ins", agreement.stand_ins)
    if stand_ins != agreement.stand_ins:
        raise ConfigurationError(
            f"agreement.evaluation.stand_ins: the evaluation tables were aligned for {stand_ins}; "
            "with other stand-ins for the same people, the active party could find out who is "
            f"shared by comparing both evaluations. Set it to {stand_ins} again"
        )
    if summary.table_fingerprint != table.fingerprint:
        raise ConfigurationError(
            "data.evaluation: its IDs are not the ones that were aligned for an earlier "
            f"evaluation; restore the table, or name another run_directory. {_start_over(runs)}"
        )


def _start_over(runs: RunDirectory) -> str:
    return (
        f"To align again, both parties delete {runs.evaluation_alignment.name} from their run "
        "directories: people who are evaluated again then have other stand-ins, and by comparing "
        "both evaluations the active party can find out who is shared"
    )


def releases(config: PartyConfig) -> int:
    """Return how many sizes a party announces for a new evaluation union.

    That of its set; and before that, for stand-ins that are used once, see `PeopleAnnouncement`.
    """
    return 2 if config.agreement.evaluation.stand_ins == "once" else 1


@dataclass(slots=True)
class PeopleAnnouncement:
    """The number of UIDs that we announce before a union without repeats.

    It hides the size of our table as the union's sizes do, by noise that is drawn once.
    """

    role: Role
    config: PartyConfig
    #: The size of our table.
    rows: int
    #: Called once with the number, just before we announce it.
    before_announcing: Callable[[int], None] = lambda _number: None
    _people: int | None = field(default=None, init=False)

    def check(self) -> None:
        """Raise ConfigurationError if the table is too small, whatever the noise."""
        if self.config.agreement.evaluation.stand_ins == "once":
            noise = self._noise
            most = 0 if noise is None else noise.pool_size
            self.role.people_to_announce(self.config, self.rows, most)

    def people(self) -> int:
        """Return the number to announce, which is the same each time."""
        if self._people is None:
            draw = 0 if self._noise is None else self._noise.draw()
            self._people = self.role.people_to_announce(self.config, self.rows, draw)
            self.before_announcing(self._people)
        return self._people

    @property
    def _noise(self) -> CountNoise | None:
        return noise_of(self.config.agreement.union.privacy)


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
                    f"{_start_over(self.runs)}"
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
