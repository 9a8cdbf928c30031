"""Creates the union runner and the executor that a party's configuration selects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.cluster.branched_union_runner import BranchedUnionRunner
from florist.common.psu.executor import LocalExecutor
from florist.common.psu.union_runner import LocalUnionRunner

if TYPE_CHECKING:
    from florist.common.groups.group import Group
    from florist.common.psu.executor import Executor
    from florist.common.psu.union_runner import UnionRunner
    from florist.common.settings.party_config import PartyConfig


def make_union_runner(config: PartyConfig, group: Group, *, plaintext: bool) -> UnionRunner:
    """Return the configured union runner; the caller closes it, then the group.

    Raises:
        ConfigurationError: it cannot be used on this machine.
    """
    if config.agreement.branches == 1:
        return LocalUnionRunner(make_executor(config, group))
    from florist.common.cluster.ray_branches import RayBranches  # noqa: PLC0415 - ray is an extra

    return BranchedUnionRunner(RayBranches(config), group, plaintext=plaintext)


def make_executor(config: PartyConfig, group: Group) -> Executor:
    """Return the configured executor; the caller closes it, then the group.

    Raises:
        ConfigurationError: it cannot be used on this machine.
    """
    compute = config.compute
    if compute.executor == "local":
        return LocalExecutor(group)
    from florist.common.cluster.ray_executor import RayExecutor  # noqa: PLC0415 - ray is an extra

    return RayExecutor(
        group,
        folder=config.run_directory,
        engine=compute.engine,
        address=compute.ray_address,
        workers=compute.ray_workers,
    )
