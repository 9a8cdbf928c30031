"""The learned attack in an experiment: the attacker trains by itself, on people whom it has.

Its shadow run is made as generously as can be: it knows its people's labels and features both, as
if it had a table like its peer's at hand. So its figures are an upper bound for this attack.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from florist.experiments.learned_attacks import LearnedAttack
from florist.experiments.shadow_attack import shadow_split
from florist.experiments.simulation import Holdings, World, observe

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from florist.common.core.roles import RoleName
    from florist.experiments.simulation import Seen, SimulationSettings

    Scores = npt.NDArray[np.float64]

#: Added to the seed: weights, order and draws of a shadow run are its own.
_OTHER_SEED = 1_000_003


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ShadowRuns:
    """What shadow runs of either party are made from: the run that is attacked."""

    world: World
    holdings: Holdings
    union_size: int
    settings: SimulationSettings

    def scores(self, attacker: RoleName, seen: Seen) -> Scores | None:
        """Of the UIDs that `attacker` asks about; None if it has too few people to learn from."""
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
            len(self.holdings.active) + self.holdings.dummies,
            len(self.holdings.passive),
            self.union_size,
            seed=self.settings.seed,
        )
        settings = replace(self.settings, seed=self.settings.seed + _OTHER_SEED)
        made_up = Holdings(split.active, split.passive)
        if not len(made_up.shared.active):
            return None
        shadow = observe(world, made_up, None, settings).seen
        assert shadow is not None
        try:
            if attacker == "passive":
                is_real = shadow.has_label[shadow.passive.uids]
                return LearnedAttack.fit(shadow.passive, is_real).score(seen.passive)
            is_real = shadow.has_features[shadow.active.uids]
            return LearnedAttack.fit(shadow.active, is_real).score(seen.active)
        except ValueError:
            return None
