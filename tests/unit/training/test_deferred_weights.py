"""Deferred weight gradients give bitwise the same result as immediate ones."""

from __future__ import annotations

import pytest
import torch

from florist.common.settings.agreement import TrainingAgreement
from florist.common.settings.training import Model, Optimiser
from florist.common.training.compute import LocalCompute
from florist.common.training.deferred_weights import DeferredWeightCompute
from florist.common.training.model_factory import make_agreed_active
from florist.common.training.optimisers import Optimisers
from florist.common.training.rate_schedule import RateSchedule

CPU = torch.device("cpu")
CARDINALITIES = (5, 40)
STEPS = [(33, 64, 31), (1,), (50, 2)]


def make(*, own_features: bool, updates: str, classes: int) -> LocalCompute:
    model = make_agreed_active(
        TrainingAgreement(cut_width=16, classes=classes),
        Model.model_validate(
            {"hidden": [24, 16], "tower": [8], "embedding_updates": updates},
        ),
        numeric=3 if own_features else 0,
        cardinalities=CARDINALITIES if own_features else (),
        device=CPU,
        seed=1,
    )
    return LocalCompute(model, Optimisers(model, Optimiser(), RateSchedule(0.1, 1, "constant")))


def run(
    compute: LocalCompute | DeferredWeightCompute, *, own_features: bool, masking: bool, width: int
) -> list[torch.Tensor]:
    """Run a few steps; return all outputs and gradients, and the final weights."""
    generator = torch.Generator().manual_seed(2)
    seen: list[torch.Tensor] = []
    for parts in STEPS:
        compute.zero_grad()
        for rows in parts:
            own = []
            if own_features:
                own.append(torch.rand(rows, 3, generator=generator))
                columns = [
                    torch.randint(size, (rows,), generator=generator) for size in CARDINALITIES
                ]
                own.append(torch.stack(columns, 1))
            first = torch.randn(rows, width, generator=generator).requires_grad_()
            model_pass = compute.forward(first, *own)
            gradients = tuple(
                torch.randn(each.shape, generator=generator) for each in model_pass.outputs
            )
            if masking:
                seen.append(model_pass.input_gradient(gradients[:1]))
                model_pass.backward(gradients)
            else:
                seen.append(model_pass.backward_with_input_gradient(gradients[:1]))
            seen += model_pass.outputs
        compute.step(0)
    return seen + list(compute.state()[0].values())


@pytest.mark.parametrize("masking", [False, True])
@pytest.mark.parametrize(
    ("own_features", "updates"), [(False, "dense"), (True, "dense"), (True, "sparse")]
)
@pytest.mark.parametrize("classes", [2, 4])
def test_deferred_gradients_equal_immediate_ones(
    *, masking: bool, own_features: bool, updates: str, classes: int
) -> None:
    width = 16 + (1 if classes == 2 else classes)  # with the wide part
    results = [
        run(compute, own_features=own_features, masking=masking, width=width)
        for compute in (
            make(own_features=own_features, updates=updates, classes=classes),
            DeferredWeightCompute(
                make(own_features=own_features, updates=updates, classes=classes)
            ),
        )
    ]
    for now, later in zip(*results, strict=True):
        assert torch.equal(now, later)


def test_input_gradients_come_before_weight_gradients() -> None:
    local = make(own_features=False, updates="dense", classes=2)
    compute = DeferredWeightCompute(local)
    compute.zero_grad()
    model_pass = compute.forward(torch.randn(4, 17, requires_grad=True))
    assert model_pass.backward_with_input_gradient((torch.randn(4),)).shape == (4, 17)
    assert all(each.grad is None for each in local.model.parameters())


def test_zero_grad_drops_deferred_gradients() -> None:
    local = make(own_features=False, updates="dense", classes=2)
    before = [each.clone() for each in local.model.parameters()]
    compute = DeferredWeightCompute(local)
    compute.zero_grad()
    compute.forward(torch.randn(4, 17, requires_grad=True)).backward_with_input_gradient(
        (torch.randn(4),)
    )
    compute.zero_grad()
    compute.step(0)
    assert all(map(torch.equal, before, local.model.parameters()))


def test_uses_without_gradients_are_not_recorded() -> None:
    local = make(own_features=False, updates="dense", classes=2)
    compute = DeferredWeightCompute(local)
    with torch.no_grad():
        local.model(torch.randn(4, 17))
    assert not compute._layers.uses
