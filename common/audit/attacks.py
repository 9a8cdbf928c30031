"""The attacks by name.

An attack turns what a party saw into a score for each of the view's UIDs, in their order: the
higher, the more likely is it that the peer's data for this UID are real, so that the peer has it
too. NaN where the attack has seen nothing to judge by. Which way an attack leans is a guess that
may be wrong: figures folded at 0.5 count both ways.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from florist.common.audit import attacks_on_embeddings as on_embeddings
from florist.common.audit import attacks_on_gradients as on_gradients
from florist.common.audit.spectral import spectral
from florist.common.core.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.audit.view import ActiveView, Floats, PassiveView

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Attack(Generic[V]):
    """A name, and the function that scores UIDs."""

    name: str
    score: Callable[[V], Floats]


#: By the passive party, on labels.
PASSIVE_ATTACKS: Registry[Attack[PassiveView]] = Registry("attack of the passive party")
PASSIVE_ATTACKS.register(Attack("spectral", spectral))
PASSIVE_ATTACKS.register(Attack("gradient-norm", on_gradients.gradient_norm))
PASSIVE_ATTACKS.register(Attack("gradient-direction", on_gradients.gradient_direction))
PASSIVE_ATTACKS.register(Attack("flips", on_gradients.flips))
PASSIVE_ATTACKS.register(Attack("label-likelihood", on_gradients.label_likelihood))
PASSIVE_ATTACKS.register(Attack("memorisation", on_gradients.memorisation))

#: By the active party, on features.
ACTIVE_ATTACKS: Registry[Attack[ActiveView]] = Registry("attack of the active party")
ACTIVE_ATTACKS.register(Attack("spectral", spectral))
ACTIVE_ATTACKS.register(Attack("embedding-collision", on_embeddings.embedding_collision))
ACTIVE_ATTACKS.register(Attack("embedding-twin", on_embeddings.embedding_twin))
ACTIVE_ATTACKS.register(Attack("embedding-donor", on_embeddings.embedding_donor))
ACTIVE_ATTACKS.register(Attack("embedding-drift", on_embeddings.embedding_drift))
ACTIVE_ATTACKS.register(Attack("label-likelihood", on_embeddings.label_likelihood))
ACTIVE_ATTACKS.register(Attack("memorisation", on_embeddings.memorisation))
