"""The peer's attacks on our own rows find planted leaks, in either direction."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.attack_runner import attack_as_peer, oriented
from florist.common.audit.attacks import ACTIVE_ATTACKS, PASSIVE_ATTACKS, Attack
from florist.common.audit.recorder import Sighting
from florist.common.core.registry import Registry

if TYPE_CHECKING:
    import numpy.typing as npt
    import pytest

    from florist.common.audit.statistics import AttackResult
    from florist.common.audit.view import PassiveView
    from florist.common.core.roles import RoleName

UNION, WIDTH = 4000, 4
#: Those that are seen, far apart in the union.
UIDS = np.arange(0, UNION, 5)


def sightings(real: npt.NDArray[np.bool_], *, length: float, moved: float) -> list[Sighting]:
    """Return two epochs; synthetic rows have `length` times longer gradients, and move."""
    random = np.random.default_rng(1)
    embeddings = random.normal(size=(UNION, WIDTH))
    direction = random.normal(size=WIDTH)
    found: list[Sighting] = []
    for epoch in range(2):
        ranks = random.permutation(UIDS)
        size = random.choice([-1.0, 1.0], len(ranks)) * random.uniform(0.5, 1.5, len(ranks))
        size[~real[ranks]] *= length
        rows = embeddings[ranks] + epoch * moved * ~real[ranks, None] * random.normal(
            size=(len(ranks), WIDTH)
        )
        noise = 0.01 * random.normal(size=(len(ranks), WIDTH))
        for part in np.split(np.arange(len(ranks)), 4):
            found.append(
                Sighting(
                    len(found),
                    epoch,
                    ranks[part],
                    rows[part].astype(np.float32),
                    (size[part, None] * direction + noise[part]).astype(np.float32),
                )
            )
    return found


def results(role: RoleName, *, length: float = 1.0, moved: float = 0.0) -> dict[str, AttackResult]:
    real = np.random.default_rng(2).random(UNION) < 0.6
    seen = sightings(real, length=length, moved=moved)
    return {result.attack: result for result in attack_as_peer(role, seen, real, samples=100)}


def test_labels_that_surprise_are_found_in_what_the_active_party_sends() -> None:
    found = results("active", length=5.0)
    assert set(found) == set(PASSIVE_ATTACKS.names)
    assert found["gradient-norm"].auc.low > 0.95
    assert found["gradient-norm"].finds_real[0.01].low > 0.5
    assert found["gradient-norm"].real + found["gradient-norm"].synthetic == len(UIDS)
    assert results("active")["gradient-norm"].folded_auc.low < 0.53


def test_features_that_change_are_found_in_what_the_passive_party_sends() -> None:
    found = results("passive", moved=1.0)
    assert set(found) == set(ACTIVE_ATTACKS.names)
    assert found["embedding-drift"].auc.low > 0.95
    assert results("passive")["embedding-drift"].folded_auc.low < 0.53


def test_scores_are_inverted_if_needed() -> None:
    real = np.array([True, True, False, False, True])
    scores = np.array([1.0, 2.0, 3.0, np.inf, np.nan])
    assert np.array_equal(oriented(scores, real), -scores, equal_nan=True)
    assert np.array_equal(oriented(-scores, real), -scores, equal_nan=True)
    assert np.array_equal(oriented(scores, np.ones(5, dtype=np.bool_)), scores, equal_nan=True)
    nothing = np.full(5, np.nan)
    assert np.array_equal(oriented(nothing, real), nothing, equal_nan=True)


def test_a_failing_attack_does_not_affect_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: PassiveView) -> npt.NDArray[np.float64]:
        raise np.linalg.LinAlgError("no solution")

    attacks: Registry[Attack[PassiveView]] = Registry("attack")
    attacks.register(Attack("hopeless", fails))
    attacks.register(PASSIVE_ATTACKS["gradient-norm"])
    monkeypatch.setattr("florist.common.audit.attack_runner.PASSIVE_ATTACKS", attacks)
    monkeypatch.setattr(logging.getLogger("florist"), "propagate", True)
    assert set(results("active")) == {"gradient-norm"}
    assert "hopeless" in caplog.text
