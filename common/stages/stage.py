"""The template of a stage: read and check the inputs, connect, work, save, sign, report."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.core.errors import ConfigurationError
from florist.common.evidence.evidence_file import save_evidence
from florist.common.evidence.record import StageFacts
from florist.common.session.reconnect import run_with_peer
from florist.common.session.run_directory import RunDirectory
from florist.common.session.stage_state import StageState
from florist.common.stages.stage_evidence import EvidenceExchange

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from florist.common.core.clock import Clock
    from florist.common.core.progress import Progress
    from florist.common.data.id_check import IdSummary
    from florist.common.session.alignment_result import TableName
    from florist.common.session.session import Session
    from florist.common.session.stage_state import StageName, StageOptions
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.role import Role

log = logging.getLogger("florist.stages")

#: What a stage reads before it contacts the peer, and what it computes with the peer.
Inputs = TypeVar("Inputs")
Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class StageContext:
    """What every stage of a run is given."""

    role: Role
    config: PartyConfig
    options: StageOptions
    progress: Progress
    clock: Clock = SYSTEM_CLOCK
    #: The IDs that `validate_run` has checked already, by table.
    checked_ids: Mapping[TableName, IdSummary] = field(default_factory=dict)

    @property
    def runs(self) -> RunDirectory:
        """The run directory of this party."""
        return RunDirectory(self.config.run_directory)


class Stage(ABC, Generic[Inputs, Outcome]):
    """One stage, the same for both roles. `run` calls the methods in the order below."""

    name: ClassVar[StageName]

    def __init__(self, context: StageContext) -> None:
        self.context = context
        self.role = context.role
        self.config = context.config
        self.options = context.options
        self.progress = context.progress
        self.clock = context.clock
        self.runs = context.runs

    @abstractmethod
    def open_inputs(self) -> AbstractContextManager[Inputs]:
        """Read and check everything that can be checked without the peer.

        The inputs are closed when the context ends.

        Raises:
            ConfigurationError: a file or a setting is not usable; names it and the fix.
        """

    @abstractmethod
    def work(self, inputs: Inputs, session: Session) -> Outcome:
        """Do the stage's work with the peer.

        Called again in a new session when the connection is lost, so it resumes from what is on
        disk.
        """

    @abstractmethod
    def save(self, inputs: Inputs, outcome: Outcome, session: Session, folder: Path) -> None:
        """Write the result into the new folder."""

    def facts(self, inputs: Inputs, outcome: Outcome, folder: Path) -> StageFacts:
        """Return what both parties know of the result in the new folder, for the evidence."""
        return StageFacts()

    def report(
        self, inputs: Inputs, outcome: Outcome, session: Session, evidence: str
    ) -> str | None:
        """Return the HTML report of the result, or None if the stage has none.

        `evidence` is a sentence on who has signed the evidence of the stage.
        """
        return None

    def clean_up(self, inputs: Inputs) -> None:
        """Delete what is needed only while the stage is incomplete. The peer is finished too."""

    def after_peer(self, inputs: Inputs, outcome: Outcome, folder: Path) -> None:
        """Add to the result in `folder` what needs no peer. Both parties have their results.

        What is computed here delays nobody, and how long it takes is not visible to the peer.
        """

    def run(self) -> Path:
        """Run the stage to its end and return the folder with its result.

        Raises:
            ConfigurationError: the stage is complete already, its inputs are not usable, or another
                process uses the run directory.
            FloristError: what ended the work, here or at the peer.
        """
        runs, force = self.runs, self.options.force
        state = StageState(runs, self.name, force=force)
        with runs.locked():
            if force or state.is_complete:
                runs.drop_work(self.name)
            state.refuse_complete()
            with self.open_inputs() as inputs:
                exchange = EvidenceExchange(self.context, self.name)
                outcomes: list[Outcome] = []

                def work(session: Session) -> None:
                    with exchange.counting(session):
                        outcome = self.work(inputs, session)
                        with runs.finishing(self.name) as folder:
                            self.save(inputs, outcome, session, folder)
                            facts = self.facts(inputs, outcome, folder)
                            evidence = exchange.sign_with_peer(session, facts)
                            note = evidence.summary(self.config.party.peer)
                            report = self.report(inputs, outcome, session, note)
                            if report is not None:
                                (folder / "report.html").write_text(report, encoding="utf-8")
                        save_evidence(runs.evidence, self.name, evidence)
                        outcomes.append(outcome)

                plaintext = self.options.plaintext
                run_with_peer(
                    self.role, self.config, state, work, plaintext=plaintext, clock=self.clock
                )
                self.clean_up(inputs)
                # Nothing if an earlier process saved the result, and the peer only now has its own.
                if outcomes:
                    self._try_after_peer(inputs, outcomes[-1])
            runs.drop_work(self.name)
        return runs.result(self.name)

    def _try_after_peer(self, inputs: Inputs, outcome: Outcome) -> None:
        """Report a failure, but do not fail: both parties have their results."""
        try:
            self.after_peer(inputs, outcome, self.runs.result(self.name))
        except (ConfigurationError, OSError) as error:
            log.warning("the stage is complete, but its report lacks a part: %s", error)
