"""Registration of attacks by name.

An attack maps what a party saw to a score for each of the view's UIDs, in their order. The higher
the score, the more likely the peer's data for this UID are real, which means that the peer has the
UID too. NaN means that the attack has nothing to go by. An attack may have the direction wrong, so
figures folded at 0.5 count both directions.

Import `ACTIVE_ATTACKS` and `PASSIVE_ATTACKS` from `audit.attacks`, which registers all attacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from florist.common.core.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.audit.view import ActiveView, Floats, PassiveView

V = TypeVar("V")

#: Remedies: the setting that most reduces what an attack finds.
LABEL_STRATEGY = "agreement.training.labels (strategy label-random-pred leaks least)"
FEATURE_STRATEGY = "agreement.training.features (strategy fea-sampling leaks least)"
STICKY_DATA = "agreement.training.sticky (true leaks least)"
EMBEDDING_NOISE = "agreement.training.embedding_noise (more noise leaks less)"
FEWER_EPOCHS = "agreement.training.epochs (fewer epochs leak less)"


@dataclass(frozen=True, slots=True)
class Attack(Generic[V]):
    """A named function that scores the UIDs of a view."""

    name: str
    score: Callable[[V], Floats]
    #: The setting to change if this attack succeeds.
    remedy: str = FEWER_EPOCHS


#: Attacks by the passive party: which labels are real?
PASSIVE_ATTACKS: Registry[Attack[PassiveView]] = Registry("attack of the passive party")
#: Attacks by the active party: which features are real?
ACTIVE_ATTACKS: Registry[Attack[ActiveView]] = Registry("attack of the active party")

PassiveScore = TypeVar("PassiveScore", bound="Callable[[PassiveView], Floats]")
ActiveScore = TypeVar("ActiveScore", bound="Callable[[ActiveView], Floats]")


def passive_attack(name: str, remedy: str = FEWER_EPOCHS) -> Callable[[PassiveScore], PassiveScore]:
    """Register the decorated function as an attack by the passive party."""

    def register(score: PassiveScore) -> PassiveScore:
        PASSIVE_ATTACKS.register(Attack(name, score, remedy))
        return score

    return register


def active_attack(name: str, remedy: str = FEWER_EPOCHS) -> Callable[[ActiveScore], ActiveScore]:
    """Register the decorated function as an attack by the active party."""

    def register(score: ActiveScore) -> ActiveScore:
        ACTIVE_ATTACKS.register(Attack(name, score, remedy))
        return score

    return register
