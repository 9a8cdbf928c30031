"""Attacks are registered by the modules of `audit/attacks`, each under a name of its own."""

from __future__ import annotations

from dataclasses import replace
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from florist.common.audit import attacks
from florist.common.audit.attack_registry import FEWER_EPOCHS, LABEL_STRATEGY, passive_attack
from florist.common.audit.attack_runner import remedy
from florist.common.audit.attacks import ACTIVE_ATTACKS, PASSIVE_ATTACKS
from florist.common.core.errors import ConfigurationError
from tests.unit.audit.aggregates import planted_aggregate
from tests.unit.audit.views import active, passive, random_features

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.audit.attack_registry import Need
    from florist.common.audit.view import PassiveView

PASSIVE = {
    "spectral",
    "gradient-norm",
    "gradient-direction",
    "flips",
    "label-likelihood",
    "label-rates",
    "known-stand-ins",
    "memorisation",
    "posterior-gap",
    "share-fit",
    "aggregate-posterior",
    "aggregate-boosting",
}
ACTIVE = {
    "spectral",
    "embedding-collision",
    "embedding-twin",
    "embedding-donor",
    "embedding-drift",
    "label-likelihood",
    "likelihood-mlp",
    "known-stand-ins",
    "memorisation",
    "pair",
}


def test_all_attacks_are_registered() -> None:
    assert set(PASSIVE_ATTACKS.names) == PASSIVE
    assert set(ACTIVE_ATTACKS.names) == ACTIVE


def test_an_attack_is_found_by_its_file_name() -> None:
    files = {module.name.replace("_", "-") for module in iter_modules(attacks.__path__)}
    assert files == PASSIVE | ACTIVE


def test_an_unknown_attack_is_refused_with_the_known_names() -> None:
    with pytest.raises(ConfigurationError, match=r"'magic'; choose one of: .*spectral"):
        PASSIVE_ATTACKS["magic"]


def test_a_name_is_registered_once() -> None:
    def other(view: PassiveView) -> npt.NDArray[np.float64]:
        raise NotImplementedError

    with pytest.raises(ValueError, match="'spectral' is already registered"):
        passive_attack("spectral")(other)


def needs_of(attacks: dict[str, tuple[Need, ...]], need: Need) -> set[str]:
    return {name for name, needs in attacks.items() if need in needs}


def test_an_attack_whose_needs_are_not_met_says_what_it_lacks() -> None:
    passives = {name: PASSIVE_ATTACKS[name].needs for name in PASSIVE_ATTACKS.names}
    actives = {name: ACTIVE_ATTACKS[name].needs for name in ACTIVE_ATTACKS.names}
    ours, theirs = passive(np.ones((1, 300, 2))), active(np.ones((1, 300, 2)), np.full(300, np.nan))
    skipped = {name for name in passives if PASSIVE_ATTACKS[name].reason_to_skip(ours)}
    assert skipped == {name for name, needs in passives.items() if needs}
    skipped = {name for name in actives if ACTIVE_ATTACKS[name].reason_to_skip(theirs)}
    assert skipped == {name for name, needs in actives.items() if needs}
    assert PASSIVE_ATTACKS["flips"].reason_to_skip(ours) == "needs two epochs"

    more: dict[str, Any] = {
        "features": random_features(200),
        "uids": np.arange(200),
        "known_stand_ins": np.arange(200, 220),
        "aggregate": planted_aggregate(0.0)[0].aggregate,
    }
    ours, theirs = passive(np.ones((2, 300, 2))), active(np.ones((2, 300, 2)), np.zeros(300))
    for name in passives:
        assert PASSIVE_ATTACKS[name].reason_to_skip(replace(ours, **more)) is None
    for name in actives:
        assert ACTIVE_ATTACKS[name].reason_to_skip(replace(theirs, **more)) is None
    assert "pair" in needs_of(actives, "features")


def test_remedies() -> None:
    assert remedy("active", "spectral") == LABEL_STRATEGY
    assert remedy("passive", "memorisation") == FEWER_EPOCHS
    assert remedy("passive", "of another release") == FEWER_EPOCHS
