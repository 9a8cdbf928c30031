"""The template of a stage: the order of its parts, and what happens to files around them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from florist.active_party.role import ACTIVE
from florist.common.core.errors import ConfigurationError, FloristError
from florist.common.core.progress import NoProgress
from florist.common.session.stage_state import StageOptions
from florist.common.settings.loader import load_config
from florist.common.stages.stage import Stage, StageContext
from florist.common.transport.in_memory import linked_pair
from florist.passive_party.role import PASSIVE
from tests.support.in_process import RoleOverLink, RoleWithoutPeer
from tests.support.parties import ROLES, Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from florist.common.session.session import Session
    from florist.common.stages.role import Role

SIDES: dict[str, Role] = {"active": ACTIVE, "passive": PASSIVE}


class EchoStage(Stage[str, str]):
    """Records the order of calls; its result is a file with the input."""

    name = "align"

    def __init__(self, context: StageContext, *, input_error: bool = False) -> None:
        super().__init__(context)
        self.calls: list[str] = []
        self._input_error = input_error

    @contextmanager
    def open_inputs(self) -> Iterator[str]:
        self.calls.append("open")
        if self._input_error:
            raise ConfigurationError("data.train: unusable")
        yield "input"
        self.calls.append("close")

    def work(self, inputs: str, session: Session) -> str:
        self.calls.append("work")
        self.runs.work(self.name).mkdir(exist_ok=True)
        return f"{inputs} of {self.role.name}"

    def save(self, inputs: str, outcome: str, session: Session, folder: Path) -> None:
        self.calls.append("save")
        (folder / "result.txt").write_text(outcome)

    def report(self, inputs: str, outcome: str, session: Session, evidence: str) -> str | None:
        self.calls.append("report")
        peer = self.config.party.peer
        assert evidence == f"This party and {peer} have signed the same record of this stage."
        return "<p>report</p>" if self.role.name == "active" else None

    def clean_up(self, inputs: str) -> None:
        self.calls.append("clean up")


@dataclass
class Parties:
    """Both parties' configurations."""

    workspace: Workspace
    stages: dict[str, EchoStage] = field(default_factory=dict)

    def context(self, role: Role, *, force: bool = False) -> StageContext:
        config = load_config(self.workspace.config(role.name))
        return StageContext(role, config, StageOptions(force=force), NoProgress())

    def run(self, *, force: bool = False) -> dict[str, Path]:
        links = zip(ROLES, linked_pair(), strict=True)
        self.stages = {
            role: EchoStage(self.context(RoleOverLink(SIDES[role], link), force=force))
            for role, link in links
        }
        with ThreadPoolExecutor(2) as both:
            ends = {role: both.submit(stage.run) for role, stage in self.stages.items()}
            return {role: end.result(timeout=30) for role, end in ends.items()}

    def refuse(self, *, force: bool = False, input_error: bool = False) -> EchoStage:
        """Run the active party's stage, which must fail before it connects."""
        context = self.context(RoleWithoutPeer(ACTIVE), force=force)
        stage = EchoStage(context, input_error=input_error)
        with pytest.raises(FloristError):
            stage.run()
        return stage


@pytest.fixture
def parties(tmp_path: Path) -> Parties:
    return Parties(Workspace.create(tmp_path / "pair"))


def test_parts_run_in_order_and_the_result_is_complete(parties: Parties) -> None:
    results = parties.run()
    for role, stage in parties.stages.items():
        expected = ["open", "work", "save", "report", "clean up", "close"]
        assert stage.calls == expected
        assert (results[role] / "result.txt").read_text() == f"input of {role}"
        assert not stage.runs.work("align").exists()
        assert not stage.runs.pending("align").exists()
    assert (results["active"] / "report.html").read_text() == "<p>report</p>"
    assert not (results["passive"] / "report.html").exists()


def test_a_complete_stage_is_refused_before_its_inputs_are_read(parties: Parties) -> None:
    result = parties.run()["active"]
    assert parties.refuse().calls == []
    assert (result / "result.txt").exists()


def test_force_replaces_the_result(parties: Parties) -> None:
    result = parties.run()["active"]
    (result / "result.txt").write_text("old")
    parties.run(force=True)
    assert (result / "result.txt").read_text() == "input of active"


@pytest.mark.parametrize("force", [False, True])
def test_only_force_discards_unfinished_work(parties: Parties, force: bool) -> None:  # noqa: FBT001
    work = parties.workspace.run_directory("active").work("align")
    work.mkdir(parents=True)
    assert parties.refuse(force=force, input_error=True).calls == ["open"]
    assert work.exists() is not force


def test_the_run_directory_is_locked_during_a_stage(parties: Parties) -> None:
    with parties.workspace.run_directory("active").locked():
        assert parties.refuse().calls == []
