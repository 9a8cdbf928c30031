"""Runs all attacks of the peer on our own rows, with our own membership as the truth.

We do not know which UIDs the peer has, so all UIDs are scored, including those that the peer would
not ask about.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from florist.common.audit.attack_registry import FEWER_EPOCHS
from florist.common.audit.attack_tools.inferred_labels import shown_classes
from florist.common.audit.attacks import ACTIVE_ATTACKS, PASSIVE_ATTACKS
from florist.common.audit.statistics import CONFIDENCE, evaluate
from florist.common.audit.strata import (
    evaluate_strata,
    judged_strata,
    strata_of,
    worst_stratum,
)
from florist.common.audit.view import ActiveStep, ActiveView, PassiveStep, PassiveView

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from florist.common.audit.attacks import Attack
    from florist.common.audit.recorder import Sighting
    from florist.common.audit.statistics import AttackResult
    from florist.common.audit.strata import StratumResult
    from florist.common.audit.view import Floats, Ranks
    from florist.common.core.registry import Registry
    from florist.common.core.roles import RoleName

    Flags = npt.NDArray[np.bool_]

log = logging.getLogger("florist.audit")

V = TypeVar("V", PassiveView, ActiveView)

#: The fewest real and synthetic UIDs of a stratum, and the most strata of an audit.
FEWEST, MOST_STRATA = 100, 18

#: The most of our own stand-ins that the peer is assumed to know.
KNOWN_STAND_INS = 500


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PeerAttacks:
    """How well the peer's attacks do on our own rows."""

    #: One per attack that was possible.
    results: list[AttackResult]
    #: The worst stratum of each attack, if strata were asked for and one has enough UIDs.
    worst: dict[str, StratumResult]
    #: Why each of the others was not possible.
    skipped: dict[str, str]


def attack_as_peer(
    role: RoleName,
    sightings: Sequence[Sighting],
    own: Flags,
    samples: int,
    confidence: float = CONFIDENCE,
    stratum_confidence: float | None = None,
) -> PeerAttacks:
    """Make each of the peer's attacks on these rows.

    Args:
        role: our own role.
        sightings: what the peer saw; at least one.
        own: for each UID of the union, whether we have it, so that what we sent for it was real.
        samples: bootstrap samples per interval.
        confidence: the probability that an interval covers the truth.
        stratum_confidence: the same for intervals of strata; None: no strata.
    """
    # Attacks get ranks among the UIDs seen, so that their arrays are no longer than necessary.
    uids = np.unique(np.concatenate([sighting.ranks for sighting in sightings]))
    everyone = np.arange(len(uids))
    ranks = [np.searchsorted(uids, sighting.ranks) for sighting in sightings]
    truth = own[uids]
    passive = PassiveView(len(uids), everyone, _passive_steps(sightings, ranks))
    if role == "active":
        return _judged(PASSIVE_ATTACKS, passive, truth, samples, confidence, stratum_confidence)
    active = ActiveView(len(uids), everyone, _active_steps(passive))
    return _judged(ACTIVE_ATTACKS, active, truth, samples, confidence, stratum_confidence)


def _judged(
    attacks: Registry[Attack[V]],
    view: V,
    truth: Flags,
    samples: int,
    confidence: float,
    stratum_confidence: float | None,
) -> PeerAttacks:
    scores, skipped = _scores(attacks, view, truth)
    groups = (
        judged_strata(strata_of(view, early=False), truth, FEWEST)[:MOST_STRATA]
        if stratum_confidence is not None
        else []
    )
    results, worst = [], {}
    for name, found in scores.items():
        turned = oriented(found, truth)
        results.append(evaluate(name, turned, truth, samples=samples, confidence=confidence))
        if stratum_confidence is not None:
            by_stratum = evaluate_strata(name, turned, truth, groups, stratum_confidence, FEWEST)
            highest = worst_stratum(by_stratum)
            if highest is not None:
                worst[name] = highest
    return PeerAttacks(results, worst, skipped)


def remedy(role: RoleName, attack: str) -> str:
    """Return the setting that we should change if this attack by the peer succeeds."""
    attacks: Registry[Attack[PassiveView]] | Registry[Attack[ActiveView]] = (
        PASSIVE_ATTACKS if role == "active" else ACTIVE_ATTACKS
    )
    # The record of another release may name an attack that this one lacks.
    return attacks[attack].remedy if attack in attacks.names else FEWER_EPOCHS


def oriented(scores: Floats, is_real: Flags) -> Floats:
    """Return the scores or their negatives, so that real UIDs have the higher ones.

    The direction of an attack is its author's guess; the peer may guess better.
    """
    is_inverted = evaluate("", scores, is_real, samples=1).auc.value < 0.5
    return -scores if is_inverted else scores


def _passive_steps(sightings: Sequence[Sighting], ranks_seen: Sequence[Ranks]) -> list[PassiveStep]:
    return [
        PassiveStep(
            seen.epoch,
            ranks,
            seen.gradients,
            seen.embeddings,
            seen.logit_columns,
            seen.batch_size or None,
        )
        for seen, ranks in zip(sightings, ranks_seen, strict=True)
    ]


def _active_steps(view: PassiveView) -> list[ActiveStep]:
    """Return the steps as the active party saw them, with the labels that gradients show.

    The passive party does not know the peer's labels. For UIDs that the peer has, gradients show
    them. For the others they show synthetic labels, which the peer would not ask about.
    """
    return [
        ActiveStep(
            step.epoch, ranks, step.embeddings, labels.astype(np.float32), step.logit_columns
        )
        for step, (ranks, labels) in zip(view.steps, shown_classes(view), strict=True)
    ]


def _scores(
    attacks: Registry[Attack[V]], view: V, truth: Flags
) -> tuple[dict[str, Floats], dict[str, str]]:
    """Return the scores of each possible attack, and why the others are not possible."""
    scores, skipped = {}, {}
    examples = _with_known_stand_ins(view, truth)
    for name in attacks.names:
        attack = attacks[name]
        shown = examples if "known stand-ins" in attack.needs else view
        reason = attack.reason_to_skip(shown)
        if reason is not None:
            skipped[name] = reason
            continue
        try:
            found = np.full(len(view.uids), np.nan)
            found[shown.uids] = attack.score(shown)
            scores[name] = found
        except ValueError as error:  # from numpy, without a solution or with too few rows
            # This must not end a run. The log shows that the attack is missing.
            log.warning("self-audit: the attack %s cannot be computed: %s", name, error)
            skipped[name] = "could not be computed"
    return scores, skipped


def _with_known_stand_ins(view: V, truth: Flags) -> V:
    """Return the view of a peer who knows some of our stand-ins.

    We do not know the peer's dummies, so some of all stand-ins, chosen at random, take their place.
    They are not scored. A real peer has this many only if it uses many dummies.
    """
    synthetic = np.flatnonzero(~truth)
    count = min(KNOWN_STAND_INS, len(synthetic) // 4)
    known = np.sort(np.random.default_rng(0).permutation(synthetic)[:count])
    return replace(view, uids=np.setdiff1d(view.uids, known), known_stand_ins=known)
