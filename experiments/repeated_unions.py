"""Set membership from the sizes of repeated unions, with and without private counts.

A party that may run several unions with the same peer can choose the subset of its people that
takes part in each. If a target makes the overlap grow by one whenever it is included, the peer has
the target. With exact counts two unions are enough. With private counts each size has noise, and n
unions are (nε, nδ)-private; the ledger adds that up and refuses beyond the budget.

Two attackers are simulated. One knows the overlap without the target, as the guarantee allows: it
gets the likelihood ratio of all its observations. The other knows nothing, and includes each of
several targets in a random half of the unions, so that every union tells about all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.statistics import evaluate
from florist.common.privacy.count_noise import CountNoise

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from florist.common.audit.statistics import AttackResult

    Flags = npt.NDArray[np.bool_]
    Counts = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

#: The false positive rate at which true positive rates are reported.
FALSE_POSITIVES = 0.01

#: Stands for a likelihood ratio that is infinite; larger than any sum of finite ones.
_CERTAIN = 1e6


def overlaps(
    members: Flags,
    included: Flags,
    rest: int,
    noise: CountNoise | None,
    random: np.random.Generator,
) -> Counts:
    """Return the overlap that the attacker computes from the sizes of each union.

    With private counts it is `i + Z`: the attacker knows all its own draws, and removes them.

    Args:
        members: for each target, whether the peer has it.
        included: (unions, targets), whether the attacker includes the target.
        rest: the number of other people whom both have, the same in all unions.
        noise: the distribution of the peer's draws; None for exact counts.
        random: the source of the draws.
    """
    exact: Counts = rest + included.astype(np.int64) @ members.astype(np.int64)
    if noise is None:
        return exact
    return exact + random.choice(noise.pool_size + 1, size=len(exact), p=_probabilities(noise))


def likelihood_ratios(
    observed: Counts, included: Flags, rest: int, noise: CountNoise | None
) -> float:
    """Return the log likelihood ratio of one target being a member, for an attacker who knows more.

    Args:
        observed: what `overlaps` returns for one target.
        included: (unions,), whether the target was included.
        rest: the overlap without the target, which the attacker knows.
        noise: the distribution of the peer's draws; None for exact counts.
    """
    draws = observed[included] - rest
    if noise is None:
        return float(np.where(draws > 0, _CERTAIN, -_CERTAIN).sum())
    # One more place at each end: those draws have probability 0 without, or with, the target.
    padded = np.concatenate([_probabilities(noise), [0.0]])
    without, given = padded[draws], np.concatenate([[0.0], padded[:-1]])[draws]
    with np.errstate(divide="ignore"):
        ratios = np.log(given) - np.log(without)
    return float(np.clip(ratios, -_CERTAIN, _CERTAIN).sum())


def subset_scores(observed: Counts, included: Flags, noise: CountNoise | None) -> Floats:
    """Return a score per target for an attacker who knows nothing but its subsets.

    This is the posterior mean of a linear model in which each target is a member with probability
    1/2 and the overlap without targets is unknown.
    """
    inputs = included - included.mean(axis=0)
    variance = 1e-6 if noise is None else noise.deviation**2
    ridge = 4 * variance * np.eye(inputs.shape[1])  # a membership has variance 1/4
    centred = observed - observed.mean()
    found: Floats = np.linalg.solve(inputs.T @ inputs + ridge, inputs.T @ centred)
    return found


def highest_auc(epsilon: float, delta: float) -> float:
    """Return the highest AUC of any test between neighbours that are (epsilon, delta)-private."""
    return 1 - (1 - delta) ** 2 / (1 + math.exp(epsilon))


def highest_tpr(epsilon: float, delta: float, fpr: float = FALSE_POSITIVES) -> float:
    """Return the highest true positive rate at a false positive rate, likewise."""
    return min(
        math.exp(epsilon) * fpr + delta, 1 - math.exp(-epsilon) * max(1 - delta - fpr, 0.0), 1.0
    )


@dataclass(frozen=True, slots=True)
class SizesPlan:
    """What to simulate."""

    epsilon: float = 1.0
    delta: float = 1e-9
    #: Numbers of unions with the same peer.
    unions: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    #: Targets that the attacker who knows nothing includes in the same unions.
    targets: int = 8
    #: Number of simulated targets.
    people: int = 4000
    #: The overlap without the targets.
    rest: int = 1000
    seed: int = 0


@dataclass(frozen=True, slots=True)
class SizesRow:
    """The attacks after a number of unions, and the bounds on any attack on private counts."""

    unions: int
    #: The attacker who knows nothing, with exact counts; undefined after one union.
    exact: AttackResult
    #: The same with private counts, and the attacker who knows the overlap without the target.
    private: AttackResult
    private_informed: AttackResult
    highest_auc: float
    highest_tpr: float


def measure_sizes(plan: SizesPlan) -> list[SizesRow]:
    """Simulate both attackers for each number of unions."""
    noise = CountNoise.for_guarantee(plan.epsilon, plan.delta)
    return [
        SizesRow(
            unions,
            _by_subsets(plan, unions, None),
            _by_subsets(plan, unions, noise),
            _informed(plan, unions, noise),
            highest_auc(unions * plan.epsilon, unions * plan.delta),
            highest_tpr(unions * plan.epsilon, unions * plan.delta),
        )
        for unions in plan.unions
    ]


def _by_subsets(plan: SizesPlan, unions: int, noise: CountNoise | None) -> AttackResult:
    random = np.random.default_rng([plan.seed, unions, noise is None])
    truth, scores = [], []
    for _ in range(-(-plan.people // plan.targets)):
        members = random.random(plan.targets) < 0.5
        # Each target is in half of the unions.
        places = np.argsort(random.random((unions, plan.targets)), axis=0)
        included = places < (unions + 1) // 2
        observed = overlaps(members, included, plan.rest, noise, random)
        truth.append(members)
        scores.append(subset_scores(observed, included, noise))
    return evaluate("subsets", np.concatenate(scores), np.concatenate(truth), samples=200)


def _informed(plan: SizesPlan, unions: int, noise: CountNoise) -> AttackResult:
    random = np.random.default_rng([plan.seed, unions, 2])
    members = random.random(plan.people) < 0.5
    included = np.ones(unions, dtype=np.bool_)
    scores = [
        likelihood_ratios(
            overlaps(np.array([member]), included[:, None], plan.rest, noise, random),
            included,
            plan.rest,
            noise,
        )
        for member in members
    ]
    return evaluate("informed", np.array(scores), members, samples=200)


def _probabilities(noise: CountNoise) -> Floats:
    """Return the probability of each draw."""
    weights = np.exp(-float(noise.epsilon) * np.abs(np.arange(noise.pool_size + 1) - noise.radius))
    found: Floats = weights / weights.sum()
    return found


def as_rows(rows: Sequence[SizesRow]) -> list[tuple[str, ...]]:
    """Return the cells of a table below `HEADS`."""
    return [
        (
            str(row.unions),
            _cell(row.exact),
            _cell(row.private),
            _cell(row.private_informed),
            f"{row.highest_auc:.3f} / {row.highest_tpr:.1%}",
        )
        for row in rows
    ]


HEADS = (
    "unions",
    "exact counts",
    "private counts",
    "private, rest known",
    "highest possible (nε, nδ)",
)


def _cell(result: AttackResult) -> str:
    auc, tpr = result.folded_auc, result.true_positive_rate(FALSE_POSITIVES)
    interval = f"({auc.low:.3f}\N{EN DASH}{auc.high:.3f})"
    return f"{auc.value:.3f} {interval} / {tpr.value:.1%}"
