"""A trained pair of parties, and their service over real sockets and real TLS."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from florist.active_party.role import ACTIVE
from florist.active_party.serving import make_service
from florist.common.bundle.loading import load_bundle
from florist.common.core.progress import NoProgress
from florist.common.data.preprocessing import Preprocessing
from florist.common.data.table_reader import read_whole_table
from florist.common.session.stage_state import StageOptions
from florist.common.settings.loader import load_config
from florist.common.settings.serving import Serving
from florist.common.stages.run_stages import run_stage
from florist.experiments import click_data
from florist.experiments.sample_data import held_out_path
from florist.passive_party.role import PASSIVE
from florist.passive_party.serving import PredictionClient
from tests.support.parties import QuickClicks, Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from florist.common.bundle.bundle import ActiveBundle, PassiveBundle
    from florist.common.core.roles import RoleName
    from florist.common.data.features import Features
    from florist.common.data.raw_table import RawTable
    from florist.common.session.stage_state import StageName
    from florist.common.settings.party_config import PartyConfig
    from florist.common.transport.grpc_prediction_server import PredictionServer

#: Columns that the active party has in `SharedColumns`.
OWN = click_data.NUMERIC[:3]


@dataclass(frozen=True)
class QuickModel(QuickClicks):
    """Enough people for a model that does something; one epoch."""

    people: int = 800

    def settings(self, role: RoleName) -> dict[str, Any]:
        return QuickClicks.settings(self, role) | {
            "audit.enabled": False,
            "agreement.training.epochs": 1,
            "agreement.training.checkpoint_every": 0,
            "agreement.training.embedding_noise": 0.0,  # so that results can be compared
            "agreement.serving.hiding_size": 16,
        }


@dataclass(frozen=True)
class SharedColumns(QuickModel):
    """The active party has features of its own."""

    def write(self, active: Path, passive: Path) -> None:
        data, who = self.data()
        rest = [c for c in (*click_data.NUMERIC, *click_data.CATEGORICAL) if c not in OWN]
        for path, rows in ((active, who.active), (held_out_path(active), who.test)):
            click_data.write_table(click_data.active_table(data, rows, OWN), path)
        for path, rows in ((passive, who.passive), (held_out_path(passive), who.test)):
            click_data.write_table(click_data.passive_table(data, rows, rest), path)


def train_pair(directory: Path, sample: QuickModel) -> Workspace:
    """Both parties, aligned and trained, in threads of this process."""
    workspace = Workspace.create(directory, sample)
    run_stages(workspace, "align", "train")
    return workspace


def run_stages(workspace: Workspace, *stages: StageName) -> None:
    """Run stages of both parties, in threads of this process."""

    def run(role: RoleName) -> None:
        config = load_config(workspace.config(role))
        kind = ACTIVE if role == "active" else PASSIVE
        for stage in stages:
            run_stage(stage, kind, config, StageOptions(), NoProgress())

    with ThreadPoolExecutor(2) as both:
        for done in [both.submit(run, role) for role in ("active", "passive")]:
            done.result(timeout=100)


def config_of(
    workspace: Workspace, role: RoleName, address: str = "127.0.0.1:0", **serving: object
) -> PartyConfig:
    """A party's configuration, with other settings of serving; sections as dicts."""
    config = load_config(workspace.config(role))
    settings = Serving.model_validate(serving)
    return config.model_copy(update={"serving": settings.model_copy(update={"address": address})})


@contextmanager
def service(
    workspace: Workspace, *, plaintext: bool = False, **serving: object
) -> Iterator[PredictionServer]:
    """The active party's service in this process."""
    config = config_of(workspace, "active", "127.0.0.1:0", **serving)
    with make_service(config, plaintext=plaintext) as server:
        yield server


@contextmanager
def client_of(
    workspace: Workspace, address: str, *, plaintext: bool = False, **serving: object
) -> Iterator[PredictionClient]:
    config = config_of(workspace, "passive", address, **serving)
    with PredictionClient.connect(config, plaintext=plaintext, timeout=20) as client:
        yield client


def halves(workspace: Workspace) -> tuple[ActiveBundle, PassiveBundle]:
    """Both halves of the model, as no party has them."""
    return (
        load_bundle(workspace.run_directory("active"), "active"),
        load_bundle(workspace.run_directory("passive"), "passive"),
    )


def whole_model(workspace: Workspace, features: Features) -> npt.NDArray[np.float32]:
    """Predictions of both halves in one process: what served ones must equal."""
    active, passive = halves(workspace)
    with torch.inference_mode():
        predictions: npt.NDArray[np.float32] = active.predict(passive.embed(features)).numpy()
        return predictions


def table_of(workspace: Workspace, role: RoleName) -> RawTable:
    """A party's training table, as its preprocessing takes it."""
    config = load_config(workspace.config(role))
    features = Preprocessing.load(config.run_directory / "training" / "preprocessing").features
    return read_whole_table(config.data.train, "strip", features=features)
