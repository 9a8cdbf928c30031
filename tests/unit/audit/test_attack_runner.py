"""The peer's attacks on our own rows find planted leaks, in either direction."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.attack_runner import KNOWN_STAND_INS, attack_as_peer, oriented
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
    found = attack_as_peer(role, seen, real, samples=100)
    return {result.attack: result for result in found.results}


def test_labels_that_surprise_are_found_in_what_the_active_party_sends() -> None:
    found = results("active", length=5.0)
    assert set(found) == set(PASSIVE_ATTACKS.names) - {
        "posterior-gap",
        "share-fit",
        "aggregate-posterior",
        "aggregate-boosting",
    }
    assert found["gradient-norm"].auc.low > 0.95
    assert found["gradient-norm"].finds_real[0.01].low > 0.5
    assert found["gradient-norm"].real + found["gradient-norm"].synthetic == len(UIDS)
    assert results("active")["gradient-norm"].folded_auc.low < 0.53


def test_features_that_change_are_found_in_what_the_passive_party_sends() -> None:
    found = results("passive", moved=1.0)
    assert set(found) == set(ACTIVE_ATTACKS.names) - {"pair", "embedding-donor"}
    assert found["embedding-drift"].auc.low > 0.95
    assert results("passive")["embedding-drift"].folded_auc.low < 0.53


def labelled(strength: float) -> tuple[npt.NDArray[np.bool_], list[Sighting]]:
    """Return one epoch in which the real embeddings of UIDs with label 1 fit the label.

    A last column is added to the logits, so gradients show the labels.
    """
    random = np.random.default_rng(1)
    real = random.random(UNION) < 0.5
    labels = random.random(UNION) < 0.4
    rows = random.normal(size=(UNION, WIDTH))
    rows[:, 0] += strength * (real & labels)
    gradients = np.column_stack([random.normal(size=(UNION, WIDTH - 1)), 0.4 - labels]) / 500
    order = random.permutation(UNION)
    seen = [
        Sighting(
            number,
            0,
            ranks,
            rows[ranks].astype(np.float32),
            gradients[ranks].astype(np.float32),
            logit_columns=1,
            batch_size=500,
        )
        for number, ranks in enumerate(np.split(order, 8))
    ]
    return real, seen


def test_a_leak_in_one_stratum_is_found_there() -> None:
    real, seen = labelled(2.0)
    found = attack_as_peer("passive", seen, real, 50, 0.999, stratum_confidence=0.9999)
    worst = found.worst["likelihood-mlp"]
    assert worst.stratum == "label 1"
    whole = {result.attack: result for result in found.results}["likelihood-mlp"]
    assert worst.result.folded_auc.low > whole.folded_auc.high
    # The windows of this run have the same leak.
    assert {each.kind for each in found.worst.values()} <= {"label", "window"}


def test_strata_without_a_leak_are_at_chance() -> None:
    real, seen = labelled(0.0)
    found = attack_as_peer("passive", seen, real, 50, 0.999, stratum_confidence=0.9999)
    assert found.worst
    assert [w for w in found.worst.values() if w.result.folded_auc.low > 0.5] == []
    assert not attack_as_peer("passive", seen, real, 50, 0.999).worst


def test_the_passive_party_attacks_itself_with_the_labels_that_gradients_show() -> None:
    real, seen = labelled(3.0)
    found = {r.attack: r for r in attack_as_peer("passive", seen, real, samples=50).results}
    assert found["label-likelihood"].folded_auc.low > 0.55


def test_known_stand_ins_are_a_sample_that_is_not_scored() -> None:
    real, seen = labelled(0.0)
    for role in ("active", "passive"):
        found = {r.attack: r for r in attack_as_peer(role, seen, real, samples=20).results}
        others = found["spectral"]
        assert (others.real, others.synthetic) == (real.sum(), (~real).sum())
        assert found["known-stand-ins"].real == real.sum()
        expected = (~real).sum() - min(KNOWN_STAND_INS, (~real).sum() // 4)
        assert found["known-stand-ins"].synthetic == expected


def test_what_cannot_be_attacked_is_named_with_the_reason() -> None:
    real, seen = labelled(0.0)
    ours = attack_as_peer("active", seen, real, samples=20)
    assert ours.skipped["posterior-gap"] == "needs features of the attacker's own"
    assert ours.skipped["flips"] == "needs two epochs"
    theirs = attack_as_peer("passive", seen, real, samples=20)
    assert {"pair", "embedding-donor", "embedding-drift"} <= set(theirs.skipped)
    assert set(theirs.skipped) | {r.attack for r in theirs.results} == set(ACTIVE_ATTACKS.names)


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
