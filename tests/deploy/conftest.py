"""Fixtures: a container engine and an image. Without them, tests are skipped with the reason."""

from __future__ import annotations

import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.deploy.build_inputs import (
    download_wheels,
    load_base_images,
    make_base_images,
    served,
)
from tests.deploy.debian import BOOTSTRAP, ENGINE, Unpacked
from tests.deploy.engine import compose_command, private_engine, running_engine
from tests.deploy.shell import CannotRun, run
from tests.deploy.trial import Trial, build_image

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from florist.experiments.sample_data import Sample
    from tests.deploy.engine import Engine

IMAGE = "florist:deployment-test"


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """Make a folder with a short path: the path of a socket has at most 107 characters."""
    folder = Path(tempfile.mkdtemp(prefix="florist-"))
    try:
        yield folder
    finally:
        # Images have many files. If a mount is left over, its content is not ours.
        run("rm", "--recursive", "--force", "--one-file-system", folder, timeout=300)


@pytest.fixture(scope="session")
def packages(scratch: Path) -> Callable[[], Unpacked]:
    """Return a function that sets up Debian packages on first use."""
    made: list[Unpacked] = []

    def get() -> Unpacked:
        if not made:
            made.append(Unpacked(scratch / "packages"))
        return made[0]

    return get


@pytest.fixture(scope="session")
def compose_env(packages: Callable[[], Unpacked], scratch: Path) -> dict[str, str]:
    """Return the environment variables with which `docker compose` works; it needs no engine."""
    try:
        return compose_command(packages, scratch)
    except CannotRun as reason:
        pytest.skip(f"no `docker compose`: {reason}")


@pytest.fixture(scope="session")
def engine(
    packages: Callable[[], Unpacked], compose_env: dict[str, str], scratch: Path
) -> Iterator[Engine]:
    if running := running_engine():
        yield running
        return
    try:
        packages().add(*ENGINE, *BOOTSTRAP)
        folder = scratch / "engine"
        folder.mkdir()
        with private_engine(packages(), compose_env, folder) as own:
            yield own
    except CannotRun as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def image(engine: Engine, packages: Callable[[], Unpacked], scratch: Path) -> Iterator[str]:
    """Build the image from this checkout, as `docker compose up` does."""
    try:
        if engine.private:
            _build_without_registry(engine, packages(), scratch)
        else:
            build_image(engine, IMAGE)
    except CannotRun as reason:
        pytest.skip(str(reason))
    yield IMAGE
    if not engine.private:
        engine.docker("image", "rm", IMAGE)


@pytest.fixture
def make_trial(engine: Engine, image: str, tmp_path: Path) -> Iterator[Callable[..., Trial]]:
    """Return a function that makes trials, each with its own project; remove them afterwards."""
    trials: list[Trial] = []

    def make(sample: Sample) -> Trial:
        trials.append(Trial.create(engine, image, tmp_path / f"trial-{len(trials)}", sample))
        return trials[-1]

    yield make
    for trial in trials:
        print(trial.logs())  # noqa: T201 - pytest shows it on failure
        trial.remove()


def _build_without_registry(engine: Engine, packages: Unpacked, scratch: Path) -> None:
    wheels = scratch / "wheels"
    with ThreadPoolExecutor() as pool:
        archives = pool.submit(make_base_images, packages, scratch)
        downloaded = pool.submit(download_wheels, wheels)
        load_base_images(engine, archives.result())
        downloaded.result()
    with served(wheels) as address:
        arguments = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": address}
        override = {"services": {"active": {"build": {"network": "host", "args": arguments}}}}
        (scratch / "build.yml").write_text(yaml.safe_dump(override))
        build_image(engine, IMAGE, scratch / "build.yml")
    shutil.rmtree(wheels)
