"""Loads everything once and runs the undisturbed schedules, before many others are run."""

from __future__ import annotations

import functools
import gc
import importlib
import pkgutil
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.schedules.patching import install, patch_florist, replace

if TYPE_CHECKING:
    from pathlib import Path

    from tests.schedules.scenario import Scenarios

#: Packages that schedules do not use; some need extras.
_NOT_USED = ("florist.common.cluster.ray", "florist.experiments", "florist.cli")

#: Packages that are imported when they are first used; their locks must not be simulated ones.
_LATE = ("sklearn.metrics", "torch._dynamo")


def warm_up(folder: Path) -> Scenarios:
    """Prepare all scenarios in a folder. The calling process runs nothing but schedules."""
    install()
    for name in ("florist.common", "florist.active_party", "florist.passive_party"):
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith(_NOT_USED):
                with suppress(ModuleNotFoundError):  # of an extra that is not installed
                    importlib.import_module(module.name)
    for name in _LATE:
        importlib.import_module(name)
    _simplify()
    patch_florist()
    scenarios = _undisturbed(folder)
    gc.collect()
    gc.freeze()  # collections between schedules look only at what a schedule has left
    return scenarios


def _simplify() -> None:
    """Leave out what is slow and has nothing to do with faults."""
    import torch  # noqa: PLC0415 - after `install`

    from florist.common.stages import evaluate, train  # noqa: PLC0415

    torch.set_num_threads(1)
    for stage in (train, evaluate):
        replace(stage, "render", lambda _: "")
    _remember_results()


def _remember_results() -> None:
    """Compute once what is a function of the same arguments in many schedules."""
    from florist.common.oblivious_transfer import BaseReceiver, BaseSender  # noqa: PLC0415
    from florist.common.session import session  # noqa: PLC0415
    from florist.common.settings.agreement_differences import differences  # noqa: PLC0415
    from florist.common.storage.manifest import Manifest  # noqa: PLC0415
    from florist.common.training import transfers  # noqa: PLC0415

    # The secrets of training are the same in each schedule. These objects do not change.
    replace(BaseReceiver, "finish", functools.cache(BaseReceiver.finish))
    replace(BaseSender, "answer", functools.cache(BaseSender.answer))
    replace(transfers, "BaseReceiver", functools.cache(BaseReceiver))
    replace(transfers, "BaseSender", functools.cache(BaseSender))
    replace(session, "differences", functools.cache(differences))
    replace(Manifest, "parse", staticmethod(functools.lru_cache(10_000)(Manifest.parse)))


def _undisturbed(folder: Path) -> Scenarios:
    from tests.schedules.faults import Plan  # noqa: PLC0415 - after `install`
    from tests.schedules.invariants import weights  # noqa: PLC0415
    from tests.schedules.scenario import ROLES, Scenarios, read_files  # noqa: PLC0415
    from tests.schedules.world import Schedule  # noqa: PLC0415

    scenarios = Scenarios.create(folder / "files")
    root = folder / "undisturbed"
    for role in ROLES:
        scenarios.weights[role] = ""
    for name in scenarios.stages("all"):
        outcome = Schedule(0, name, scenarios, Plan.none(), root).run()
        if name == "train":
            for role in ROLES:
                run_directory = scenarios.config(role, root).run_directory
                scenarios.weights[role] = weights(run_directory)
        elif outcome.problem:
            raise AssertionError("\n".join((outcome.problem, *outcome.log)))
        scenarios.points[name] = outcome.points
        files = {role: read_files(root / role) for role in ROLES}
        index = scenarios.stages("all").index(name) + 1
        for following in scenarios.stages("all")[index : index + 1]:
            scenarios.before[following] = files
    scenarios.points["all"] = sum(scenarios.points.values())
    return scenarios
