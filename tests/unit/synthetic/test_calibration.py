"""Calibration: mixtures by hand, the loss and its gradients, and models that recover the truth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from florist.common.core.errors import ConfigurationError
from florist.common.evaluation.metrics import ace
from florist.common.session.union_sizes import UnionSizes
from florist.common.settings.agreement import CalibrationTime
from florist.common.synthetic.calibration import (
    Calibration,
    Counts,
    Mixture,
    cross_entropies,
    mixture,
    model_output,
)
from florist.common.synthetic.donor_pool import donor_classes
from florist.common.synthetic.feature_strategies import FeaSampling
from florist.common.synthetic.label_draws import LabelDraws
from florist.common.synthetic.label_strategies import (
    Expectation,
    LabelRequest,
    class_frequencies,
    label_strategy,
    targets,
)
from florist.common.synthetic.secret_draws import SecretDraws
from florist.common.training.shown_labels import shown_labels, shown_predictions
from tests.unit.synthetic.paper_mixtures import (
    both_independent,
    features_only,
    labels_only,
    two_classes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    from torch import Tensor

EXPECTATIONS: tuple[Expectation, ...] = get_args(Expectation)
#: 100 UIDs: 20 shared, 30 of the active party only, 40 of the passive only, 10 dummies.
COUNTS = Counts(union=100, active=50, passive=60, shared=20)
PI = (0.7, 0.3)
LOGITS = [-3e4, -200.0, -90.0, -20.0, -3.0, -0.1, 0.0, 0.5, 4.0, 30.0, 110.0, 500.0, 3e4]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Use one thread, since tensors are small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@st.composite
def mixtures(draw: st.DrawFn, classes: int | None = None) -> Mixture:
    size = classes or draw(st.integers(2, 5))
    parts = draw(st.lists(st.floats(0, 1), min_size=size, max_size=size))
    a = draw(st.floats(0.01, 1))
    total = sum(parts)
    assume(total > 1e-3 or a == 1)
    return Mixture(a, tuple((1 - a) * part / total for part in parts))


@pytest.mark.parametrize(
    ("expectation", "when", "a", "b"),
    [
        ("majority", "train", 0.2, 0.3 * 0.3),
        ("minority", "train", 0.2, 0.3 * 0.3 + 0.5),
        ("frequencies", "test", 0.2, 0.8 * 0.3),
        ("prediction", "train", 0.7, 0.3 * 0.3),
        ("prediction", "test", 0.4, 0.6 * 0.3),
        ("prediction", "none", 0.4, 0.6 * 0.3),
    ],
)
def test_by_hand(expectation: Expectation, when: CalibrationTime, a: float, b: float) -> None:
    """With `fea-sampling`: m = 100, n_a = 50, S = 20, π = 0.3."""
    found = mixture(COUNTS, PI, expectation, when)
    assert found.a == pytest.approx(a)
    assert found.b == pytest.approx((1 - a - b, b))


@pytest.mark.parametrize(
    ("expectation", "a", "b"),
    [
        ("majority", 1 / 3, 0),
        ("minority", 1 / 3, 2 / 3),
        ("frequencies", 1 / 3, 2 / 3 * 0.3),
        ("prediction", 1, 0),
    ],
)
@pytest.mark.parametrize("when", get_args(CalibrationTime))
def test_by_hand_if_synthetic_features_are_recognisable(
    expectation: Expectation, when: CalibrationTime, a: float, b: float
) -> None:
    """With `fea-gaussian`: only the passive party's 60 rows, 20 of them shared, matter."""
    found = mixture(COUNTS, PI, expectation, when, real_features_only=True)
    assert found.a == pytest.approx(a)
    assert found.b[1] == pytest.approx(b)


@pytest.mark.parametrize("expectation", EXPECTATIONS)
@pytest.mark.parametrize("when", get_args(CalibrationTime))
def test_masking_makes_the_label_strategy_irrelevant(
    expectation: Expectation, when: CalibrationTime
) -> None:
    masked = mixture(COUNTS, PI, expectation, when, real_labels_only=True)
    assert masked.a == pytest.approx(0.4)
    assert masked.b == pytest.approx((0.6 * 0.7, 0.6 * 0.3))
    both = mixture(COUNTS, PI, expectation, when, real_labels_only=True, real_features_only=True)
    assert both == Mixture.identity()


