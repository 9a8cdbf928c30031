"""Our own rows through the peer's eyes: all its attacks, with our own membership as the truth.

We do not know which UIDs the peer has, so all are scored, those too of which it would not ask.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from florist.common.audit.attacks import ACTIVE_ATTACKS, PASSIVE_ATTACKS
from florist.common.audit.statistics import evaluate
from florist.common.audit.view import ActiveStep, ActiveView, PassiveStep, PassiveView

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from florist.common.audit.attacks import Attack
    from florist.common.audit.recorder import Sighting
    from florist.common.audit.statistics import AttackResult
    from florist.common.audit.view import Floats, Ranks
    from florist.common.core.registry import Registry
    from florist.common.core.roles import RoleName

log = logging.getLogger("florist.audit")

V = TypeVar("V")


def attack_as_peer(
    role: RoleName, sightings: Sequence[Sighting], own: npt.NDArray[np.bool_], samples: int
) -> list[AttackResult]:
    """What the peer's attacks achieve on these rows.

    Args:
        role: ours.
        sightings: what the peer saw; at least one.
        own: for each UID of the union, whether it is ours, so that what we sent for it was real.
        samples: of the bootstrap.
    """
    # Ranks among the UIDs seen: an attack's arrays are then as long as these are many.
    uids = np.unique(np.concatenate([sighting.ranks for sighting in sightings]))
    everyone = np.arange(len(uids))
    places = [np.searchsorted(uids, sighting.ranks) for sighting in sightings]
    scores: Iterator[tuple[str, Floats]]
    if role == "active":
        view = PassiveView(len(uids), everyone, _passive_steps(sightings, places))
        scores = _scores(PASSIVE_ATTACKS, view)
    else:
        scores = _scores(
            ACTIVE_ATTACKS, ActiveView(len(uids), everyone, _active_steps(sightings, places))
        )
    truth = own[uids]
    return [evaluate(name, turned(found, truth), truth, samples=samples) for name, found in scores]


def turned(scores: Floats, is_real: npt.NDArray[np.bool_]) -> Floats:
    """The scores, or their negatives, so that real UIDs have the higher ones.

    Which way an attack leans is a guess of its author's; a peer may have the better one.
    """
    leans_down = evaluate("", scores, is_real, samples=1).auc.value < 0.5
    return -scores if leans_down else scores


def _passive_steps(sightings: Sequence[Sighting], places: Sequence[Ranks]) -> list[PassiveStep]:
    return [
        PassiveStep(seen.epoch, ranks, seen.gradients, seen.embeddings)
        for seen, ranks in zip(sightings, places, strict=True)
    ]


def _active_steps(sightings: Sequence[Sighting], places: Sequence[Ranks]) -> list[ActiveStep]:
    """Its labels are the peer's secret."""
    return [
        ActiveStep(seen.epoch, ranks, seen.embeddings, np.full(len(ranks), np.nan, np.float32))
        for seen, ranks in zip(sightings, places, strict=True)
    ]


def _scores(attacks: Registry[Attack[V]], view: V) -> Iterator[tuple[str, Floats]]:
    for name in attacks.names:
        try:
            yield name, attacks[name].score(view)
        except ValueError as error:  # numpy's for what has no solution, or too few rows
            # No reason to lose a run; that the attack is missing can be seen.
            log.warning("self-audit: the attack %s cannot be made here: %s", name, error)
