"""The confidence of each interval of a self-audit, corrected for the number of comparisons.

A self-audit compares many figures with a limit: several per attack, in every audit of a run. If
each had a 95% interval, some would exceed a limit by chance alone. The correction is Bonferroni's,
which holds however the figures depend on each other: windows overlap, and attacks use the same
rows. Half of the allowed error is for the windows of the first batches, so that a long run, which
has many audits, does not hide a leak there. A quarter is for the strata of the audits of all
epochs, and the last quarter for everything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.audit.attack_runner import MOST_STRATA
from florist.common.audit.attacks import ACTIVE_ATTACKS, PASSIVE_ATTACKS
from florist.common.audit.training_windows import TRAINING_WINDOWS

if TYPE_CHECKING:
    from florist.common.audit.attack_registry import Need
    from florist.common.audit.attacks import Attack
    from florist.common.audit.findings import Scope
    from florist.common.audit.view import ActiveView, PassiveView
    from florist.common.core.roles import RoleName
    from florist.common.training.schedule import Schedule

#: The probability that any figure of a run exceeds a limit although its true value does not.
FALSE_ALARMS = 0.05

#: Figures per attack and audit: the AUC, and the true positive rate in two directions.
_FIGURES = 3


@dataclass(frozen=True, slots=True)
class Comparisons:
    """How many audits a run has, and attacks in each."""

    attacks: int
    #: Audits of the first batches; the allowed error of all others is independent of them.
    early: int
    #: All other audits.
    later: int
    #: Those of them that are also judged by stratum.
    stratified: int = 1

    @classmethod
    def of_run(cls, role: RoleName, schedule: Schedule, every: int) -> Comparisons:
        """Count the audits of a party with this role, every `every` batches (0: per epoch only)."""
        periodic = schedule.steps // every if every else 0
        # At the end of each epoch: all epochs so far, and the same without the first batches.
        later = periodic + 2 * schedule.epochs
        return cls(_attacks(role), len(_EARLY), later, stratified=schedule.epochs)

    @classmethod
    def of_one_audit(cls, role: RoleName) -> Comparisons:
        """Count only the attacks of one audit that covers all epochs."""
        return cls(_attacks(role), len(_EARLY), 1)

    def confidence(self, over: Scope) -> float:
        """Return the confidence of each interval of an audit over this scope."""
        share = FALSE_ALARMS / 2 / self.early if over in _EARLY else FALSE_ALARMS / 4 / self.later
        return 1 - share / (self.attacks * _FIGURES)

    def stratum_confidence(self) -> float:
        """Return the confidence of the interval of the AUC in each stratum."""
        return 1 - FALSE_ALARMS / 4 / (self.stratified * self.attacks * MOST_STRATA)


_EARLY = {name for name, window in TRAINING_WINDOWS.items() if window.stop is not None}


def _attacks(role: RoleName) -> int:
    """Return the number of attacks that a party with this role can make on itself."""
    found: list[Attack[PassiveView]] | list[Attack[ActiveView]] = (
        [PASSIVE_ATTACKS[name] for name in PASSIVE_ATTACKS.names]
        if role == "active"
        else [ACTIVE_ATTACKS[name] for name in ACTIVE_ATTACKS.names]
    )
    return sum(not _NEVER_MET.intersection(attack.needs) for attack in found)


#: What a party that audits itself never knows of its peer.
_NEVER_MET: set[Need] = {"features", "UIDs of the peer alone", "aggregate of two classes"}