@pytest.mark.parametrize(
    ("expectation", "when", "kept", "a"),
    [
        ("prediction", "train", {}, 1),
        ("prediction", "test", {}, 1),
        ("prediction", "train", {"real_labels_only": True}, 1),
        ("prediction", "test", {"real_labels_only": True}, 1),
        ("frequencies", "train", {}, (20 + 30 / 3) / 100),
        ("frequencies", "test", {"real_labels_only": True}, (20 + 30 / 3) / 50),
        ("frequencies", "train", {"real_features_only": True}, 20 / 60),
        ("prediction", "train", {"real_features_only": True}, 1),
    ],
)
def test_by_hand_if_stand_ins_are_matched(
    expectation: Expectation, when: CalibrationTime, kept: dict[str, bool], a: float
) -> None:
    """A third of the passive party's 60 people are shared: so many of 30 donors are right."""
    found = mixture(COUNTS, PI, expectation, when, matched=True, **kept)
    assert found.a == pytest.approx(a)
    assert found.b == pytest.approx(((1 - a) * 0.7, (1 - a) * 0.3))


def test_majority_may_be_the_positive_class() -> None:
    found = mixture(COUNTS, (0.2, 0.8), "majority", "train")
    assert found.b == pytest.approx((0.3 * 0.2, 0.3 * 0.8 + 0.5))


def test_several_classes() -> None:
    frequencies = (0.5, 0.3, 0.2)
    assert mixture(COUNTS, frequencies, "frequencies", "train").b == pytest.approx(
        (0.4, 0.24, 0.16)
    )
    assert mixture(COUNTS, frequencies, "prediction", "train").b == pytest.approx(
        (0.15, 0.09, 0.06)
    )


@given(st.integers(1, 20), st.integers(1, 20), st.floats(0, 1))
def test_the_papers_formulas_are_special_cases(
    twentieths_a: int, twentieths_p: int, pi: float
) -> None:
    """Each party has an independent share of a superset of 400 people."""
    p_a, p_p = twentieths_a / 20, twentieths_p / 20
    rates = (1 - pi, pi)
    assume(pi <= 0.5)  # the paper's majority is class 0

    def found(active: int, passive: int, shared: int) -> tuple[float, ...]:
        result = mixture(Counts(400, active, passive, shared), rates, "majority", "train")
        return (result.a, *result.b)

    def paper(expected: Mixture) -> Any:  # noqa: ANN401
        return pytest.approx((expected.a, *expected.b), abs=1e-12)

    active, passive, shared = 20 * twentieths_a, 20 * twentieths_p, twentieths_a * twentieths_p
    assert found(active, passive, shared) == paper(both_independent(p_a, p_p, pi))
    assert found(active, 400, active) == paper(labels_only(p_a))
    assert found(400, passive, passive) == paper(features_only(p_p, pi))


def test_counts_from_the_union() -> None:
    assert Counts.of_active(UnionSizes(own=55, peer=60, union=95), rows=50) == replace(
        COUNTS, union=95
    )
    padded = UnionSizes(own=55 + 8, peer=60 + 8, union=100 + 12, planted=6, pool=4)
    assert padded.shared_estimate == 21
    assert Counts.of_active(padded, rows=50) == Counts(112, 50, 60, 21)
    for impossible in ((9, 5, 5, 0), (10, 5, 5, 6), (10, 5, 5, -1)):
        with pytest.raises(ValueError, match="impossible"):
            Counts(*impossible)


def test_nobody_shared_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="nobody in common"):
        mixture(Counts(100, 50, 50, 0), PI, "prediction", "train")


@pytest.mark.parametrize(
    ("a", "b"), [(0.0, (0.5, 0.5)), (0.5, (0.6, -0.1)), (0.5, (0.2, 0.2)), (1.0, (0.0,))]
)
def test_invalid_mixtures_are_refused(a: float, b: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"mixture|add up"):
        Mixture(a, b)


