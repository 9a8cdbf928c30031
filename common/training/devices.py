"""The device, the number of threads, and bitwise reproducibility."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
from torch.utils import deterministic as deterministic_memory

from florist.common.core.errors import ConfigurationError

if TYPE_CHECKING:
    from florist.common.settings.training import DeviceName


def available_devices() -> list[str]:
    """Return the names of this machine's devices, fastest first; cpu is always last."""
    found = ["cuda"] if torch.cuda.is_available() else []
    if torch.backends.mps.is_available():
        found.append("mps")
    return [*found, "cpu"]


def pick_device(setting: DeviceName, processes: int = 1) -> torch.device:
    """Return the device that `training.device` names; auto is cuda if available, otherwise cpu.

    auto never picks mps, which has no sparse tensors; the models are too small to gain much on it.

    Raises:
        ConfigurationError: this machine does not have it, or not enough for all processes.
    """
    available = available_devices()
    if setting == "auto":
        setting = "cuda" if "cuda" in available else "cpu"
    if setting not in available:
        raise ConfigurationError(
            f"training.device: {setting} is not available on this machine or in this build of "
            f"torch; use auto or one of {', '.join(available)}"
        )
    if setting != "cpu" and processes > 1:
        most = torch.cuda.device_count() if setting == "cuda" else 1
        if processes > most:
            raise ConfigurationError(
                f"training.processes: {processes} processes need a GPU each, but this machine has "
                f"{most} {setting} device{'' if most == 1 else 's'}; set it to {most}, or use "
                "training.device: cpu"
            )
    return torch.device(setting)


def set_threads(threads: int, processes: int = 1) -> int:
    """Set the number of threads that torch uses in this process, and return it.

    Args:
        threads: for all processes together; 0 means one per available core.
        processes: training processes that share them.
    """
    count = max(1, (threads or len(os.sched_getaffinity(0))) // processes)
    torch.set_num_threads(count)
    return count


def enable_determinism() -> None:
    """Make this process's results bitwise reproducible for the same inputs and seeds.

    This holds for one type of CPU, one version of torch and one number of threads, because sums are
    split differently otherwise. On cuda, operations without a deterministic implementation raise.
    """
    # Read when cuda is initialised.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(mode=True)
    torch.backends.cudnn.benchmark = False
    # Otherwise torch would fill each new tensor, although no code here reads one before writing.
    deterministic_memory.fill_uninitialized_memory = False  # type: ignore[attr-defined]
