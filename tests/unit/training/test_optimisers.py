"""Dense updates equal torch's, sparse ones are as documented, and the state resumes bitwise."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from florist.common.core.errors import ConfigurationError
from florist.common.settings.training import Optimiser, OptimiserName
from florist.common.training.models import ActiveModel, FeatureTower, TopModel
from florist.common.training.optimisers import Optimisers
from florist.common.training.rate_schedule import RateSchedule
from florist.common.training.run_facts import OptimiserFacts

RULES = [
    Optimiser(name="adam", learning_rate=0.01),
    Optimiser(name="adam", learning_rate=0.01, weight_decay=0.1),
    Optimiser(name="adamw", learning_rate=0.01, weight_decay=0.1),
    Optimiser(name="sgd", learning_rate=0.1),
    Optimiser(name="sgd", learning_rate=0.1, momentum=0.9, weight_decay=0.01),
]
EVERY_RULE = pytest.mark.parametrize(
    "settings", RULES, ids=lambda s: f"{s.name}-{s.weight_decay}-{s.momentum}"
)
EVERY_UPDATE = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])

#: Embeddings, numeric values, categories and labels.
Batch = tuple[Tensor, Tensor, Tensor, Tensor]

CARDINALITIES = [20, 30]
ROWS = sum(CARDINALITIES)


def make_model(*, sparse: bool, cardinalities: list[int] = CARDINALITIES) -> ActiveModel:
    tower = FeatureTower(
        numeric=2,
        cardinalities=cardinalities,
        embedding_width=4,
        layers=[8],
        sparse=sparse,
        seed=1,
    )
    return ActiveModel(TopModel(cut_width=3, tower_width=8, layers=[8], seed=1), tower)


def batches(count: int, *, below: int = 20, seed: int = 0) -> list[Batch]:
    """Make batches of 16 rows with only the first `below` categories of each column."""
    draws = torch.Generator().manual_seed(seed)
    return [
        (
            torch.rand(16, 3, generator=draws),
            torch.rand(16, 2, generator=draws),
            torch.randint(below, (16, 2), generator=draws),
            torch.randint(2, (16,), generator=draws).float(),
        )
        for _ in range(count)
    ]


def make_optimisers(model: ActiveModel, settings: Optimiser) -> Optimisers:
    return Optimisers(model, settings, RateSchedule(settings.learning_rate or 1e-3, 1, "constant"))


def train(model: ActiveModel, optimisers: Optimisers, data: list[Batch], first: int = 0) -> None:
    for step, (cut, numbers, categories, labels) in enumerate(data, start=first):
        optimisers.zero_grad()
        logits = model(cut, numbers, categories)
        torch.nn.functional.binary_cross_entropy_with_logits(logits, labels).backward()
        optimisers.step(step)


def trained(settings: Optimiser, data: list[Batch], *, sparse: bool) -> dict[str, Tensor]:
    model = make_model(sparse=sparse)
    train(model, make_optimisers(model, settings), data)
    return model.state_dict()


def table(weights: dict[str, Tensor]) -> Tensor:
    return weights["tower.table.weight"]


@EVERY_RULE
@EVERY_UPDATE
def test_resuming_from_a_state_is_bit_identical(settings: Optimiser, *, sparse: bool) -> None:
    model = make_model(sparse=sparse)
    optimisers = make_optimisers(model, settings)
    train(model, optimisers, batches(5))
    tensors, facts = optimisers.state()
    saved = {name: tensor.clone() for name, tensor in tensors.items()}
    resumed = make_model(sparse=sparse)
    resumed.load_state_dict(model.state_dict())
    continuing = make_optimisers(resumed, settings)
    continuing.load(saved, facts)
    later = batches(5, seed=1)
    train(model, optimisers, later)
    train(resumed, continuing, later)
    expected = model.state_dict()
    for name, value in resumed.state_dict().items():
        assert torch.equal(value, expected[name]), name
    assert saved.keys() == set(optimisers.state()[0])
    for name, value in continuing.state()[0].items():
        assert torch.equal(value, optimisers.state()[0][name]), name


@EVERY_RULE
@EVERY_UPDATE
def test_the_rate_of_each_step_is_that_of_the_schedule(
    settings: Optimiser, *, sparse: bool
) -> None:
    """Each step equals that of an optimiser with a constant rate and the same state."""
    rates = RateSchedule(0.05, 8, "warm-up-and-decay")
    model, oracle = make_model(sparse=sparse), make_model(sparse=sparse)
    optimisers = Optimisers(model, settings, rates)
    for step, batch in enumerate(batches(8)):
        constant = Optimisers(oracle, settings, RateSchedule(rates(step), 1, "constant"))
        constant.load(*optimisers.state())
        train(model, optimisers, [batch], step)
        train(oracle, constant, [batch])
        for name, value in oracle.state_dict().items():
            assert torch.equal(value, model.state_dict()[name]), name


@EVERY_RULE
def test_sparse_equals_dense_if_every_batch_has_every_row(settings: Optimiser) -> None:
    every = torch.stack((torch.arange(30) % 20, torch.arange(30)), dim=1)
    data = [
        (torch.rand(30, 3), torch.rand(30, 2), every, torch.randint(2, (30,)).float())
        for _ in range(10)
    ]
    sparse, dense = (trained(settings, data, sparse=kind) for kind in (True, False))
    for name, value in sparse.items():
        torch.testing.assert_close(value, dense[name], rtol=1e-5, atol=1e-6)


def test_sparse_equals_dense_for_plain_sgd() -> None:
    settings = Optimiser(name="sgd", learning_rate=0.5)
    sparse, dense = (trained(settings, batches(10, below=3), sparse=kind) for kind in (True, False))
    torch.testing.assert_close(table(sparse), table(dense), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("settings", [RULES[0], RULES[2], RULES[4]], ids=lambda s: s.name)
def test_sparse_updates_leave_rows_outside_the_batch_unchanged(settings: Optimiser) -> None:
    """Dense updates also move those rows, by old moments and weight decay."""
    for sparse in (True, False):
        model = make_model(sparse=sparse)
        optimisers = make_optimisers(model, settings)
        train(model, optimisers, batches(3))
        before = {name: value.clone() for name, value in optimisers.state()[0].items()}
        weights = table(model.state_dict()).clone()
        train(model, optimisers, batches(1, below=2))
        away = torch.ones(ROWS, dtype=torch.bool)
        away[[0, 1, 20, 21]] = False
        rested = torch.equal(table(model.state_dict())[away], weights[away])
        assert rested == sparse
        assert not torch.equal(table(model.state_dict())[~away], weights[~away])
        for name, value in optimisers.state()[0].items():
            if name.startswith("tower.table.weight/") and value.ndim:
                assert torch.equal(value[away], before[name][away]) == sparse


def test_sparse_adam_equals_that_of_torch() -> None:
    """They differ in epsilon: SparseAdam adds it before the bias correction, Adam and we after."""
    ours, theirs = make_model(sparse=True), make_model(sparse=True)
    optimisers = make_optimisers(ours, Optimiser(learning_rate=0.01))
    assert theirs.tower is not None
    assert theirs.tower.table is not None
    lazy = theirs.tower.table.weight
    rest = [value for value in theirs.parameters() if value is not lazy]
    oracle = [torch.optim.SparseAdam([lazy], lr=0.01), torch.optim.Adam(rest, lr=0.01)]
    data = batches(10, below=5)
    train(ours, optimisers, data)
    for cut, numbers, categories, labels in data:
        theirs.zero_grad()
        logits = theirs(cut, numbers, categories)
        torch.nn.functional.binary_cross_entropy_with_logits(logits, labels).backward()
        for optimiser in oracle:
            optimiser.step()
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, theirs.state_dict()[name], rtol=1e-4, atol=5e-5)


def test_a_sparse_step_sums_the_gradients_of_several_passes() -> None:
    one, two = make_model(sparse=True), make_model(sparse=True)
    settings = Optimiser(name="sgd", learning_rate=0.5)
    ((cut, numbers, categories, _),) = batches(1)
    for model, parts in ((one, [slice(16)]), (two, [slice(9), slice(9, 16)])):
        for part in parts:
            model(cut[part], numbers[part], categories[part]).sum().backward()
        make_optimisers(model, settings).step(0)
    torch.testing.assert_close(table(one.state_dict()), table(two.state_dict()))


def test_a_step_without_gradients_changes_nothing() -> None:
    model = make_model(sparse=True)
    optimisers = make_optimisers(model, Optimiser())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimisers.step(0)
    train(model, optimisers, batches(1))
    optimisers.zero_grad()
    assert all(value.grad is None for value in model.parameters())
    after = {name: value.clone() for name, value in model.state_dict().items()}
    optimisers.step(0)
    assert all(torch.equal(value, after[name]) for name, value in model.state_dict().items())
    assert not torch.equal(table(before), table(after))


def test_state_is_named_after_parameters() -> None:
    model = make_model(sparse=True)
    optimisers = make_optimisers(model, Optimiser())
    assert optimisers.state()[0] == {}
    train(model, optimisers, batches(1))
    tensors, facts = optimisers.state()
    assert facts == OptimiserFacts("adam", ["tower.table.weight"])
    assert set(tensors) == {
        f"{name}/{key}" for name in model.state_dict() for key in ("step", "exp_avg", "exp_avg_sq")
    }


def test_a_state_before_the_first_step_can_be_loaded() -> None:
    model = make_model(sparse=True)
    optimisers = make_optimisers(model, Optimiser())
    tensors, facts = optimisers.state()
    train(model, optimisers, batches(2))
    optimisers.load(tensors, facts)
    assert optimisers.state()[0] == {}


@pytest.mark.parametrize(
    ("there", "shape"),
    [
        (Optimiser(name="sgd", momentum=0.5), {"sparse": True}),
        (Optimiser(name="adamw"), {"sparse": True}),
        (Optimiser(), {"sparse": False}),
        (Optimiser(), {"sparse": True, "cardinalities": [20, 31]}),
    ],
    ids=["rule", "decay", "updates", "columns"],
)
def test_a_state_of_a_different_model_or_optimiser_is_refused(
    there: Optimiser, shape: dict[str, Any]
) -> None:
    other = make_model(**shape)
    optimisers = make_optimisers(other, there)
    train(other, optimisers, batches(1))
    model = make_model(sparse=True)
    here = make_optimisers(model, Optimiser())
    train(model, here, batches(1))
    kept = {name: value.clone() for name, value in here.state()[0].items()}
    with pytest.raises(ConfigurationError, match=r"the checkpoint is of a different .* start over"):
        here.load(*optimisers.state())
    assert all(torch.equal(value, kept[name]) for name, value in here.state()[0].items())


def test_only_sgd_has_momentum() -> None:
    for name in get_args(OptimiserName):
        if name != "sgd":
            with pytest.raises(ValidationError, match="must be 0 unless"):
                Optimiser(name=name, momentum=0.9)
