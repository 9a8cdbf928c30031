"""What the parties of a schedule do: small tables and models, and runs prepared up to a stage."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from florist.active_party.role import ACTIVE
from florist.cli.init import Names, write_first_files
from florist.common.session.stage_state import STAGES
from florist.common.settings.loader import load_config
from florist.experiments.sample_data import ANY_OVERLAP, evaluation_path
from florist.passive_party.role import PASSIVE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from florist.common.core.roles import RoleName
    from florist.common.session.stage_state import StageName
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.role import Role

ROLES: tuple[RoleName, RoleName] = ("active", "passive")
BOTH: dict[RoleName, Role] = {"active": ACTIVE, "passive": PASSIVE}

#: What a schedule is about: one stage, prepared up to it, or all of them.
ScenarioName = Literal["align", "train", "evaluate", "all"]

#: Each scenario with its share of the schedules, roughly by how much can go wrong.
SHARES: dict[ScenarioName, float] = {"align": 0.5, "train": 0.18, "evaluate": 0.27, "all": 0.05}

#: People of each party: some are shared.
PEOPLE: dict[RoleName, range] = {"active": range(14), "passive": range(6, 20)}
EVALUATION_PEOPLE: dict[RoleName, range] = {"active": range(100, 112), "passive": range(104, 118)}

#: Virtual seconds.
TIMEOUTS = {
    "timeouts.connect": 60.0,
    "timeouts.silence": 10.0,
    "timeouts.stall": 90.0,
    "timeouts.outage": 120.0,
}


class FewPeople:
    """A sample of a few people, with two numbers and a category each."""

    id_column = "person"
    suffix = ".csv"

    def write(self, active: Path, passive: Path) -> None:
        draw = random.Random(1)
        for people, tables in ((PEOPLE, lambda path: path), (EVALUATION_PEOPLE, evaluation_path)):
            _write(tables(active), people["active"], ("label",), draw)
            _write(tables(passive), people["passive"], ("x", "y", "kind"), draw)

    def settings(self, role: RoleName) -> dict[str, object]:
        own = {"data.train.label": "label"} if role == "active" else {}
        return own | {
            **ANY_OVERLAP,
            **TIMEOUTS,
            "audit.enabled": False,
            "compute.threads": 1,
            "data.preprocessing.min_count": 1,
            "model.hidden": [4, 4],
            "model.tower": [4],
            "optimiser.learning_rate": 1e-2,
            "privacy.budget": None,
            "privacy.minimum_change": 0,
            "training.seed": 1 if role == "active" else 2,
            "training.threads": 1,
            "training.worth": False,
            "agreement.evaluation.stand_ins": "repeated",
            "agreement.evaluation.table": True,
            "agreement.training.batch_size": 16,
            "agreement.training.checkpoint_every": 1,
            "agreement.training.cut_width": 4,
            "agreement.training.epochs": 2,
            "agreement.training.micro_batch": 8,
            "agreement.union.planted_pairs": 2,
            "agreement.union.privacy.delta": 1e-3,
            "agreement.union.privacy.epsilon": 10.0,
        }


def identifier(person: int) -> str:
    """Return the ID of a person."""
    return f"p{person:04d}"


def _write(
    path: Path, people: Iterable[int], columns: tuple[str, ...], draw: random.Random
) -> None:
    rows = list(people)
    draw.shuffle(rows)
    lines = [",".join(("person", *columns))]
    for person in rows:
        values = {
            "label": str(person % 2),
            "x": f"{draw.random():.3f}",
            "y": f"{draw.random():.3f}",
            "kind": "abc"[person % 3],
        }
        lines.append(",".join((identifier(person), *(values[name] for name in columns))))
    path.write_text("\n".join(lines) + "\n")


#: The files of each party, by path; None is a folder.
Files = dict["RoleName", dict[str, bytes | None]]


@dataclass
class Scenarios:
    """The parties' configurations and prepared files."""

    folder: Path
    configs: dict[RoleName, PartyConfig]
    #: The files before each stage.
    before: dict[StageName, Files] = field(default_factory=dict)
    #: By scenario: the number of points at which a fault can happen in an undisturbed run.
    points: dict[ScenarioName, int] = field(default_factory=dict)
    #: The weights of the undisturbed training, as digests of the files.
    weights: dict[RoleName, str] = field(default_factory=dict)

    @classmethod
    def create(cls, folder: Path) -> Scenarios:
        """Write tables and configurations; the stages before a stage are run by `prepare`."""
        shutil.rmtree(folder, ignore_errors=True)
        write_first_files(folder, Names("bank", "telco"), "127.0.0.1:1", FewPeople())
        configs = {role: load_config(folder / f"{role}.yml") for role in ROLES}
        return cls(folder, configs)

    def config(self, role: RoleName, root: Path) -> PartyConfig:
        """Return a party's configuration with its files below `root`."""
        config, folder = self.configs[role], root / role
        privacy = config.privacy.model_copy(update={"ledger": folder / "ledger"})
        return config.model_copy(update={"run_directory": folder / "run", "privacy": privacy})

    def stages(self, name: ScenarioName) -> tuple[StageName, ...]:
        return STAGES if name == "all" else (name,)

    def prepare(self, name: ScenarioName, root: Path) -> None:
        """Write the files from which a scenario starts."""
        shutil.rmtree(root, ignore_errors=True)
        files = self.before.get(self.stages(name)[0], {})
        for role in ROLES:
            (root / role).mkdir(parents=True, mode=0o700)
            write_files(root / role, files.get(role, {}))


def read_files(root: Path) -> dict[str, bytes | None]:
    """Return all files below a folder."""
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes()
        for path in sorted(root.rglob("*"))
    }


def write_files(root: Path, files: dict[str, Any]) -> None:
    """Write what `read_files` has returned, accessible only to the owner."""
    for name, content in files.items():
        path = root / name
        if content is None:
            path.mkdir(mode=0o700)
        else:
            path.touch(mode=0o600)
            path.write_bytes(content)