@settings(deadline=None)
@given(mixtures(), st.integers(0, 2**32 - 1))
def test_truth_inverts_the_shift(mixed: Mixture, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    classes = len(mixed.b)
    logits = 3 * torch.randn(50, classes, generator=generator, dtype=torch.float64)
    truth = logits.softmax(1)
    truth = truth[:, 1] if classes == 2 else truth
    offsets = torch.tensor(mixed.b, dtype=torch.float64)
    observed = mixed.a * truth + (offsets[1] if classes == 2 else offsets)
    torch.testing.assert_close(mixed.truth(observed), truth)
    if classes > 2:
        torch.testing.assert_close(observed.sum(1), torch.ones(50, dtype=torch.float64))


@settings(deadline=None)
@given(mixtures(), st.integers(0, 2**32 - 1))
def test_impossible_predictions_are_clipped(mixed: Mixture, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    classes = len(mixed.b)
    anything = (5 * torch.randn(50, classes, generator=generator)).softmax(1)
    truth = mixed.truth(anything[:, 1] if classes == 2 else anything)
    assert truth.min() >= 0
    assert truth.max() <= 1
    if classes > 2:
        torch.testing.assert_close(truth.sum(1), torch.ones(50))


@pytest.mark.parametrize("target", [0.0, 0.3, 1.0])
def test_without_a_shift_the_loss_is_cross_entropy(target: float) -> None:
    usual = torch.tensor(LOGITS, requires_grad=True)
    ours = torch.tensor(LOGITS, requires_grad=True)
    goal = torch.full_like(usual, target).detach()
    expected = binary_cross_entropy_with_logits(usual, goal, reduction="none")
    losses = cross_entropies(ours, goal, Mixture.identity())
    torch.testing.assert_close(losses, expected)
    torch.autograd.backward([expected.sum(), losses.sum()])
    torch.testing.assert_close(ours.grad, usual.grad)


def test_without_a_shift_the_loss_of_several_classes_is_cross_entropy() -> None:
    usual = (20 * torch.randn(200, 5)).requires_grad_()
    ours = usual.detach().clone().requires_grad_()
    goal = torch.randn(200, 5).softmax(1)
    expected = cross_entropy(usual, goal, reduction="none")
    losses = cross_entropies(ours, goal, Mixture.identity(5))
    torch.testing.assert_close(losses, expected)
    torch.autograd.backward([expected.sum(), losses.sum()])
    torch.testing.assert_close(ours.grad, usual.grad)


@settings(deadline=None)
@given(mixtures(2), st.floats(0, 1))
def test_loss_and_gradient_of_two_classes_in_closed_form(mixed: Mixture, target: float) -> None:
    logits = torch.linspace(-8, 8, 41, dtype=torch.float64, requires_grad=True)
    losses = cross_entropies(logits, torch.full((41,), target, dtype=torch.float64), mixed)
    torch.autograd.backward([losses.sum()])
    p = logits.detach().sigmoid()
    shifted = mixed.a * p + mixed.b[1]
    torch.testing.assert_close(
        losses.detach(), -(target * shifted.log() + (1 - target) * (1 - shifted).log())
    )
    closed = mixed.a * p * (1 - p) * (shifted - target) / (shifted * (1 - shifted))
    torch.testing.assert_close(logits.grad, closed)


@settings(deadline=None, max_examples=25)
@given(mixtures(), st.integers(0, 2**32 - 1))
def test_gradients_by_finite_differences(mixed: Mixture, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    shape = (4,) if len(mixed.b) == 2 else (4, len(mixed.b))
    logits = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    goal = torch.rand(shape, generator=generator, dtype=torch.float64)

    def losses(values: Tensor) -> Tensor:
        return cross_entropies(values, goal, mixed)

    assert torch.autograd.gradcheck(losses, (logits.requires_grad_(),))


@settings(deadline=None, max_examples=50)
@given(mixtures())
def test_any_finite_logit_gives_a_finite_loss(mixed: Mixture) -> None:
    classes = len(mixed.b)
    logits = torch.tensor(LOGITS)
    if classes > 2:
        logits = torch.cartesian_prod(logits, logits)
        logits = torch.cat((logits, torch.zeros(len(logits), classes - 2)), 1)
    for target in range(classes):
        leaf = logits.clone().requires_grad_()
        label = torch.full((len(logits),), target)
        goal = label.float() if classes == 2 else torch.eye(classes)[label]
        losses = cross_entropies(leaf, goal, mixed)
        torch.autograd.backward([losses.sum()])
        assert leaf.grad is not None
        assert torch.isfinite(losses).all()
        assert torch.isfinite(leaf.grad).all()
        assert leaf.grad.abs().max() <= 1.0001
        assert losses.min() >= -1e-6


def test_two_classes_equal_the_general_case() -> None:
    mixed = two_classes(0.4, 0.1)
    logits = torch.tensor(LOGITS[3:-3], dtype=torch.float64)
    pairs = torch.stack((torch.zeros_like(logits), logits), 1)
    yes = torch.full_like(logits, 0.3)
    torch.testing.assert_close(
        cross_entropies(logits, yes, mixed),
        cross_entropies(pairs, torch.stack((1 - yes, yes), 1), mixed),
    )


def test_loss_is_the_sum_divided_by_the_divisor() -> None:
    calibration = Calibration("train", two_classes(0.4, 0.1))
    logits, goal = torch.randn(10), torch.rand(10)
    losses = calibration.losses(logits, goal)
    assert losses.shape == (10,)
    torch.testing.assert_close(calibration.loss(logits, goal), losses.sum())
    halves = [calibration.loss(logits[part], goal[part], 10) for part in (slice(5), slice(5, 10))]
    torch.testing.assert_close(sum(halves), losses.mean())


def test_when_decides_between_loss_and_prediction() -> None:
    mixed = two_classes(0.4, 0.1)
    logits, goal = torch.randn(10), torch.rand(10)
    plain = cross_entropies(logits, goal, Mixture.identity())
    for when in get_args(CalibrationTime):
        calibration = Calibration(when, mixed)
        shifted = when == "train"
        assert torch.equal(calibration.losses(logits, goal), plain) != shifted
        expected = mixed.truth(logits.sigmoid()) if when == "test" else logits.sigmoid()
        assert torch.equal(calibration.predict(logits), expected)


@dataclass(frozen=True)
class World:
    """People with a feature of few values, and the rate of each class for each value."""

    rates: Tensor
    counts: Counts


Rows = Literal["all", "real labels", "real features"]
MANY = Counts(union=30_000, active=15_000, passive=18_000, shared=9_000)
POSITIVE = torch.linspace(0.05, 0.75, 6)
BINARY = World(torch.stack((1 - POSITIVE, POSITIVE), 1), MANY)
THREE = World(torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]]), MANY)


