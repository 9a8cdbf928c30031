"""Attacks are registered by the modules of `audit/attacks`, each under a name of its own."""

from __future__ import annotations

from pkgutil import iter_modules
from typing import TYPE_CHECKING

import pytest

from florist.common.audit import attacks
from florist.common.audit.attack_registry import FEWER_EPOCHS, LABEL_STRATEGY, passive_attack
from florist.common.audit.attack_runner import remedy
from florist.common.audit.attacks import ACTIVE_ATTACKS, PASSIVE_ATTACKS
from florist.common.core.errors import ConfigurationError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from florist.common.audit.view import PassiveView

PASSIVE = {
    "spectral",
    "gradient-norm",
    "gradient-direction",
    "flips",
    "label-likelihood",
    "memorisation",
}
ACTIVE = {
    "spectral",
    "embedding-collision",
    "embedding-twin",
    "embedding-donor",
    "embedding-drift",
    "label-likelihood",
    "memorisation",
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


def test_remedies() -> None:
    assert remedy("active", "spectral") == LABEL_STRATEGY
    assert remedy("passive", "memorisation") == FEWER_EPOCHS
    assert remedy("passive", "of another release") == FEWER_EPOCHS
