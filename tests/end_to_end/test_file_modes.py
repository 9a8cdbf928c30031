"""Nothing in the run directory of a finished run is accessible to other users."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from florist.common.session.run_directory import RunDirectory
from florist.common.settings.loader import load_config
from florist.experiments import click_data
from florist.experiments.sample_data import evaluation_path
from florist.passive_party.http_service import serve
from tests.support.links import free_address
from tests.support.parties import ROLES
from tests.support.serving import OWN, SharedColumns, config_of, run_stages, service, train_pair

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from florist.common.core.roles import RoleName


@dataclass(frozen=True)
class EveryFile(SharedColumns):
    """A run that writes all kinds of files."""

    people: int = 400
    evaluation_fraction: float = 1.0

    def settings(self, role: RoleName) -> dict[str, Any]:
        return SharedColumns.settings(self, role) | {
            "audit.enabled": True,
            "audit.keep_view": True,
            "training.tensorboard": True,
            "agreement.training.checkpoint_every": 3,
        }

    def write(self, active: Path, passive: Path) -> None:
        SharedColumns.write(self, active, passive)
        rest = [c for c in (*click_data.NUMERIC, *click_data.CATEGORICAL) if c not in OWN]
        data, whose = self.evaluation_data()
        ours = click_data.active_table(data, whose["active"], OWN)
        theirs = click_data.passive_table(data, whose["passive"], rest)
        click_data.write_table(ours, evaluation_path(active))
        click_data.write_table(theirs, evaluation_path(passive))


@pytest.fixture
def _no_umask() -> Iterator[None]:
    """Let new files and folders be accessible to everybody unless their mode says otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_no_umask")
def test_a_finished_run_is_accessible_only_to_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each stage also corrects what earlier ones left; here they have to do it right themselves.
    monkeypatch.setattr(RunDirectory, "restrict", lambda _: None)
    workspace = train_pair(tmp_path / "pair", EveryFile())
    run_stages(workspace, "evaluate")
    with service(workspace) as server:
        done = Event()
        done.set()
        http = {"address": free_address()}
        config = config_of(workspace, "passive", server.address, http=http)
        serve(config, done, plaintext=False)
    for role in ROLES:
        runs = load_config(workspace.config(role)).run_directory
        entries = [runs, *runs.rglob("*")]
        modes = {
            str(path.relative_to(runs)): oct(stat.S_IMODE(path.lstat().st_mode)) for path in entries
        }
        expected = {
            str(path.relative_to(runs)): "0o700" if path.is_dir() else "0o600" for path in entries
        }
        assert modes == expected
        assert EXPECTED | {f"serving/{SECRETS[role]}"} <= modes.keys()
        assert any(name.startswith("tensorboard/events") for name in modes)


#: Some files of each kind, so that the walk is known to have seen them.
EXPECTED = {
    ".lock",
    "alignment/train/ranks.parquet",
    "audit/audit.jsonl",
    "audit/view.safetensors",
    "evaluation-alignment/begun",
    "evaluation-alignment/draws.key",
    "evaluation/report.html",
    "training/model.json",
    "training/preprocessing/vocabularies.parquet",
    "training/report.html",
}
SECRETS = {"active": "secret", "passive": "http-token"}
