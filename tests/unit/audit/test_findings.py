"""Limits and verdicts of a self-audit, and the file that they are kept in."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from florist.common.audit.attack_runner import PeerAttacks
from florist.common.audit.audit_folder import AuditFolder
from florist.common.audit.findings import (
    FEWEST,
    FEWEST_FOR_RATES,
    AuditRecord,
    Figures,
    Finding,
    SkippedAttack,
    StratumFinding,
    excesses,
    verdict,
    worst_window,
)
from florist.common.audit.statistics import IntervalEstimate, evaluate
from florist.common.audit.strata import StratumResult
from florist.common.core.errors import ConfigurationError, StoppedByPolicy
from florist.common.settings.audit import AuditSettings
from florist.common.storage.manifest import MANIFEST, DamagedFile

if TYPE_CHECKING:
    from pathlib import Path

NONE = AuditSettings(warn_above=None, warn_tpr_above=None)


def finding(auc: float, *, low: float, tpr: float | None = None, attack: str = "flips") -> Finding:
    rate = None if tpr is None else IntervalEstimate(tpr, tpr - 0.01, tpr + 0.01)
    return Finding(attack, IntervalEstimate(auc, low, 1.0), rate)


def found(real: int, synthetic: int, shift: float = 0.0) -> Finding | None:
    random = np.random.default_rng(1)
    truth = np.arange(real + synthetic) < real
    return Finding.of(evaluate("any", random.normal(size=len(truth)) + shift * truth, truth))


def test_findings_need_enough_rows() -> None:
    assert found(FEWEST - 1, 5000) is None
    assert found(5000, FEWEST - 1) is None
    some = found(FEWEST, FEWEST)
    assert some is not None
    assert some.tpr is None
    many = found(FEWEST_FOR_RATES, FEWEST_FOR_RATES)
    assert many is not None
    assert many.tpr is not None


def test_figures_are_folded_and_rounded() -> None:
    leak = found(2000, 2000, shift=-2.0)
    assert leak is not None
    assert leak.auc.low > 0.9
    assert leak.tpr is not None
    for value in (leak.auc.value, leak.auc.low, leak.tpr.value):
        assert value == round(value, 4)


@pytest.mark.parametrize(
    ("settings", "one", "expected"),
    [
        (AuditSettings(warn_above=0.6), finding(0.7, low=0.61), "warn"),
        (AuditSettings(warn_above=0.6), finding(0.7, low=0.59), "fine"),
        (AuditSettings(warn_above=0.6, stop_above=0.65), finding(0.7, low=0.61), "warn"),
        (AuditSettings(warn_above=0.6, stop_above=0.65), finding(0.7, low=0.66), "stop"),
        (AuditSettings(warn_above=None, stop_above=0.65), finding(0.7, low=0.61), "fine"),
        (AuditSettings(warn_tpr_above=0.05), finding(0.5, low=0.5, tpr=0.07), "warn"),
        (AuditSettings(warn_tpr_above=0.05), finding(0.5, low=0.5, tpr=0.055), "fine"),
        (AuditSettings(stop_tpr_above=0.05), finding(0.5, low=0.5, tpr=0.07), "stop"),
        (AuditSettings(stop_tpr_above=0.05), finding(0.5, low=0.5), "fine"),
        (NONE, finding(1.0, low=1.0, tpr=0.9), "fine"),
    ],
)
def test_a_limit_is_exceeded_by_the_whole_interval(
    settings: AuditSettings, one: Finding, expected: str
) -> None:
    harmless = finding(0.5, low=0.5, tpr=0.01, attack="spectral")
    assert verdict([harmless, one], settings) == expected
    assert verdict([harmless], settings) == "fine"


def test_the_strongest_excess_comes_first_and_names_its_setting() -> None:
    weak, strong = finding(0.7, low=0.65, attack="weak"), finding(0.9, low=0.8, tpr=0.3)
    above = list(
        excesses([weak, strong], AuditSettings(stop_above=0.6, stop_tpr_above=0.1), "stop")
    )
    assert [(one.finding.attack, one.key) for one in above] == [
        ("flips", "stop_above"),
        ("flips", "stop_tpr_above"),
        ("weak", "stop_above"),
    ]
    assert "0.90 (0.80" in str(above[0])
    assert "audit.stop_tpr_above 0.1" in str(above[1])


def in_stratum(auc: float, *, low: float) -> Finding:
    worst = StratumFinding("label 1", IntervalEstimate(auc, low, 1.0))
    return replace(finding(0.52, low=0.5), worst=worst)


def test_limits_apply_to_the_worst_stratum() -> None:
    settings = AuditSettings(warn_above=0.6, stop_above=0.7)
    assert verdict([in_stratum(0.75, low=0.59)], settings) == "fine"
    assert verdict([in_stratum(0.75, low=0.61)], settings) == "warn"
    assert verdict([in_stratum(0.75, low=0.71)], settings) == "stop"
    (excess,) = excesses([in_stratum(0.75, low=0.71)], settings, "stop")
    assert "AUC 0.75 (0.71\N{EN DASH}1.00) in label 1, above audit.stop_above 0.7" in str(excess)


def test_the_worst_stratum_of_a_run_is_in_its_summary() -> None:
    audits = [
        Figures(60, "epochs", (in_stratum(0.9, low=0.6),)),
        Figures(120, "epochs", (in_stratum(0.8, low=0.55), finding(0.6, low=0.58))),
    ]
    worst = AuditRecord("active", NONE, 0, audits).summary()["worst_stratum"]
    assert (worst["attack"], worst["stratum"], worst["auc"]["value"]) == ("flips", "label 1", 0.8)


def test_figures_keep_the_worst_stratum_and_what_was_skipped() -> None:
    truth, random = np.arange(4000) % 2 == 0, np.random.default_rng(1)
    result = evaluate("flips", random.normal(size=4000) + truth, truth)
    few = evaluate("few", random.normal(size=20), truth[:20])
    worst = StratumResult("label", "label 1", result)
    attacks = PeerAttacks([result, few], {"flips": worst}, {"pair": "needs features"})
    figures = Figures.of(7, "epochs", attacks)
    assert [found.attack for found in figures.findings] == ["flips"]
    kept = figures.findings[0].worst
    assert kept is not None
    assert kept.stratum == "label 1"
    assert kept.auc.value == round(result.folded_auc.value, 4)
    assert figures.skipped == (SkippedAttack("pair", "needs features"),)


def test_an_estimate_is_formatted_with_its_interval() -> None:
    assert str(IntervalEstimate(0.534, 0.511, 0.55)) == "0.53 (0.51\N{EN DASH}0.55)"


def record() -> AuditRecord:
    return AuditRecord(
        "active",
        AuditSettings(rows=500),
        followed=480,
        audits=[
            Figures(50, "batches", (finding(0.8, low=0.7), finding(0.5, low=0.5, tpr=0.02))),
            Figures(60, "epochs", (finding(0.55, low=0.52),)),
            Figures(70, "batches", ()),
            Figures(
                70,
                "later-batches",
                (in_stratum(0.55, low=0.52),),
                (SkippedAttack("pair", "needs features"),),
            ),
        ],
    )


def test_a_record_survives_a_round_trip(tmp_path: Path) -> None:
    folder, whole = AuditFolder(tmp_path), record()
    for count in range(len(whole.audits) + 1):
        AuditRecord("active", whole.settings, 480, whole.audits[:count]).save(folder)
    assert AuditRecord.load(folder) == whole
    with folder.record.open("a") as file:
        file.write('{"step": 80, "ov')
    with pytest.raises(DamagedFile, match="SHA-256"):
        AuditRecord.load(folder)
    (tmp_path / MANIFEST).unlink()  # earlier releases had none, and appended lines
    assert AuditRecord.load(folder) == whole


def test_a_record_has_the_newest_figures_and_the_worst_verdict() -> None:
    assert [figures.step for figures in record().last] == [60, 70, 50]
    assert record().verdict == "warn"
    summary = record().summary()
    assert summary["verdict"] == "warn"
    assert summary["strongest"]["step"] == 60
    empty = AuditRecord("passive", NONE, 0)
    assert empty.last == []
    assert empty.summary() == {
        "verdict": "fine",
        "strongest": None,
        "worst_window": None,
        "worst_stratum": None,
    }


def test_the_worst_window_has_the_highest_lower_end() -> None:
    """A window with few rows has a high AUC by chance; the whole run is no window."""
    audits = [
        Figures(1, "batch-0", (finding(0.7, low=0.5),)),
        Figures(5, "batches-0-4", (finding(0.62, low=0.58), finding(0.6, low=0.59, attack="norm"))),
        Figures(90, "epochs", (finding(0.9, low=0.8),)),
        Figures(90, "later-batches", ()),
    ]
    worst = worst_window(audits)
    assert worst is not None
    assert (worst[0].over, worst[1].attack) == ("batches-0-4", "norm")
    worst = worst_window(audits, "flips")
    assert worst is not None
    assert (worst[0].over, worst[1].auc.low) == ("batches-0-4", 0.58)
    assert worst_window(audits[2:]) is None
    summary = AuditRecord("active", NONE, 0, audits).summary()
    assert summary["worst_window"]["over"] == "batches-0-4"
    assert summary["strongest"]["auc"]["value"] == 0.9


@pytest.mark.parametrize("number", [1, 2])
def test_a_record_of_an_earlier_release_can_be_read(tmp_path: Path, number: int) -> None:
    """These had neither strata nor skipped attacks."""
    path = tmp_path / "audit.jsonl"
    whole = record()
    old = AuditRecord("active", whole.settings, 480, whole.audits[:3])
    old.save(AuditFolder(tmp_path))
    (tmp_path / MANIFEST).unlink()
    header, *rest = map(json.loads, path.read_text().splitlines())
    for audit in rest:
        del audit["skipped"]
        for each in audit["findings"]:
            del each["worst"]
    lines = [header | {"format": number}, *rest]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert AuditRecord.load(AuditFolder(tmp_path)) == old


@pytest.mark.parametrize(
    "text", ["", "no JSON\n", "{}\n", '{"format": 1}\n', '{"format": 1}\n[]\n']
)
def test_a_damaged_record_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"audit\.jsonl is damaged"):
        AuditRecord.load(AuditFolder(tmp_path))


def test_a_record_of_a_later_release_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    record().save(AuditFolder(tmp_path))
    (tmp_path / MANIFEST).unlink()
    facts = json.loads(path.read_text().splitlines()[0]) | {"format": 99}
    path.write_text(json.dumps(facts) + "\n")
    with pytest.raises(ConfigurationError, match="format 99"):
        AuditRecord.load(AuditFolder(tmp_path))


def test_the_peer_receives_no_figures() -> None:
    error = StoppedByPolicy("flips 0.83, above audit.stop_above 0.6")
    assert error.exit_code == 6
    assert not any(character.isdigit() for character in error.for_peer)
    assert "flips" not in error.for_peer