def trained(
    world: World,
    strategy_name: str,
    when: CalibrationTime,
    rows: Rows,
    *,
    matched: bool = False,
    expects_matched: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """Train on these rows of the union. Return the prediction per value, and the model's output.

    The model has a logit, or one per class, for each value, so it can learn D and D' alike. With
    `matched`, stand-ins are donors of the label, as of `passive_party/offering.py`; the calibration
    expects that unless told otherwise.
    """
    counts, (values, classes) = world.counts, world.rates.shape
    random, draws = np.random.default_rng(1), SecretDraws.from_seed(1)
    rank = np.arange(counts.union)
    x = random.integers(values, size=counts.union)
    y = (random.random((counts.union, 1)) >= world.rates.numpy()[x].cumsum(1)[:, :-1]).sum(1)
    has_label = torch.from_numpy(rank < counts.active)
    first = counts.active - counts.shared
    has_features = (rank >= first) & (rank < first + counts.passive)
    donors = first + FeaSampling(draws, counts.passive).donors(rank, 0)
    x = np.where(has_features, x, x[donors])

    frequencies = class_frequencies(y[: counts.active], classes)
    strategy = label_strategy(strategy_name, classes)
    mixed = mixture(
        counts,
        frequencies,
        strategy.expectation,
        when,
        real_labels_only=rows == "real labels",
        real_features_only=rows == "real features",
        matched=matched if expects_matched is None else expects_matched,
    )
    calibration = Calibration(when, mixed)
    request = LabelRequest(
        has_label=has_label,
        labels=torch.from_numpy(y),
        uniforms=LabelDraws(draws).for_rows(rank[counts.active :], 0),
        predictions=torch.empty(0),
        embeddings=torch.empty(0),
        frequencies=frequencies,
    )
    learns = {
        "all": torch.ones_like(has_label),
        "real labels": has_label,
        "real features": torch.from_numpy(has_features),
    }[rows]
    logits = torch.zeros((values, classes) if classes > 2 else (values,), requires_grad=True)
    optimiser = torch.optim.Adam([logits], lr=0.1)
    for _ in range(60):
        goal = targets(
            strategy, replace(request, predictions=model_output(logits)[torch.from_numpy(x)])
        )
        if matched:
            shown = donor_classes_of(logits[torch.from_numpy(x)], goal, calibration, rank, draws)
            opened = np.where(has_label, y, random.integers(classes, size=counts.union))
            x = np.where(has_features, x, matching(x, shown, opened, has_features, random))
            # Labels that nobody has are drawn after opening.
            outputs = model_output(logits)[torch.from_numpy(x)]
            goal = targets(strategy, replace(request, predictions=outputs))
        rows_of = [torch.from_numpy(x == value) & learns for value in range(values)]
        # The loss is linear in the target, so the rows of a value count with their mean.
        means = torch.stack([goal[of_value].mean(0) for of_value in rows_of])
        for _ in range(5):
            optimiser.zero_grad()
            torch.autograd.backward([calibration.loss(logits, means)])
            optimiser.step()
    return calibration.predict(logits).detach(), model_output(logits).detach()


def donor_classes_of(
    logits: Tensor,
    goal: Tensor,
    calibration: Calibration,
    rank: npt.NDArray[np.int64],
    draws: SecretDraws,
) -> npt.NDArray[np.int64]:
    """Return as whose donor each row may serve, from the gradient that the passive party sees."""
    leaf = logits.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(calibration.loss(leaf, goal, len(goal)), leaf)
    sent = gradient.reshape(len(goal), -1)
    classes = 2 if leaf.ndim == 1 else leaf.shape[1]
    shown = shown_labels(sent, classes)
    return donor_classes(shown, shown_predictions(sent, shown, classes, len(goal)), rank, draws)


def matching(
    x: npt.NDArray[np.int64],
    classes: npt.NDArray[np.int64],
    opened: npt.NDArray[np.int64],
    has_features: npt.NDArray[np.bool_],
    random: np.random.Generator,
) -> npt.NDArray[np.int64]:
    """Return the value of a random donor of the class that is opened, for each UID."""
    found = np.empty_like(x)
    for label in np.unique(opened):
        donors = np.flatnonzero(has_features & (classes == label))
        is_opened = opened == label
        found[is_opened] = x[random.choice(donors, size=int(is_opened.sum()))]
    return found


@pytest.mark.parametrize("rows", get_args(Rows))
@pytest.mark.parametrize("when", ["train", "test"])
@pytest.mark.parametrize(
    "strategy", ["label-majority", "label-minority", "label-random-pos", "label-random-pred"]
)
def test_a_trained_model_predicts_the_truth(
    strategy: str, when: CalibrationTime, rows: Rows
) -> None:
    predicted, output = trained(BINARY, strategy, when, rows)
    assert (predicted - POSITIVE).abs().max() < 0.06
    assert abs(predicted.mean() - POSITIVE.mean()) < 0.025
    # On new people, all real.
    generator = np.random.default_rng(2)
    x = generator.integers(len(POSITIVE), size=40_000)
    y = generator.random(40_000) < POSITIVE.numpy()[x]
    assert ace(y, predicted.numpy()[x]) < 0.03
    if when == "test" and (strategy, rows) != ("label-random-pred", "real features"):
        assert ace(y, output.numpy()[x]) > 0.06  # which calibration corrects


@pytest.mark.parametrize("strategy", ["label-random-pos", "label-random-pred"])
@pytest.mark.parametrize("when", ["train", "test"])
def test_a_trained_model_of_three_classes_predicts_the_truth(
    strategy: str, when: CalibrationTime
) -> None:
    predicted, _ = trained(THREE, strategy, when, "all")
    assert (predicted - THREE.rates).abs().max() < 0.06


@pytest.mark.parametrize("rows", get_args(Rows))
@pytest.mark.parametrize("when", ["train", "test"])
@pytest.mark.parametrize("strategy", ["label-random-pos", "label-random-pred"])
def test_a_model_trained_with_matched_stand_ins_predicts_the_truth(
    strategy: str, when: CalibrationTime, rows: Rows
) -> None:
    predicted, _ = trained(BINARY, strategy, when, rows, matched=True)
    assert (predicted - POSITIVE).abs().max() < 0.06
    generator = np.random.default_rng(2)
    x = generator.integers(len(POSITIVE), size=40_000)
    y = generator.random(40_000) < POSITIVE.numpy()[x]
    assert ace(y, predicted.numpy()[x]) < 0.03
    if rows != "real features":  # to which stand-ins make no difference
        wrong, _ = trained(BINARY, strategy, when, rows, matched=True, expects_matched=False)
        assert (wrong - POSITIVE).abs().max() > 0.1
        assert ace(y, wrong.numpy()[x]) > 0.05


@pytest.mark.parametrize("rows", ["all", "real labels"])
@pytest.mark.parametrize("when", ["train", "test"])
@pytest.mark.parametrize("strategy", ["label-random-pos", "label-random-pred"])
def test_three_classes_with_matched_stand_ins(
    strategy: str, when: CalibrationTime, rows: Rows
) -> None:
    predicted, _ = trained(THREE, strategy, when, rows, matched=True)
    assert (predicted - THREE.rates).abs().max() < 0.04
