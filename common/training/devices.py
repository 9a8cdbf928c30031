"""What computes: the device, the number of threads, and whether a run repeats to the last bit."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
from torch.utils import deterministic as deterministic_memory

from florist.common.core.errors import ConfigurationError

if TYPE_CHECKING:
    from florist.common.settings.training import DeviceName


def available_devices() -> list[str]:
    """Names of the devices of this machine, fastest first; cpu is always the last."""
    found = ["cuda"] if torch.cuda.is_available() else []
    if torch.backends.mps.is_available():
        found.append("mps")
    return [*found, "cpu"]


def pick_device(setting: DeviceName, processes: int = 1) -> torch.device:
    """The device that `training.device` names; auto is cuda if it is there, else cpu.

    Not mps by itself: it has no sparse tensors, and the models are too small to gain much.

    Raises:
        ConfigurationError: this machine does not have it, or not for so many processes.
    """
    available = available_devices()
    if setting == "auto":
        setting = "cuda" if "cuda" in available else "cpu"
    if setting not in available:
        raise ConfigurationError(
            f"training.device: {setting} is not there on this machine or in this build of torch; "
            f"take auto or one of {', '.join(available)}"
        )
    if setting != "cpu" and processes > 1:
        most = torch.cuda.device_count() if setting == "cuda" else 1
        if processes > most:
            raise ConfigurationError(
                f"training.processes: {processes} need a GPU each, and of {setting} there "
                f"{'is' if most == 1 else 'are'} {most} here; take {most}, or training.device: cpu"
            )
    return torch.device(setting)


def set_threads(threads: int, processes: int = 1) -> int:
    """Compute with so many threads, 0 for one per core that we may use; returns the number.

    They are shared out to processes that compute at the same time.
    """
    count = max(1, (threads or len(os.sched_getaffinity(0))) // processes)
    torch.set_num_threads(count)
    return count


def deterministic() -> None:
    """Make this process repeat its results to the last bit, for the same inputs and seeds.

    That holds on one kind of CPU, with one version of torch and one number of threads: sums of
    other lengths are rounded otherwise. On cuda, operations that have no repeatable form raise.
    """
    # Read when cuda starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(mode=True)
    torch.backends.cudnn.benchmark = False
    # Else torch would fill each new tensor, which nothing here reads before writing.
    deterministic_memory.fill_uninitialized_memory = False  # type: ignore[attr-defined]
