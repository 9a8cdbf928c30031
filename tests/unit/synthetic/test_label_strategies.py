"""Synthetic labels: each strategy against a slow, simple version, and its statistics."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import numpy as np
import pytest
import torch

from florist.common.core.errors import ConfigurationError
from florist.common.core.registry import Registry
from florist.common.settings.agreement import LabelStrategyName
from florist.common.synthetic.calibration import Calibration, Mixture
from florist.common.synthetic.label_draws import LabelDraws
from florist.common.synthetic.label_strategies import (
    LABEL_STRATEGIES,
    LabelNeighbors,
    LabelRequest,
    LabelStrategy,
    class_frequencies,
    label_strategy,
    targets,
)
from florist.common.synthetic.rate_matching import with_rates
from florist.common.synthetic.secret_draws import SecretDraws

if TYPE_CHECKING:
    from torch import Tensor

NAMES = (
    "label-majority",
    "label-minority",
    "label-random-pos",
    "label-random-pred",
    "label-neighbors",
)
MULTI_CLASS = NAMES[2:]
DRAWS = SecretDraws.from_seed(5)


def request(
    rows: int = 40, classes: int = 2, *, samples: int = 1, real: float = 0.5, seed: int = 0
) -> LabelRequest:
    """Return a random mini-batch."""
    generator = torch.Generator().manual_seed(seed)
    has_label = torch.rand(rows, generator=generator) < real
    labels = torch.randint(classes, (rows,), generator=generator)
    logits = 2 * torch.randn(rows, classes, generator=generator)
    frequencies = torch.rand(classes, generator=generator, dtype=torch.float64) + 0.1
    frequencies /= frequencies.sum()
    ranks = np.flatnonzero(~has_label.numpy())
    return LabelRequest(
        has_label=has_label,
        labels=labels.where(has_label, -1),
        uniforms=LabelDraws(DRAWS, samples).for_rows(ranks, 0),
        predictions=logits[:, 0].sigmoid() if classes == 2 else logits.softmax(1),
        embeddings=torch.randn(rows, 6, generator=generator),
        frequencies=tuple(frequencies.tolist()),
    )


def sampled(uniforms: list[float], probabilities: list[float]) -> list[float]:
    """Return the share of each class among labels sampled by a slow, simple version."""
    shares = [0.0] * len(probabilities)
    for uniform in uniforms:
        label, below = 0, probabilities[0]
        while uniform >= below and label < len(probabilities) - 1:
            label += 1
            below += probabilities[label]
        shares[label] += 1 / len(uniforms)
    return shares


def as_distributions(values: Tensor) -> Tensor:
    """Return distributions over two classes in the sampler's order, class 1 first."""
    return torch.stack((values, 1 - values), 1) if values.ndim == 1 else values


def test_names() -> None:
    assert LABEL_STRATEGIES.names == get_args(LabelStrategyName) == NAMES
    assert all(label_strategy(name).name == name for name in NAMES)
    assert [n for n in NAMES if label_strategy(n).multi_class] == list(MULTI_CLASS)
    assert [n for n in NAMES if label_strategy(n).needs_whole_batch] == ["label-neighbors"]


def test_unknown_and_duplicate_names() -> None:
    with pytest.raises(ConfigurationError, match=r"'label-magic'; choose one of: label-maj"):
        label_strategy("label-magic")
    registry: Registry[LabelStrategy] = Registry("label strategy")
    registry.register(LabelNeighbors())
    with pytest.raises(ValueError, match="already registered"):
        registry.register(LabelNeighbors(k=5))


@pytest.mark.parametrize("name", ["label-majority", "label-minority"])
def test_constant_labels_are_for_two_classes(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"only two classes.*label-random-pred"):
        label_strategy(name, classes=3)


