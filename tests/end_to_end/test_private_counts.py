"""No message, file or log of a run has the exact overlap or a party's own noise."""

from __future__ import annotations

import logging
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING

from florist.active_party.role import ACTIVE
from florist.cli.progress_display import LineProgress
from florist.common.psu import keys as keys_module
from florist.common.psu.keys import OwnSecrets
from florist.common.session.stage_state import STAGES, StageOptions
from florist.common.settings.loader import load_config
from florist.common.stages.run_stages import run_stage
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.recording import RecordingLink
from florist.passive_party.role import PASSIVE
from tests.support.in_process import RoleOverLink
from tests.support.parties import ROLES, QuickClicks, Workspace
from tests.support.tables import read_ids

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

    from florist.common.core.roles import RoleName
    from florist.common.groups.group import Group
    from florist.common.privacy.count_noise import CountNoise

BOTH = {"active": ACTIVE, "passive": PASSIVE}
#: Files of the owner that are never shared: they have the rank of each person.
OWN_FILES = {"ranks.parquet"}


@dataclass(frozen=True)
class LargeNoise(QuickClicks):
    """Draws of four digits, which do not occur by chance."""

    people: int = 9000
    evaluation_fraction: float = 0.5

    def settings(self, role: RoleName) -> dict[str, object]:
        return QuickClicks.settings(self, role) | {
            "agreement.training.epochs": 1,
            "agreement.training.batch_size": 2048,
            "agreement.training.micro_batch": 1024,
            "agreement.union.privacy.epsilon": 0.01,
            "agreement.union.privacy.delta": 1e-9,
            "agreement.evaluation.stand_ins": "repeated",
        }


def test_nothing_has_the_exact_overlap_or_the_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A number of bytes may be a secret number by chance, but not in the same place twice."""
    with monkeypatch.context() as first:
        found = sources_with_secrets(tmp_path / "first", first, caplog)
    if found:
        caplog.clear()
        with monkeypatch.context() as second:
            again = sources_with_secrets(tmp_path / "second", second, caplog)
        assert found.keys() & again.keys() == set()


def sources_with_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> dict[str, set[int]]:
    """Run all stages; return the files, the log or the messages that contain a secret number."""
    drawn: list[OwnSecrets] = []
    fresh = OwnSecrets.fresh

    def recorded(group: Group, noise: CountNoise | None = None) -> OwnSecrets:
        drawn.append(fresh(group, noise))
        return drawn[-1]

    monkeypatch.setattr(keys_module.OwnSecrets, "fresh", recorded)
    workspace = Workspace.create(tmp_path / "pair", LargeNoise())
    log = logging.getLogger("florist")
    log.propagate = True
    links: list[RecordingLink] = []
    with caplog.at_level(logging.DEBUG, logger="florist"):
        for stage in STAGES:
            pair = dict(zip(ROLES, map(RecordingLink, linked_pair()), strict=True))
            links += pair.values()

            def run(role: RoleName, link: RecordingLink, stage: str = stage) -> None:
                config = load_config(workspace.config(role))
                side = RoleOverLink(BOTH[role], link)
                progress = LineProgress(log, every_seconds=0.0)
                run_stage(stage, side, config, StageOptions(), progress)  # type: ignore[arg-type]

            with ThreadPoolExecutor(2) as both:
                runs = [both.submit(run, role, link) for role, link in pair.items()]
                for each in runs:
                    each.result(timeout=200)

    secret = secret_numbers(workspace, drawn)
    assert len(drawn) == 6, "two parties, three tables"
    assert len(secret) > 12
    found = {
        f"{role}/{path.relative_to(workspace.run_directory(role).path)}": numbers_in(path)
        for role in ROLES
        for path in workspace.run_directory(role).path.rglob("*")
        if path.is_file() and path.name not in OWN_FILES
    }
    assert {"passive/training/report.html", "active/evaluation/evaluation.json"} <= found.keys()
    found["the log"] = numbers(caplog.text)
    found["messages"] = {
        number for link in links for record in link.records for number in integers(record.message)
    }
    # Public numbers are found everywhere, so the search works.
    public = workspace.run_directory("active").load_summary().sizes
    files = "active/alignment/train/alignment.json", "active/training/report.html"
    for source in (*files, "the log", "messages"):
        assert public.own in found[source], source
    return {source: values & secret for source, values in found.items() if values & secret}


def secret_numbers(workspace: Workspace, drawn: list[OwnSecrets]) -> set[int]:
    """Return the overlaps of all tables, and all draws and their sums."""
    secret: set[int] = set()
    configs = {role: load_config(workspace.config(role)).data for role in ROLES}
    for tables in (
        [configs[role].train for role in ROLES],
        [configs[role].test_table for role in ROLES],
        [configs[role].evaluation_table for role in ROLES],
    ):
        people = [set(read_ids(table.path, "person", "strip")) for table in tables if table]
        overlap = len(people[0] & people[1])
        if overlap < min(map(len, people)):  # of the test tables, everybody is shared by agreement
            secret.add(overlap)
    for own in drawn:
        z, w = len(own.draws.chosen), own.draws.dummies
        secret |= {z, w, z + w}
    return secret


def numbers_in(path: Path) -> set[int]:
    """Return the whole numbers in a file; drawings and binary files have none of interest."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return set()
    return numbers(re.sub(r"(?s)<svg.*?</svg>|<style.*?</style>", "", text))


#: Speeds, times of day, times left and traffic. (Ray may have changed how log lines look.)
_RANDOM = re.compile(
    r"[\d,.]+(?: rows)?/s|\d\d:\d\d:\d\d[.,]\d+|about [\d,]+ s left"
    r"|\"(?:bytes\w*|per_second|seconds)\": [\d.]+"
)


def numbers(text: str) -> set[int]:
    """Return the whole numbers of a text, without speeds, times and traffic, which are random."""
    text = re.sub(_RANDOM, "", text)
    found = re.findall(r"(?<![\w.])\d{1,3}(?:,\d{3})+(?![\w.])|(?<![\w.,])\d+(?![\w.])", text)
    return {int(number.replace(",", "")) for number in found}


def integers(value: object) -> Iterator[int]:
    """Yield all whole numbers of a message."""
    if isinstance(value, int):
        yield int(value)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from integers(each)
    elif is_dataclass(value):
        for field in fields(value):
            yield from integers(getattr(value, field.name))
