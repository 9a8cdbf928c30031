"""Both parties' stage in threads of this process, over an in-memory link."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from florist.active_party.role import ACTIVE
from florist.common.core.errors import FloristError
from florist.common.core.progress import NoProgress
from florist.common.session.stage_state import StageOptions
from florist.common.settings.loader import load_config
from florist.common.stages.run_stages import run_stage
from florist.common.transport.in_memory import linked_pair
from florist.passive_party.role import PASSIVE
from tests.support.in_process import RoleOverLink
from tests.support.parties import ROLES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from florist.common.core.progress import Progress
    from florist.common.core.roles import RoleName
    from florist.common.session.stage_state import StageName
    from tests.support.parties import Workspace

BOTH = {"active": ACTIVE, "passive": PASSIVE}


def end_of_both(
    workspace: Workspace,
    stage: StageName,
    *,
    progress: Mapping[RoleName, Progress] | None = None,
    options: StageOptions | None = None,
) -> dict[RoleName, FloristError | None]:
    """Run a stage of both parties; return the error with which each ended, or None."""
    links = dict(zip(ROLES, linked_pair(), strict=True))

    def end(role: RoleName) -> FloristError | None:
        side = RoleOverLink(BOTH[role], links[role])
        shown = (progress or {}).get(role, NoProgress())
        config = load_config(workspace.config(role))
        try:
            run_stage(stage, side, config, options or StageOptions(), shown)
        except FloristError as error:
            return error
        return None

    with ThreadPoolExecutor(2) as both:
        ends = {role: both.submit(end, role) for role in ROLES}
        return {role: each.result(timeout=90) for role, each in ends.items()}