@pytest.mark.parametrize(
    ("frequencies", "majority"), [((0.8, 0.2), 0), ((0.3, 0.7), 1), ((0.5, 0.5), 0)]
)
def test_majority_is_computed_from_own_labels(
    frequencies: tuple[float, float], majority: int
) -> None:
    batch = replace(request(), frequencies=frequencies)
    missing = len(batch.uniforms)
    assert label_strategy("label-majority").fill(batch).tolist() == [majority] * missing
    assert label_strategy("label-minority").fill(batch).tolist() == [1 - majority] * missing


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("samples", [1, 4])
def test_random_pos_equals_the_slow_version(classes: int, samples: int) -> None:
    batch = request(classes=classes, samples=samples)
    filled = label_strategy("label-random-pos", classes).fill(batch)
    order = [1, 0] if classes == 2 else list(range(classes))
    frequencies = [batch.frequencies[c] for c in order]
    expected = [sampled(row, frequencies) for row in batch.uniforms.tolist()]
    torch.testing.assert_close(as_distributions(filled), torch.tensor(expected))


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("samples", [1, 4])
def test_random_pred_equals_the_slow_version(classes: int, samples: int) -> None:
    batch = request(classes=classes, samples=samples)
    filled = label_strategy("label-random-pred", classes).fill(batch)
    missing = ~batch.has_label
    matched = with_rates(batch.predictions, batch.has_label, batch.frequencies, missing)
    predictions = as_distributions(matched)
    expected = [
        sampled(*pair) for pair in zip(batch.uniforms.tolist(), predictions.tolist(), strict=True)
    ]
    torch.testing.assert_close(as_distributions(filled), torch.tensor(expected))


@pytest.mark.parametrize("classes", [2, 5])
def test_random_labels_have_the_right_rates(classes: int) -> None:
    batch = request(60_000, classes, seed=3)
    missing = as_distributions(
        with_rates(batch.predictions, batch.has_label, batch.frequencies, ~batch.has_label)
    )
    pred = as_distributions(label_strategy("label-random-pred", classes).fill(batch))
    pos = as_distributions(label_strategy("label-random-pos", classes).fill(batch))
    frequencies = torch.tensor(batch.frequencies)
    frequencies = frequencies.flip(0) if classes == 2 else frequencies
    assert (pos.mean(0) - frequencies).abs().max() < 0.015
    assert (pred.mean(0) - frequencies).abs().max() < 0.015
    # Also for high and for low predictions only.
    for rows in (missing[:, 0] > 0.6, missing[:, 0] < 0.1):
        assert (pred[rows].mean(0) - missing[rows].mean(0)).abs().max() < 0.02


def test_certain_predictions_give_certain_labels() -> None:
    sure = replace(
        request(1000, real=0.0), predictions=torch.cat((torch.zeros(500), torch.ones(500)))
    )
    assert label_strategy("label-random-pred").fill(sure).tolist() == [0.0] * 500 + [1.0] * 500


def neighbours_vote(batch: LabelRequest, k: int) -> list[int]:
    """Return the labels by brute force: the cosine of every pair, then a count."""
    vectors = batch.embeddings.double().tolist()
    has_label, labels = batch.has_label.tolist(), batch.labels.tolist()
    winners = []
    for i, row in enumerate(vectors):
        if has_label[i]:
            continue
        similarity = {}
        for j, other in enumerate(vectors):
            if has_label[j]:
                dot = sum(a * b for a, b in zip(row, other, strict=True))
                similarity[j] = dot / (math.hypot(*row) * math.hypot(*other))
        nearest = [labels[j] for j in sorted(similarity, key=lambda j: -similarity[j])[:k]]
        most = max(nearest.count(label) for label in nearest)
        winners.append(next(label for label in nearest if nearest.count(label) == most))
    return winners


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("block", [7, 1024])
def test_neighbors_by_brute_force(classes: int, k: int, block: int) -> None:
    batch = request(150, classes, seed=k)
    filled = LabelNeighbors(k, block).fill(batch)
    labels = filled if classes == 2 else filled.argmax(1)
    assert labels.tolist() == neighbours_vote(batch, k)
    assert filled.dtype == torch.float32
    if classes > 2:
        assert torch.equal(filled.sum(1), torch.ones(len(filled)))


