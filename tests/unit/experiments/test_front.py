"""The study behind the defaults: settings chosen on validation people, rows, table, picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from florist.common.core.progress import NoProgress
from florist.experiments import front
from florist.experiments.front import Contender, Setting, Study
from florist.experiments.methods import METHODS
from florist.experiments.people import Generated, PeopleSettings, Split
from florist.experiments.trial import Audit

if TYPE_CHECKING:
    from pathlib import Path

PEOPLE = PeopleSettings(generated=Generated(people=1200), split=Split(test=0.2, validation=0.2))
AUDIT = Audit(samples=20, attacks=["spectral", "gradient-norm"])
ONE_RATIO = (0.5,)
CONTENDERS = (
    Contender(METHODS["baseline-partial"], ratios=ONE_RATIO),
    Contender(METHODS["default"], epochs=1, ratios=ONE_RATIO),
    Contender(METHODS["florist-paper"].but("twice"), 2, ONE_RATIO, like="default"),
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "RATIOS", ONE_RATIO)
    monkeypatch.setattr(front, "SEEDS", (0, 1))
    monkeypatch.setattr(front, "MOST_EPOCHS", 2)
    monkeypatch.setattr(front, "SETTINGS", ((64, 1e-3), (256, 1e-3)))


def test_rows_table_and_picture(tmp_path: Path) -> None:
    study = Study(PEOPLE, tmp_path / "trials", 1, NoProgress())
    partial, default, twice = study.rows(AUDIT, CONTENDERS)
    assert not study.failures
    assert (partial.name, default.name, twice.name) == ("baseline-partial", "default", "twice")
    assert partial.strongest is None
    assert default.strongest == max(auc for _, auc, _ in default.leaks.values())
    assert set(default.leaks) == {"active", "passive"}
    assert default.setting.epochs == 1
    # What differs in one thing has all other settings of what it differs from.
    assert twice.setting == Setting(default.setting.batch_size, default.setting.learning_rate, 2)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "trials").iterdir()}
    assert study.rows(AUDIT, CONTENDERS) == [partial, default, twice]
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "trials").iterdir()}
    text = front.as_markdown([partial, default, twice])
    assert f"| default | 1, {default.setting.batch_size}, 0.001 | {default.auc:.4f} ±" in text
    front.draw([partial, default, twice], 0.5, tmp_path / "front.png")
    assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")


def test_contenders_take_settings_of_one_that_is_tuned() -> None:
    tuned = {contender.name for contender in front.CONTENDERS if contender.like is None}
    assert {contender.like for contender in front.CONTENDERS} - {None} <= tuned
    names = [contender.name for contender in front.CONTENDERS]
    assert len(set(names)) == len(names)
