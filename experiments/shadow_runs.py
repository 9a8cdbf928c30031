"""Shadow runs for the learned attack: the attacker simulates both parties on its own people.

The attacker is assumed to know both labels and features of its people, as if it had a table like
its peer's. The results are therefore an upper bound for this attack.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from florist.experiments.learned_attack import LearnedAttack
from florist.experiments.simulation import Holdings, World, observe

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.core.roles import RoleName
    from florist.experiments.simulation import Seen, SimulationSettings

    Rows = npt.NDArray[np.int64]
    Scores = npt.NDArray[np.float64]

#: Added to the seed, so that a shadow run has its own weights, order and draws.
_OTHER_SEED = 1_000_003


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ShadowSplit:
    """The rows of the attacker's own table that each simulated party gets."""

    active: Rows
    passive: Rows


def shadow_split(rows: int, active: int, passive: int, union: int, seed: int = 0) -> ShadowSplit:
    """Split the attacker's own rows in the proportions of the real run.

    Args:
        rows: number of rows of the attacker's own table.
        active: size of the active party's set in the real run, dummies included.
        passive: size of the passive party's set, likewise.
        union: size of their union.
        seed: seed of the split.

    Raises:
        ValueError: no two sets of these sizes have such a union.
    """
    shared = active + passive - union
    if not 0 <= shared <= min(active, passive):
        raise ValueError(f"sets of {active} and {passive} have no union of {union}")
    order = np.random.default_rng(seed).permutation(rows)
    both, either = round(rows * shared / union), round(rows * active / union)
    return ShadowSplit(
        np.sort(order[:either]), np.sort(np.concatenate([order[:both], order[either:]]))
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ShadowRuns:
    """Makes shadow runs of either party from the run that is attacked."""

    world: World
    holdings: Holdings
    union_size: int
    settings: SimulationSettings

    def scores(self, attacker: RoleName, seen: Seen) -> Scores | None:
        """Return scores of the UIDs that `attacker` attacks; None if it has too few people."""
        own = self.holdings.passive if attacker == "passive" else self.holdings.active
        world = World(
            self.world.features.take(own),
            self.world.labels[own],
            self.world.cardinalities,
            self.world.own_features.take(own) if self.world.own_features is not None else None,
            self.world.own_cardinalities,
        )
        split = shadow_split(
            len(own),
            self.holdings.set_size("active"),
            self.holdings.set_size("passive"),
            self.union_size,
            seed=self.settings.seed,
        )
        settings = replace(self.settings, seed=self.settings.seed + _OTHER_SEED)
        simulated = Holdings(split.active, split.passive)
        if not len(simulated.shared.active):
            return None
        shadow = observe(world, simulated, None, settings).seen
        assert shadow is not None
        try:
            if attacker == "passive":
                is_real = shadow.has_label[shadow.passive.uids]
                return LearnedAttack.fit(shadow.passive, is_real).score(seen.passive)
            is_real = shadow.has_features[shadow.active.uids]
            return LearnedAttack.fit(shadow.active, is_real).score(seen.active)
        except ValueError:
            return None
