"""The first stage: from tables of IDs to alignments on disk."""

from __future__ import annotations

import logging
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.cluster.choose_runner import make_union_runner
from florist.common.core.allocator import return_freed_memory
from florist.common.core.stage_timer import StageTimer
from florist.common.core.text import for_owner
from florist.common.data.table_ids import TableIds
from florist.common.evidence.record import StageFacts
from florist.common.groups import make_group
from florist.common.privacy.ledger import open_ledger
from florist.common.psu.sealed_keys import SecretsInMemory
from florist.common.session.alignment_result import write_alignments
from florist.common.stages.stage import Stage
from florist.common.stages.stage_evidence import union_facts
from florist.common.stages.table_aligner import TableAligner, settle_finished
from florist.common.stages.table_validation import TABLE_TITLES, test_table_settings, told_as
from florist.common.storage.files import FolderStorage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from florist.common.data.id_check import IdSummary
    from florist.common.privacy.ledger import Ledger
    from florist.common.psu.union_runner import UnionRunner
    from florist.common.session.alignment_result import Alignment, TableName
    from florist.common.session.session import Session
    from florist.common.settings.data import Table
    from florist.common.settings.party_config import PartyConfig

log = logging.getLogger("florist.align")

Alignments = dict["TableName", "Alignment"]


@dataclass(frozen=True, slots=True)
class AlignInputs:
    """The IDs of each table, and what aligns them."""

    tables: dict[TableName, TableIds]
    unions: UnionRunner
    timer: StageTimer
    secrets: SecretsInMemory
    ledger: Ledger


class AlignStage(Stage[AlignInputs, Alignments]):
    """Aligns each table with the peer's by a private set union.

    After a loss of the connection or of a party it resumes from the exchanges that both parties
    have finished.
    """

    name = "align"

    @contextmanager
    def open_inputs(self) -> Iterator[AlignInputs]:
        timer = StageTimer(self.clock)
        return_freed_memory()
        tables = _read_ids(self.config, self.context.checked_ids)
        with open_ledger(self.config) as ledger:
            self._check_ledger(ledger, tables)
            timer.end("read")
            with self._union_runner() as unions:
                yield AlignInputs(tables, unions, timer, SecretsInMemory(), ledger)

    def _check_ledger(self, ledger: Ledger, tables: dict[TableName, TableIds]) -> None:
        """Check that the unions of this run may reveal what they will; resumed ones cost nothing.

        Raises:
            ConfigurationError: says why they may not, and what can be done.
        """
        ledger.prepare(tables, accept_difference=self.options.accept_difference)
        resumes = self.runs.work(self.name).exists()
        new = [table for table in tables if not (resumes and ledger.is_charged(table))]
        ledger.check_budget(len(new))

    @contextmanager
    def _union_runner(self) -> Iterator[UnionRunner]:
        compute = self.config.compute
        group = make_group(self.config.agreement.group, compute.engine, compute.threads)
        log.info("group %s, engine %s", group.name, group.engine)
        with (
            closing(group),
            closing(
                make_union_runner(self.config, group, plaintext=self.options.plaintext)
            ) as unions,
        ):
            yield unions

    def work(self, inputs: AlignInputs, session: Session) -> Alignments:
        inputs.timer.end("connect")
        aligner = TableAligner(
            self.role,
            self.config,
            inputs.unions,
            session,
            self.progress,
            inputs.timer,
            self.runs.work(self.name),
            inputs.secrets,
            before_announcing=inputs.ledger.charge,
        )
        alignments: Alignments = {}
        for table, ids in inputs.tables.items():
            alignments[table] = aligner.align(table, ids, ids.fingerprint)
            settle_finished(inputs.ledger, table, alignments[table].summary.sizes)
        return alignments

    def save(
        self,
        inputs: AlignInputs,
        outcome: Alignments,
        session: Session,
        folder: Path,
    ) -> None:
        write_alignments(folder, outcome)

    def facts(self, inputs: AlignInputs, outcome: Alignments, folder: Path) -> StageFacts:
        return StageFacts(
            {
                table: union_facts(self.role.name, alignment.summary, folder / table)
                for table, alignment in outcome.items()
            }
        )

    def clean_up(self, inputs: AlignInputs) -> None:
        inputs.unions.forget(self.runs.work(self.name), inputs.tables)


def _read_ids(
    config: PartyConfig, checked: Mapping[TableName, IdSummary]
) -> dict[TableName, TableIds]:
    """Read and check the IDs of every table that the agreement names, unless they are checked."""
    tables: dict[TableName, Table] = {"train": config.data.train}
    if config.agreement.training.test_table:
        tables["test"] = test_table_settings(config)
    read: dict[TableName, TableIds] = {}
    for name, table in tables.items():
        storage = FolderStorage(config.run_directory)  # for unlinked temporary files
        with told_as(f"its {TABLE_TITLES[name]} table was rejected"):
            read[name] = TableIds(
                table, config.agreement.id_normalisation, storage, checked.get(name)
            )
        log.info("IDs read from the %s table", name, extra=for_owner(f"{len(read[name]):,} IDs"))
    return read
