"""What must hold after a schedule."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from florist.common.session.run_directory import RunDirectory
from tests.schedules.scenario import EVALUATION_PEOPLE, PEOPLE, ROLES, identifier
from tests.support.ideal_union import is_ideal
from tests.support.parties import AlignedView
from tests.support.tables import read_ids

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.core.roles import RoleName
    from florist.common.session.alignment_result import TableName
    from tests.schedules.scenario import ScenarioName, Scenarios


class Violation(Exception):  # noqa: N818 - it reads as what happened
    """Something that must hold does not."""


def check_results(name: ScenarioName, scenarios: Scenarios, root: Path) -> None:
    """Check the results of a run that both parties have completed.

    Raises:
        Violation: a result is not that of an undisturbed run.
    """
    stages = scenarios.stages(name)
    if "align" in stages:
        check_union(scenarios, root, "train")
    if name == "train":
        for role in ROLES:
            if weights(scenarios.config(role, root).run_directory) != scenarios.weights[role]:
                raise Violation(f"{role}: other weights than in the undisturbed run")
    if "evaluate" in stages:
        check_union(scenarios, root, "evaluation")
        ours, theirs = (_estimates(scenarios, role, root) for role in ROLES)
        if ours != theirs:
            raise Violation(f"the parties have different figures: {ours} and {theirs}")
    for role in ROLES:
        left = [stage for stage in stages if _is_pending(scenarios, role, root, stage)]
        if left:
            raise Violation(f"{role}: {left} is still pending")


def check_union(scenarios: Scenarios, root: Path, table: TableName) -> None:
    """Check that both parties' ranks are those of the true union."""
    people = EVALUATION_PEOPLE if table == "evaluation" else PEOPLE
    views, ids = {}, {}
    for role in ROLES:
        config = scenarios.config(role, root)
        data = config.data.evaluation if table == "evaluation" else config.data.train
        assert data is not None
        alignment = RunDirectory(config.run_directory).load_alignment(table)
        summary = alignment.summary
        ids[role] = list(read_ids(data.path, "person", "strip"))
        assert set(ids[role]) == {identifier(person).encode() for person in people[role]}
        views[role] = AlignedView(
            alignment.rank_of_row, bytes.fromhex(summary.union_sha256), summary.sizes
        )
    if not is_ideal(ids["active"], ids["passive"], views["active"], views["passive"]):
        raise Violation(f"the union of the {table} tables is wrong")


def weights(run_directory: Path) -> str:
    """Return a digest of a party's trained model."""
    content = (run_directory / "training" / "model.safetensors").read_bytes()
    return hashlib.sha256(content).hexdigest()


def _estimates(scenarios: Scenarios, role: RoleName, root: Path) -> Any:  # noqa: ANN401 - JSON
    path = scenarios.config(role, root).run_directory / "evaluation" / "evaluation.json"
    return json.loads(path.read_text())["estimates"]


def _is_pending(scenarios: Scenarios, role: RoleName, root: Path, stage: Any) -> bool:  # noqa: ANN401
    return RunDirectory(scenarios.config(role, root).run_directory).pending(stage).exists()
