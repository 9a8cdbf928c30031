"""The halves of the model: shapes, initial weights, and one table for all columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from florist.common.core.errors import ConfigurationError
from florist.common.settings.training import Model
from florist.common.training.model_factory import (
    SPARSE_FROM,
    count_parameters,
    describe,
    make_active,
    make_bottom,
    uses_sparse_updates,
)
from florist.common.training.models import ActiveModel, BottomModel, FeatureTower, TopModel

if TYPE_CHECKING:
    from collections.abc import Sequence

CPU = torch.device("cpu")
CARDINALITIES = (3, 1, 5, 40)


def bottom(**changes: Any) -> BottomModel:  # noqa: ANN401 - of any type
    shape: dict[str, Any] = {
        "numeric": 2,
        "cardinalities": CARDINALITIES,
        "embedding_width": 4,
        "layers": [16, 8],
        "sparse": False,
        "seed": 7,
    }
    return BottomModel(**shape | changes)


def batch(rows: int, numeric: int, cardinalities: Sequence[int]) -> tuple[Tensor, Tensor]:
    draws = np.random.default_rng(rows)
    categories = draws.integers(0, cardinalities, (rows, len(cardinalities)))
    return torch.from_numpy(draws.random((rows, numeric), np.float32)), torch.tensor(categories)


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
@pytest.mark.parametrize(
    ("numeric", "cardinalities"), [(2, CARDINALITIES), (0, CARDINALITIES), (3, ())]
)
def test_shapes(numeric: int, cardinalities: tuple[int, ...], kind: torch.dtype) -> None:
    model = bottom(numeric=numeric, cardinalities=cardinalities)
    numbers, categories = batch(11, numeric, cardinalities)
    output = model(numbers, categories.to(kind))
    assert output.shape == (11, 8)
    assert output.dtype == torch.float32
    assert bool((output >= 0).all())
    assert model(numbers[:0], categories[:0]).shape == (0, 8)


def test_a_model_without_any_feature_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="feature column"):
        bottom(numeric=0, cardinalities=())


@pytest.mark.parametrize(("column", "value"), [(0, 3), (1, 1), (3, 40), (2, -1)])
def test_a_category_out_of_range_is_refused(column: int, value: int) -> None:
    numbers, categories = batch(4, 2, CARDINALITIES)
    categories[2, column] = value
    with pytest.raises(IndexError, match="out of its column's range"):
        bottom()(numbers, categories)


def test_a_missing_categorical_column_is_refused() -> None:
    numbers, categories = batch(4, 2, CARDINALITIES)
    with pytest.raises(ValueError, match="4 columns"):
        bottom()(numbers, categories[:, :1])


@pytest.mark.parametrize(("outputs", "shape"), [(1, (9,)), (3, (9, 3))])
def test_logits(outputs: int, shape: tuple[int, ...]) -> None:
    top = TopModel(cut_width=8, layers=[16, 16], outputs=outputs, seed=0)
    assert ActiveModel(top)(torch.rand(9, 8)).shape == shape
    joined = TopModel(cut_width=8, tower_width=5, layers=[], outputs=outputs, seed=0)
    assert joined(torch.rand(9, 8), torch.rand(9, 5)).shape == shape


def test_own_features_of_the_active_party_join_at_the_cut() -> None:
    settings = Model(hidden=[12, 10], tower=[6, 5])
    active = make_active(
        settings, numeric=2, cardinalities=[4], cut_width=8, device=CPU, seed=1, outputs=1
    )
    numbers, categories = batch(9, 2, [4])
    cut = torch.rand(9, 8)
    logits = active(cut, numbers, categories)
    assert active.tower is not None
    assert logits.shape == (9,)
    torch.testing.assert_close(logits, active.top(cut, active.tower(numbers, categories)))
    assert make_active(settings, cut_width=8, device=CPU, seed=1).tower is None


def test_the_network_of_the_paper() -> None:
    """Two 128-unit layers on either side of the cut, embeddings of width 4, one logit."""
    passive = make_bottom(
        Model(), numeric=13, cardinalities=[100] * 26, cut_width=128, device=CPU, seed=0
    )
    active = make_active(Model(), cut_width=128, device=CPU, seed=0)
    assert {name: tuple(value.shape) for name, value in passive.state_dict().items()} == {
        "table.weight": (2600, 4),
        "layers.0.weight": (128, 117),
        "layers.0.bias": (128,),
        "layers.1.weight": (128, 128),
        "layers.1.bias": (128,),
    }
    assert {name: tuple(value.shape) for name, value in active.state_dict().items()} == {
        "top.layers.0.weight": (128, 128),
        "top.layers.0.bias": (128,),
        "top.layers.1.weight": (128, 128),
        "top.layers.1.bias": (128,),
        "top.output.weight": (1, 128),
        "top.output.bias": (1,),
    }
    assert count_parameters(active) == 2 * (128 * 128 + 128) + 129


def test_the_bottom_model_must_end_with_the_agreed_cut_width() -> None:
    with pytest.raises(ConfigurationError, match=r"model\.hidden: .* the last number 64"):
        make_bottom(Model(), numeric=1, cardinalities=[], cut_width=64, device=CPU, seed=0)


# --- initial weights ---


def weights(model: nn.Module) -> dict[str, list[float]]:
    return {name: value.flatten().tolist() for name, value in model.state_dict().items()}


def test_initial_weights_depend_only_on_the_seed() -> None:
    torch.manual_seed(1)
    one = bottom()
    untouched = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), untouched)
    TopModel(cut_width=8, layers=[16, 16], seed=7)
    assert weights(bottom()) == weights(one)
    assert weights(bottom(sparse=True)) == weights(one)
    other = weights(bottom(seed=8))
    assert not any(other[name] == value for name, value in weights(one).items() if any(value))


def test_initial_weights_are_the_same_in_every_release() -> None:
    """A change here makes seeded experiments differ from earlier ones."""
    model = bottom()
    assert model.table is not None
    assert model.table.weight[0, 0].item() == pytest.approx(0.007295973598957062)
    assert model.layers[1].get_parameter("weight")[0, 0].item() == pytest.approx(
        -0.2521558105945587
    )


def test_tower_and_top_model_have_different_weights() -> None:
    active = make_active(
        Model(hidden=[8, 8], tower=[8, 8]), numeric=8, cut_width=8, device=CPU, seed=0
    )
    assert active.tower is not None
    tower, top = active.tower.layers[1], active.top.layers[1]
    assert not torch.equal(tower.get_parameter("weight"), top.get_parameter("weight"))
    both = active.tower.layers
    assert not torch.equal(both[0].get_parameter("weight"), both[1].get_parameter("weight"))


def test_all_bits_of_long_seeds_are_used() -> None:
    assert weights(bottom(seed=2**200)) != weights(bottom(seed=2**200 + 2**100))


def test_scales_of_initial_weights() -> None:
    model = bottom(cardinalities=(5000,), layers=[256, 256])
    assert model.table is not None
    assert model.table.weight.std().item() == pytest.approx(0.01, rel=0.05)
    matrix = model.layers[1].get_parameter("weight")
    assert matrix.std().item() == pytest.approx((2 / 256) ** 0.5, rel=0.05)
    assert not model.layers[1].get_parameter("bias").any()


# --- one table for all columns ---


class SeparateTables(nn.Module):
    """The oracle: an nn.Embedding per column, joined in the same order."""

    def __init__(self, tower: FeatureTower, cardinalities: Sequence[int]) -> None:
        super().__init__()
        assert tower.table is not None
        parts = tower.table.weight.detach().split(list(cardinalities))
        self.tables = nn.ModuleList(nn.Embedding.from_pretrained(p, freeze=False) for p in parts)
        self.layers = tower.layers

    def forward(self, numeric: Tensor, categories: Tensor) -> Tensor:
        columns = categories.unbind(1)
        embedded = [table(column) for table, column in zip(self.tables, columns, strict=True)]
        values = torch.cat([*embedded, numeric], dim=1)
        for layer in self.layers:
            values = functional.relu(layer(values))
        return values


@pytest.mark.parametrize("sparse", [False, True])
def test_one_table_equals_26_separate_ones(*, sparse: bool) -> None:
    cardinalities = [1 + 7 * column for column in range(26)]
    model = bottom(numeric=13, cardinalities=cardinalities, sparse=sparse)
    oracle = SeparateTables(model, cardinalities)
    numbers, categories = batch(300, 13, cardinalities)
    output, expected = model(numbers, categories), oracle(numbers, categories)
    assert torch.equal(output, expected)
    upstream = torch.randn(output.shape, generator=torch.Generator().manual_seed(0))
    output.backward(upstream)
    expected.backward(upstream)
    assert model.table is not None
    assert model.table.weight.grad is not None
    assert model.table.weight.grad.is_sparse == sparse
    gradient = model.table.weight.grad.to_dense()
    separate = [table.get_parameter("weight").grad for table in oracle.tables]
    expected = torch.cat([part for part in separate if part is not None])
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-6)


# --- the wide part ---


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("wide", [1, 3])
def test_the_wide_part_is_the_sum_of_one_weight_per_category(wide: int, *, sparse: bool) -> None:
    model = bottom(wide=wide, sparse=sparse)
    numbers, categories = batch(50, 2, CARDINALITIES)
    output = model(numbers, categories)
    assert output.shape == (50, 8 + wide)
    assert not output[:, 8:].any()  # at the start
    assert model.table is not None
    with torch.no_grad():
        model.table.weight.copy_(torch.randn_like(model.table.weight))
    output = model(numbers, categories)
    starts = np.cumsum([0, *CARDINALITIES])
    for row in range(50):
        entries = [model.table.weight[starts[c] + k] for c, k in enumerate(categories[row])]
        expected = torch.stack([entry[4:] for entry in entries]).sum(0)
        torch.testing.assert_close(output[row, 8:], expected)
    narrow = bottom()
    assert narrow.table is not None
    narrow.load_state_dict(
        {**model.state_dict(), "table.weight": model.table.weight[:, :4].detach()}
    )
    torch.testing.assert_close(output[:, :8], narrow(numbers, categories))


def test_a_table_without_categories_has_an_empty_wide_part() -> None:
    output = bottom(cardinalities=(), wide=2)(*batch(5, 2, ()))
    assert output.shape == (5, 10)
    assert not output[:, 8:].any()


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("own", [False, True])
def test_wide_parts_are_added_to_the_logits(outputs: int, *, own: bool) -> None:
    """So the gradient of the embeddings' last columns is that of the logits."""
    active = make_active(
        Model(hidden=[12], tower=[6]),
        numeric=2 if own else 0,
        cardinalities=[4] if own else [],
        cut_width=8,
        outputs=outputs,
        wide=True,
        with_prior=True,
        device=CPU,
        seed=1,
    )
    features = batch(9, 2, [4]) if own else ()
    if own:
        assert active.tower is not None
        assert active.tower.table is not None
        with torch.no_grad():
            active.tower.table.weight[:, 4:] = 1.5
    embeddings = torch.rand(9, 8 + outputs, requires_grad=True)
    logits = active(embeddings, *features)
    alone = embeddings.detach().clone()
    alone[:, 8:] = 0
    difference = (logits - active(alone, *features)).reshape(9, outputs)
    torch.testing.assert_close(difference, embeddings[:, 8:])
    upstream = torch.randn(logits.shape)
    logits.backward(upstream)
    assert embeddings.grad is not None
    assert torch.equal(embeddings.grad[:, 8:], upstream.reshape(9, outputs))
    if own:
        before = active.outputs(embeddings, *features)
        with torch.no_grad():
            active.tower.table.weight[:, 4:] = 0  # type: ignore[union-attr]
            active.prior.tower.table.weight[:, 4:] = 2  # type: ignore[union-attr]
        after = active.outputs(embeddings, *features)
        torch.testing.assert_close(before[0] - after[0], torch.full_like(before[0], 1.5))
        torch.testing.assert_close(after[1] - before[1], torch.full_like(before[1], 2))


