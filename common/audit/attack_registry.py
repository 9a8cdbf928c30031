"""Registration of attacks by name.

An attack maps what a party saw to a score for each of the view's UIDs, in their order. The higher
the score, the more likely the peer's data for this UID are real, which means that the peer has the
UID too. NaN means that the attack has nothing to go by. An attack may have the direction wrong, so
figures folded at 0.5 count both directions.

Import `ACTIVE_ATTACKS` and `PASSIVE_ATTACKS` from `audit.attacks`, which registers all attacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

import numpy as np

from florist.common.audit.view import ActiveView, PassiveView
from florist.common.core.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.audit.view import Floats

V = TypeVar("V", PassiveView, ActiveView)

#: What an attack cannot do without. An attack whose needs are not met is skipped.
Need = Literal[
    "features",
    "labels",
    "known stand-ins",
    "UIDs of the peer alone",
    "two epochs",
    "aggregate of two classes",
]

#: What to say about an attack that was skipped.
NEED_TEXTS: dict[Need, str] = {
    "features": "needs features of the attacker's own",
    "labels": "needs the attacker's own labels",
    "known stand-ins": "needs UIDs that are known to be stand-ins, such as the attacker's dummies",
    "UIDs of the peer alone": "needs UIDs that the attacker knows it does not have",
    "two epochs": "needs two epochs",
    "aggregate of two classes": "needs a label aggregate of two classes",
}

#: Remedies: the setting that most reduces what an attack finds.
LABEL_STRATEGY = "agreement.training.labels (strategy label-random-pred leaks least)"
FEATURE_STRATEGY = "agreement.training.features (strategy fea-sampling leaks least)"
STICKY_DATA = "agreement.training.sticky (true leaks least)"
EMBEDDING_NOISE = "agreement.training.embedding_noise (more noise leaks less)"
FEWER_EPOCHS = "agreement.training.epochs (fewer epochs leak less)"
NARROW_CUT = "agreement.training.cut_width (fewer numbers per person leak less)"
AGGREGATE_NOISE = "agreement.training.aggregate (a smaller epsilon leaks less)"
OWN_FEATURES = "the active party's feature columns (fewer of them leak less)"


@dataclass(frozen=True, slots=True)
class Attack(Generic[V]):
    """A named function that scores the UIDs of a view."""

    name: str
    score: Callable[[V], Floats]
    #: The setting to change if this attack succeeds.
    remedy: str = FEWER_EPOCHS
    needs: tuple[Need, ...] = ()

    def reason_to_skip(self, view: V) -> str | None:
        """Return what the view lacks for this attack; None if the attack is possible."""
        return next((NEED_TEXTS[need] for need in self.needs if not _meets(view, need)), None)


def _meets(view: PassiveView | ActiveView, need: Need) -> bool:
    match need:
        case "features":
            return view.features is not None
        case "labels":
            return isinstance(view, ActiveView) and any(
                np.isfinite(step.labels).any() for step in view.steps
            )
        case "known stand-ins":
            return view.known_stand_ins is not None and len(view.known_stand_ins) > 0
        case "UIDs of the peer alone":
            return len(view.uids) < view.union_size
        case "two epochs":
            return len({step.epoch for step in view.steps}) > 1
        case "aggregate of two classes":
            return view.aggregate is not None and view.aggregate.codes.outputs == 1


#: Attacks by the passive party: which labels are real?
PASSIVE_ATTACKS: Registry[Attack[PassiveView]] = Registry("attack of the passive party")
#: Attacks by the active party: which features are real?
ACTIVE_ATTACKS: Registry[Attack[ActiveView]] = Registry("attack of the active party")

PassiveScore = TypeVar("PassiveScore", bound="Callable[[PassiveView], Floats]")
ActiveScore = TypeVar("ActiveScore", bound="Callable[[ActiveView], Floats]")


def passive_attack(
    name: str, remedy: str = FEWER_EPOCHS, needs: tuple[Need, ...] = ()
) -> Callable[[PassiveScore], PassiveScore]:
    """Register the decorated function as an attack by the passive party."""

    def register(score: PassiveScore) -> PassiveScore:
        PASSIVE_ATTACKS.register(Attack(name, score, remedy, needs))
        return score

    return register


def active_attack(
    name: str, remedy: str = FEWER_EPOCHS, needs: tuple[Need, ...] = ()
) -> Callable[[ActiveScore], ActiveScore]:
    """Register the decorated function as an attack by the active party."""

    def register(score: ActiveScore) -> ActiveScore:
        ACTIVE_ATTACKS.register(Attack(name, score, remedy, needs))
        return score

    return register
