"""The learned attack finds combined signals that no other attack finds, and nothing in noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from florist.common.audit.attacks import ACTIVE_ATTACKS, PASSIVE_ATTACKS
from florist.common.audit.statistics import evaluate
from florist.experiments.learned_attack import LearnedAttack, features_of
from tests.unit.audit.views import active, half_real, in_float16, is_at_chance, passive

Array = npt.NDArray[Any]

SIZE, OWN, WIDTH, EPOCHS = 1500, 1100, 5, 2


def traits(seed: int) -> tuple[Array, Array, Array]:
    """Two independent random traits of each UID, and the truth: whether they differ."""
    first, second = np.random.default_rng(seed).random((2, SIZE)) < 0.5
    return first, second, first ^ second


def rows(seed: int, is_long: Array) -> Array:
    """Rows in random directions, three times as long for some."""
    random = np.random.default_rng(seed)
    found = random.normal(size=(EPOCHS, SIZE, WIDTH))
    directions = found / np.linalg.norm(found, axis=2, keepdims=True)
    return np.asarray(directions * (1 + 2 * is_long)[:, None])


def gradients(seed: int, is_long: Array) -> Array:
    """Gradients along one direction with either sign, three times as long for some."""
    random = np.random.default_rng(seed)
    label = np.where(random.random(SIZE) < 0.3, 1, -1)
    wobble = 0.1 * random.normal(size=(EPOCHS, SIZE, WIDTH))
    return np.asarray((label * (1 + 2 * is_long))[:, None] * (1 + wobble))


def test_the_passive_party_learns_from_combined_lengths() -> None:
    views, truths = [], []
    for seed in (1, 2):
        long_gradient, long_embedding, is_real = traits(seed)
        views.append(passive(gradients(seed, long_gradient), rows(seed + 10, long_embedding)))
        truths.append(is_real)
    attack = LearnedAttack.fit(views[0], truths[0])
    assert attack.name == "learned"
    assert evaluate(attack.name, attack.score(views[1]), truths[1]).auc.low > 0.95
    for name in PASSIVE_ATTACKS.names:
        alone = evaluate(name, PASSIVE_ATTACKS[name].score(views[1]), truths[1], samples=2)
        assert not alone.folded_auc.value >= 0.55  # NaN without features or dummies


def test_the_active_party_learns_from_lengths_and_labels() -> None:
    views, truths = [], []
    for seed in (1, 2):
        label, is_long, is_real = traits(seed)
        # Another scale does not matter.
        views.append(active(7.0 * seed * rows(seed + 10, is_long), label, np.arange(OWN)))
        truths.append(is_real[:OWN])
    attack = LearnedAttack.fit(views[0], truths[0])
    assert evaluate(attack.name, attack.score(views[1]), truths[1]).auc.low > 0.95
    for name in ACTIVE_ATTACKS.names:
        alone = evaluate(name, ACTIVE_ATTACKS[name].score(views[1]), truths[1], samples=2)
        assert not alone.folded_auc.value >= 0.55  # likewise


def test_nothing_is_learned_from_noise() -> None:
    none = np.zeros(SIZE, dtype=bool)
    ours = [passive(gradients(seed, none), rows(seed + 10, none)) for seed in (1, 2)]
    theirs = [active(rows(seed, none), half_real(SIZE, seed)) for seed in (1, 2)]
    assert is_at_chance(LearnedAttack.fit(ours[0], half_real(SIZE, 77)).score(ours[1]))
    assert is_at_chance(LearnedAttack.fit(theirs[0], half_real(SIZE, 77)).score(theirs[1]))


def test_one_epoch_and_half_precision_suffice() -> None:
    label, is_long, is_real = traits(3)
    view = active(rows(4, is_long)[:1], label, np.arange(0, SIZE, 2))
    attack = LearnedAttack.fit(view, is_real[::2])
    scores = attack.score(in_float16(view))
    assert evaluate("learned", scores, is_real[::2], samples=2).auc.value > 0.95


def test_features_are_comparable_between_runs() -> None:
    """They do not depend on scale, order of rows or number of batches."""
    first, second, _ = traits(5)
    received, sent = gradients(5, first), rows(6, second)
    ours, scaled = passive(received, sent), passive(2.0**12 * received, 2.0**12 * sent)
    assert np.allclose(features_of(ours), features_of(scaled), atol=2e-3, equal_nan=True)


def test_a_shadow_run_needs_the_truth_and_both_kinds() -> None:
    view = passive(np.ones((1, 100, 2)))
    with pytest.raises(ValueError, match="differ in length"):
        LearnedAttack.fit(view, np.ones(99, dtype=bool))
    with pytest.raises(ValueError, match="20 real and 20 synthetic"):
        LearnedAttack.fit(view, np.arange(100) < 5)


def test_unseen_uids_have_no_score() -> None:
    first, second, is_real = traits(1)
    view = passive(gradients(1, first), rows(11, second))
    cut = type(view)(view.union_size, view.uids, view.steps[:3])
    scores = LearnedAttack.fit(view, is_real).score(cut)
    seen = np.concatenate([step.ranks for step in cut.steps])
    assert np.array_equal(np.flatnonzero(~np.isnan(scores)), np.sort(seen))