def test_neighbors_with_few_real_rows() -> None:
    for real in (1, 2):
        has_label = torch.arange(30) < real
        few = replace(
            request(30),
            has_label=has_label,
            labels=torch.where(has_label, 1, -1),
            uniforms=torch.zeros(30 - real, 1),
        )
        assert LabelNeighbors().fill(few).tolist() == [1.0] * (30 - real)
    none = request(30, real=0.0)
    expected = label_strategy("label-random-pos").fill(none)
    assert torch.equal(LabelNeighbors().fill(none), expected)


def test_a_zero_embedding_has_neighbors() -> None:
    batch = request()
    batch.embeddings.zero_()
    assert set(LabelNeighbors().fill(batch).tolist()) <= {0.0, 1.0}


@pytest.mark.parametrize("k", [0, 51])
def test_neighbors_refuse_an_invalid_k(k: int) -> None:
    with pytest.raises(ConfigurationError, match="between 1 and 50"):
        LabelNeighbors(k)


def test_a_batch_of_the_default_size_works() -> None:
    batch = request(8192, real=0.5)
    assert len(LabelNeighbors().fill(batch)) == len(batch.uniforms)


@pytest.mark.parametrize(
    ("name", "classes"), [*((name, 2) for name in NAMES), *((name, 4) for name in MULTI_CLASS)]
)
@pytest.mark.parametrize("real", [0.0, 0.5, 1.0])
def test_targets_keep_real_labels(name: str, classes: int, real: float) -> None:
    batch = request(classes=classes, samples=2, real=real)
    strategy = label_strategy(name, classes)
    whole = targets(strategy, batch)
    assert whole.dtype == torch.float32
    assert not whole.requires_grad
    for row, has_label, label in zip(whole, batch.has_label, batch.labels, strict=True):
        if has_label:
            one_hot = [float(c == label) for c in range(classes)]
            assert row.tolist() == (one_hot[1] if classes == 2 else one_hot)
    assert torch.equal(whole[~batch.has_label], strategy.fill(batch))


def test_a_request_needs_a_uniform_per_missing_label() -> None:
    batch = request()
    with pytest.raises(ValueError, match="missing labels"):
        replace(batch, uniforms=batch.uniforms[1:])


def test_sticky_labels_flip_only_where_the_prediction_crosses() -> None:
    batch = request(2000, real=0.0)
    strategy = label_strategy("label-random-pred")
    before = strategy.fill(batch)
    batch.predictions.add_(0.01).clamp_(0, 1)
    after = strategy.fill(batch)
    assert torch.all(after >= before)
    assert 0.0 < (after != before).double().mean() < 0.03


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("when", ["none", "train"])
def test_mean_gradient_of_samples_is_gradient_of_mean_label(classes: int, when: str) -> None:
    batch = request(classes=classes, samples=5)
    calibration = Calibration(
        "train" if when == "train" else "none",
        Mixture(0.4, tuple(0.6 / classes for _ in range(classes))),
    )
    strategy = label_strategy("label-random-pred", classes)
    missing = ~batch.has_label
    logits = torch.randn(batch.predictions.shape, dtype=torch.float64)[missing]

    def gradient(uniforms: Tensor) -> Tensor:
        leaf = logits.clone().requires_grad_()
        labels = strategy.fill(replace(batch, uniforms=uniforms)).double()
        calibration.loss(leaf, labels).backward()
        assert leaf.grad is not None
        return leaf.grad

    each = [gradient(batch.uniforms[:, [i]]) for i in range(5)]
    assert not torch.equal(each[0], each[1])
    torch.testing.assert_close(
        torch.stack(each).mean(0), gradient(batch.uniforms), rtol=0, atol=1e-7
    )


def test_class_frequencies() -> None:
    assert class_frequencies(np.array([0, 1, 0, 0])) == (0.75, 0.25)
    assert class_frequencies(np.array([2, 2]), 4) == (0, 0, 1, 0)
    with pytest.raises(ConfigurationError, match="no label"):
        class_frequencies(np.array([], dtype=np.int64))
    for wrong in ([0, 2], [-1, 0]):
        with pytest.raises(ConfigurationError, match="from 0 to 1"):
            class_frequencies(np.array(wrong))
