"""Unavailable devices are refused; a deterministic run is bitwise reproducible."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import torch

from florist.common.core.errors import ConfigurationError
from florist.common.settings.training import Optimiser
from florist.common.training.devices import (
    available_devices,
    enable_determinism,
    pick_device,
    set_threads,
)
from florist.common.training.models import BottomModel
from florist.common.training.optimisers import Optimisers
from florist.common.training.rate_schedule import RateSchedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without accelerators, to which a test may add some."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    return monkeypatch


def test_a_machine_without_accelerators(machine: pytest.MonkeyPatch) -> None:
    assert available_devices() == ["cpu"]
    assert pick_device("auto") == pick_device("cpu") == torch.device("cpu")
    for absent in ("cuda", "mps"):
        with pytest.raises(ConfigurationError, match=f"{absent} is not available .* cpu$"):
            pick_device(absent)


def test_auto_takes_cuda_but_not_mps(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(torch.backends.mps, "is_available", lambda: True)
    assert pick_device("auto") == torch.device("cpu")
    assert pick_device("mps") == torch.device("mps")
    machine.setattr(torch.cuda, "is_available", lambda: True)
    assert available_devices() == ["cuda", "mps", "cpu"]
    assert pick_device("auto") == torch.device("cuda")


def test_each_process_needs_a_gpu(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(torch.backends.mps, "is_available", lambda: True)
    machine.setattr(torch.cuda, "device_count", lambda: 4)
    assert pick_device("auto", 64) == pick_device("cpu", 64) == torch.device("cpu")
    with pytest.raises(ConfigurationError, match=r"^training.processes: 2 .* 1 mps device;"):
        pick_device("mps", 2)
    machine.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("auto", 4) == pick_device("cuda", 4) == torch.device("cuda")
    with pytest.raises(ConfigurationError, match=r"^training.processes: 5 .* 4 cuda devices;"):
        pick_device("auto", 5)


@pytest.fixture
def restored() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(mode=False)


@pytest.mark.usefixtures("restored")
def test_threads() -> None:
    assert set_threads(1) == torch.get_num_threads() == 1
    assert set_threads(0) == torch.get_num_threads() == len(os.sched_getaffinity(0))
    assert set_threads(7, processes=3) == torch.get_num_threads() == 2
    assert set_threads(2, processes=3) == torch.get_num_threads() == 1


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("sparse", [False, True])
def test_a_deterministic_run_is_bitwise_reproducible(
    monkeypatch: pytest.MonkeyPatch, *, sparse: bool
) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    enable_determinism()
    set_threads(2)
    first, second = run(sparse=sparse), run(sparse=sparse)
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def run(*, sparse: bool) -> dict[str, Tensor]:
    """Run a few steps with many equal categories, whose gradients are sums of thousands."""
    model = BottomModel(
        numeric=13,
        cardinalities=[50] * 26,
        embedding_width=4,
        layers=[128, 128],
        sparse=sparse,
        seed=3,
    )
    optimisers = Optimisers(model, Optimiser(), RateSchedule(1e-3, 1, "constant"))
    draws = torch.Generator().manual_seed(0)
    for _ in range(3):
        optimisers.zero_grad()
        numbers = torch.rand(4096, 13, generator=draws)
        output = model(numbers, torch.randint(50, (4096, 26), generator=draws))
        output.backward(torch.randn(output.shape, generator=draws))
        optimisers.step(0)
    return model.state_dict()
