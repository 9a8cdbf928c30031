"""Checks of an evaluation that need neither the model nor the peer, and do not load torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError
from florist.common.psu.padded_set import noise_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.privacy.count_noise import CountNoise
    from florist.common.session.run_directory import RunDirectory
    from florist.common.settings.agreement import EvaluationAgreement
    from florist.common.settings.data import Table
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.role import Role


def table_settings(config: PartyConfig) -> Table:
    """Return the settings of the evaluation table.

    Raises:
        ConfigurationError: there is no such table.
    """
    if not config.agreement.evaluation.table:
        raise ConfigurationError(
            "agreement.evaluation.table: is false, so there is nothing to evaluate on; set it to "
            "true on both sides, and name your table at data.evaluation"
        )
    if config.data.evaluation_table is None:
        raise ConfigurationError(
            "data.evaluation: missing; the agreement says that both parties have an evaluation "
            "table (agreement.evaluation.table)"
        )
    return config.data.evaluation_table


def check_kept_union(runs: RunDirectory, fingerprint: str, agreement: EvaluationAgreement) -> None:
    """Check that a union kept from an earlier evaluation is of the same table and stand-ins.

    `fingerprint` is that of the IDs of our table.

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
    if summary.table_fingerprint != fingerprint:
        raise ConfigurationError(
            "data.evaluation: its IDs are not the ones that were aligned for an earlier "
            "evaluation; restore the table, or name another run_directory. "
            f"{how_to_align_again(runs)}"
        )


def how_to_align_again(runs: RunDirectory) -> str:
    """Return how to make another evaluation union, and what that reveals."""
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
