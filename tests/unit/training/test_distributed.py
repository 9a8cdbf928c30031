"""Several processes compute what one does, stay in sync, and never outlive their party."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil
import pytest
import torch

from florist.common.settings.agreement import TrainingAgreement
from florist.common.settings.training import Model, Optimiser
from florist.common.training.compute import LocalCompute
from florist.common.training.distributed import DistributedCompute
from florist.common.training.optimisers import Optimisers
from florist.common.training.process_group import shares
from florist.common.training.replica import ReplicaSettings
from florist.common.training.replica_processes import TrainingProcessLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from florist.common.training.compute import Compute, Tensors

CPU = torch.device("cpu")
CARDINALITIES = [5, 40, 300]
#: Rows of the micro-batches of each step; some have fewer rows than there are processes.
STEPS = [(33, 64, 31), (1,), (2, 1, 50)]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def make_settings(role: str = "passive", size: int = 2, **changes: object) -> ReplicaSettings:
    values: dict[str, object] = {
        "role": role,
        "agreement": TrainingAgreement(cut_width=16, classes=3).resolved(1000),
        "model": Model(hidden=[24, 16], tower=[8]),
        "optimiser": Optimiser(name="sgd", learning_rate=0.1, momentum=0.5),
        "numeric": 4,
        "cardinalities": CARDINALITIES,
        "union_size": 1000,
        "size": size,
        "device": "cpu",
        "threads": 1,
        "deterministic": True,
    }
    return ReplicaSettings.model_validate(values | changes)


def local(settings: ReplicaSettings) -> LocalCompute:
    model = settings.make_model(CPU)
    return LocalCompute(model, Optimisers(model, settings.optimiser, settings.rates))


def distributed(settings: ReplicaSettings) -> DistributedCompute:
    return DistributedCompute(local(settings), settings)


def processes(compute: DistributedCompute) -> list[int]:
    assert compute._replicas is not None
    return [each._process.pid for each in compute._replicas._processes]


@dataclass
class Draws:
    """Random inputs and gradients, the same for all that draw in the same order."""

    settings: ReplicaSettings
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(1))

    def inputs(self, rows: int) -> Tensors:
        drawn = []
        for room in self.settings.new_inputs(rows, CPU):
            if room.dtype == torch.int64:
                columns = [
                    torch.randint(size, (rows,), generator=self.generator) for size in CARDINALITIES
                ]
                drawn.append(torch.stack(columns, 1))
            else:
                drawn.append(torch.rand(room.shape, generator=self.generator))
        return tuple(drawn)

    def like(self, tensors: Tensors) -> Tensors:
        """Draw gradients of a mean over the rows."""
        return tuple(
            torch.randn(each.shape, generator=self.generator) / len(each) for each in tensors
        )


def run(compute: Compute, settings: ReplicaSettings, *, masking: bool = False) -> list[Tensor]:
    """Run a few steps with several passes in flight; return all outputs and gradients."""
    draws = Draws(settings)
    seen: list[Tensor] = []
    for number, parts in enumerate(STEPS):
        compute.zero_grad()
        passes = []
        for rows in parts:
            first, *others = draws.inputs(rows)
            model_pass = compute.forward(first.requires_grad_(settings.role == "active"), *others)
            seen += model_pass.outputs
            passes.append(model_pass)
        for model_pass in passes:
            gradients = draws.like(model_pass.outputs)
            if settings.role == "passive":
                model_pass.backward(gradients)
            elif masking:
                seen.append(model_pass.input_gradient(draws.like(model_pass.outputs[:1])))
                model_pass.backward(gradients)
            else:
                seen.append(model_pass.backward_with_input_gradient(gradients))
        compute.step(number)
    return seen


SPARSE = Model(hidden=[24, 16], tower=[8], embedding_updates="sparse")
PLAIN = TrainingAgreement(cut_width=16, classes=2, masking=False).resolved(1000)
CASES: dict[str, tuple[ReplicaSettings, bool]] = {
    "passive": (make_settings(), False),
    "passive-sparse": (make_settings(model=SPARSE, optimiser=Optimiser(weight_decay=0.1)), False),
    "passive-three": (make_settings(size=3, numeric=0), False),
    "active-labels-only": (
        make_settings("active", agreement=PLAIN, numeric=0, cardinalities=[]),
        False,
    ),
    "active-masked-prior": (make_settings("active", size=3, model=SPARSE), True),
}


@pytest.mark.parametrize("case", CASES)
def test_several_processes_compute_what_one_does(case: str) -> None:
    settings, masking = CASES[case]
    alone = local(settings)
    expected = run(alone, settings, masking=masking)
    with closing(distributed(settings)) as compute:
        tensors, facts = compute.state()
        first = {name: tensor.clone() for name, tensor in tensors.items()}
        found = run(compute, settings, masking=masking)
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
        for name, tensor in alone.state()[0].items():
            torch.testing.assert_close(compute.state()[0][name], tensor, rtol=1e-4, atol=1e-6)
        digests = compute.digests()
        assert len(digests) == settings.size
        assert len(set(digests)) == 1
        compute.load(first, facts)
        again = run(compute, settings, masking=masking)
        assert all(map(torch.equal, found, again))
        assert compute.digests() == digests


def test_rows_are_split_in_order() -> None:
    for rows, size in [(1, 3), (2, 3), (7, 2), (100, 7)]:
        found = shares(rows, size)
        assert [row for share in found for row in range(rows)[share]] == list(range(rows))
        lengths = [share.stop - share.start for share in found]
        assert len(lengths) == size
        assert max(lengths) - min(lengths) <= 1
        assert lengths[0] == max(lengths)


# --- processes that end ---


@pytest.mark.parametrize(("operation", "size"), [("backward", 2), ("step", 3)])
def test_a_killed_process_is_reported_at_once(operation: str, size: int) -> None:
    settings = make_settings(size=size)
    with closing(distributed(settings)) as compute:
        run(compute, settings)
        draws = Draws(settings)
        compute.zero_grad()
        model_pass = compute.forward(*draws.inputs(20))
        gradients = draws.like(model_pass.outputs)
        process = processes(compute)[-1]
        if operation == "step":
            model_pass.backward(gradients)
        operations: dict[str, Callable[[], object]] = {
            "backward": lambda: model_pass.backward(gradients),
            "step": lambda: compute.step(0),
        }
        os.kill(process, signal.SIGKILL)
        killed = time.monotonic()
        with pytest.raises(TrainingProcessLost, match=r"of this party ended: signal 9 \(SIGKILL\)"):
            operations[operation]()
        assert time.monotonic() - killed < 10
    assert not psutil.pid_exists(process)


def test_a_hanging_process_is_reported_within_the_time_limit() -> None:
    settings = make_settings(time_limit=8.0)
    with closing(distributed(settings)) as compute:
        run(compute, settings)
        (process,) = processes(compute)
        os.kill(process, signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(TrainingProcessLost, match="does not answer"):
            compute.forward(*Draws(settings).inputs(20))
        assert time.monotonic() - began < 30
    assert not psutil.pid_exists(process)


def test_a_process_that_cannot_start_reports_why() -> None:
    settings = make_settings(threads=0)
    before = psutil.Process().children()
    with closing(distributed(settings)) as compute, pytest.raises(TrainingProcessLost) as raised:
        compute.forward(*Draws(settings).inputs(20))
    assert re.search("ended: exit code 1, .*set_num_threads", str(raised.value))
    assert set(psutil.Process().children()) <= set(before)


_PARTY = """
import time
from tests.unit.training.test_distributed import distributed, make_settings, processes, run
settings = make_settings()
compute = distributed(settings)
run(compute, settings)
print(*processes(compute), flush=True)
time.sleep(60)
"""


def test_processes_do_not_outlive_their_party() -> None:
    """They end with the party; here they are waiting for a command, as they mostly are."""
    with subprocess.Popen(
        [sys.executable, "-c", _PARTY], stdout=subprocess.PIPE, text=True
    ) as party:
        try:
            assert party.stdout is not None
            (process,) = (int(word) for word in party.stdout.readline().split())
            assert psutil.pid_exists(process)
        finally:
            party.kill()
    _, alive = psutil.wait_procs(
        [psutil.Process(process)] if psutil.pid_exists(process) else [], timeout=10
    )
    assert not alive
