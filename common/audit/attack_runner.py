"""Runs all attacks of the peer on our own rows, with our own membership as the truth.

We do not know which UIDs the peer has, so all UIDs are scored, including those that the peer would
not ask about.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from florist.common.audit.attack_registry import FEWER_EPOCHS
from florist.common.audit.attacks import ACTIVE_ATTACKS, PASSIVE_ATTACKS
from florist.common.audit.statistics import CONFIDENCE, evaluate
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
    role: RoleName,
    sightings: Sequence[Sighting],
    own: npt.NDArray[np.bool_],
    samples: int,
    confidence: float = CONFIDENCE,
) -> list[AttackResult]:
    """Return how well each of the peer's attacks does on these rows.

    Args:
        role: our own role.
        sightings: what the peer saw; at least one.
        own: for each UID of the union, whether we have it, so that what we sent for it was real.
        samples: bootstrap samples per interval.
        confidence: the probability that an interval covers the truth.
    """
    # Attacks get ranks among the UIDs seen, so that their arrays are no longer than necessary.
    uids = np.unique(np.concatenate([sighting.ranks for sighting in sightings]))
    everyone = np.arange(len(uids))
    ranks = [np.searchsorted(uids, sighting.ranks) for sighting in sightings]
    scores: Iterator[tuple[str, Floats]]
    if role == "active":
        view = PassiveView(len(uids), everyone, _passive_steps(sightings, ranks))
        scores = _scores(PASSIVE_ATTACKS, view)
    else:
        scores = _scores(
            ACTIVE_ATTACKS, ActiveView(len(uids), everyone, _active_steps(sightings, ranks))
        )
    truth = own[uids]
    return [
        evaluate(name, oriented(found, truth), truth, samples=samples, confidence=confidence)
        for name, found in scores
    ]


def remedy(role: RoleName, attack: str) -> str:
    """Return the setting that we should change if this attack by the peer succeeds."""
    attacks: Registry[Attack[PassiveView]] | Registry[Attack[ActiveView]] = (
        PASSIVE_ATTACKS if role == "active" else ACTIVE_ATTACKS
    )
    # The record of another release may name an attack that this one lacks.
    return attacks[attack].remedy if attack in attacks.names else FEWER_EPOCHS


def oriented(scores: Floats, is_real: npt.NDArray[np.bool_]) -> Floats:
    """Return the scores or their negatives, so that real UIDs have the higher ones.

    The direction of an attack is its author's guess; the peer may guess better.
    """
    is_inverted = evaluate("", scores, is_real, samples=1).auc.value < 0.5
    return -scores if is_inverted else scores


def _passive_steps(sightings: Sequence[Sighting], ranks_seen: Sequence[Ranks]) -> list[PassiveStep]:
    return [
        PassiveStep(seen.epoch, ranks, seen.gradients, seen.embeddings)
        for seen, ranks in zip(sightings, ranks_seen, strict=True)
    ]


def _active_steps(sightings: Sequence[Sighting], ranks_seen: Sequence[Ranks]) -> list[ActiveStep]:
    """Return the steps without labels, which only the peer knows."""
    return [
        ActiveStep(seen.epoch, ranks, seen.embeddings, np.full(len(ranks), np.nan, np.float32))
        for seen, ranks in zip(sightings, ranks_seen, strict=True)
    ]


def _scores(attacks: Registry[Attack[V]], view: V) -> Iterator[tuple[str, Floats]]:
    for name in attacks.names:
        try:
            yield name, attacks[name].score(view)
        except ValueError as error:  # from numpy, without a solution or with too few rows
            # This must not end a run. The log shows that the attack is missing.
            log.warning("self-audit: the attack %s cannot be computed: %s", name, error)