@pytest.mark.parametrize("wide", [0, 2])
def test_gradients_equal_finite_differences(wide: int) -> None:
    model = bottom(cardinalities=(3, 2), layers=[6, 4], wide=wide).double()
    numbers, categories = batch(7, 2, (3, 2))
    names = [name for name, _ in model.named_parameters()]
    values = tuple(value.detach().clone().requires_grad_() for value in model.parameters())

    def output(*parameters: Tensor) -> Tensor:
        named = dict(zip(names, parameters, strict=True))
        cut: Tensor = torch.func.functional_call(model, named, (numbers.double(), categories))
        return cut

    assert torch.autograd.gradcheck(output, values)


# --- sparse updates, and the description ---


def test_auto_uses_sparse_updates_for_large_tables() -> None:
    assert uses_sparse_updates("auto", SPARSE_FROM, CPU)
    assert not uses_sparse_updates("auto", SPARSE_FROM - 1, CPU)
    assert uses_sparse_updates("sparse", 1, CPU)
    assert not uses_sparse_updates("dense", 10 * SPARSE_FROM, CPU)


def test_mps_has_no_sparse_updates() -> None:
    assert not uses_sparse_updates("auto", SPARSE_FROM, torch.device("mps"))
    with pytest.raises(ConfigurationError, match="embedding_updates"):
        uses_sparse_updates("sparse", 1, torch.device("mps"))


def test_description() -> None:
    assert describe(bottom(sparse=True)) == (
        "BottomModel: 636 parameters, 49 embeddings of width 4 with sparse updates"
    )


def test_tables_of_the_same_size_are_described_once() -> None:
    model = nn.Sequential(nn.Embedding(726, 8), nn.Embedding(726, 8), nn.Embedding(5, 2))
    text = describe(model)
    assert "2 tables of 726 embeddings of width 8 with dense updates each, 5 embeddings" in text
    assert text.count("726") == 1
