"""The study behind the defaults: choice of hyper-parameters, rows, table and plot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from florist.common.audit.measured_figures import OWN_FEATURES
from florist.common.core.errors import ConfigurationError
from florist.common.core.progress import NoProgress
from florist.experiments.default_study import (
    CONTENDERS as ALL_CONTENDERS,
)
from florist.experiments.default_study import (
    REAL_SETS,
    Contender,
    DefaultStudy,
    HyperParameters,
    Row,
    StudyPlan,
    as_markdown,
    draw,
    own_features_as_markdown,
    study_defaults,
)
from florist.experiments.methods import METHODS
from florist.experiments.people import Generated, HeldOut, PeopleSettings
from florist.experiments.trial import TrialAudit

if TYPE_CHECKING:
    from florist.common.core.roles import RoleName

PEOPLE = PeopleSettings(generated=Generated(people=1200), split=HeldOut(test=0.2, validation=0.2))
AUDIT = TrialAudit(samples=20, attacks=["spectral", "gradient-norm"])
ONE_RATIO = (0.5,)
CONTENDERS = (
    Contender(METHODS["baseline-partial"], ratios=ONE_RATIO),
    Contender(METHODS["default"], epochs=1, ratios=ONE_RATIO),
    Contender(METHODS["florist-paper"].but("twice"), 2, ONE_RATIO, like="default"),
)


PLAN = StudyPlan(ONE_RATIO, seeds=(0, 1), max_epochs=2, steps=((64, 1e-3), (256, 1e-3)))


def test_rows_table_and_plot(tmp_path: Path) -> None:
    study = DefaultStudy(PEOPLE, tmp_path / "trials", 1, NoProgress(), PLAN)
    partial, default, twice = study.rows(AUDIT, CONTENDERS)
    assert not study.failures
    assert (partial.name, default.name, twice.name) == ("baseline-partial", "default", "twice")
    assert partial.strongest is None
    assert default.strongest == max(auc for _, auc, _ in default.leaks.values())
    assert set(default.leaks) == {"active", "passive"}
    assert default.setting.epochs == 1
    # A contender that differs in one thing has all other hyper-parameters in common.
    assert twice.setting == HyperParameters(
        default.setting.batch_size, default.setting.learning_rate, 2
    )
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "trials").iterdir()}
    assert study.rows(AUDIT, CONTENDERS) == [partial, default, twice]
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "trials").iterdir()}
    text = as_markdown([partial, default, twice])
    # So few people have no label aggregate, and hence no first model.
    assert default.first_auc is None
    assert f"| default | 1, {default.setting.batch_size}, 0.001 |  | {default.auc:.4f} ±" in text
    draw([partial, default, twice], 0.5, tmp_path / "front.png")
    assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")


def test_contenders_copy_hyper_parameters_of_a_tuned_one() -> None:
    tuned = {contender.name for contender in ALL_CONTENDERS if contender.like is None}
    assert {contender.like for contender in ALL_CONTENDERS} - {None} <= tuned
    names = [contender.name for contender in ALL_CONTENDERS]
    assert len(set(names)) == len(names)


def test_an_unknown_data_set_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"choose one of: clicks$"):
        study_defaults(None, None, tmp_path, 1, NoProgress(), ["loans"])
    with pytest.raises(ConfigurationError, match="unknown without --real"):
        study_defaults(None, None, tmp_path, 1, NoProgress(), ["sba_loans"])


def test_the_attacks_by_own_features_are_listed_by_data_set() -> None:
    setting = HyperParameters("auto", "auto", 1)
    baseline = Row("partial", 0.5, setting, 0.8, 0.0, 0.01, {}, {}, {})
    attacks: dict[tuple[RoleName, str], tuple[float, float]] = {("active", "pair"): (0.61, 0.055)}
    default = Row("default", 0.5, setting, 0.8, 0.0, 0.01, {}, {}, attacks)
    text = own_features_as_markdown({"loans": [baseline, default], "credit": [baseline]})
    assert text.splitlines() == [
        "| | default |",
        "|---|---|",
        "| `pair`, loans | 0.610 / 5.5% |",
        "| `pair`, credit |  |",
        "| `share-fit`, loans |  |",
        "| `share-fit`, credit |  |",
    ]


STUDY = Path(__file__).parents[3] / "docs/decisions/study"


def test_users_are_shown_the_figures_that_the_study_measured() -> None:
    """Preflight and reports show the range of `pair` over the data sets of the study."""
    table = [line.split("|") for line in (STUDY / "own-features.md").read_text().splitlines()]
    place = [cell.strip() for cell in table[0]].index("default")
    found = [row[place].split("/") for row in table if "`pair`" in row[1]]
    assert len(found) == len([name for name in REAL_SETS if (STUDY / f"{name}.md").exists()]) > 2
    aucs = [round(float(auc), 2) for auc, _ in found]
    rates = [round(float(rate.strip().rstrip("%")) / 100, 2) for _, rate in found]
    assert OWN_FEATURES.auc == (min(aucs), max(aucs))
    assert OWN_FEATURES.rate == (min(rates), max(rates))
