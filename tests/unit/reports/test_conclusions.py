"""The conclusions that reports start with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from florist.common.audit.findings import AuditRecord, Figures, Finding, SkippedAttack
from florist.common.audit.statistics import IntervalEstimate
from florist.common.reports.audit_report import skipped_text
from florist.common.reports.conclusions import (
    conclusion_box,
    privacy_text,
    quality_text,
    report_link,
)
from florist.common.settings.audit import AuditSettings
from florist.common.training.history import EpochFigures

if TYPE_CHECKING:
    from florist.common.core.roles import RoleName


def finding(attack: str, auc: float, tpr: IntervalEstimate | None = None) -> Finding:
    return Finding(attack, IntervalEstimate(auc, auc - 0.02, auc + 0.02), tpr)


def record(
    *findings: Finding, role: RoleName = "active", limits: dict[str, float | None] | None = None
) -> AuditRecord:
    made = AuditRecord(role, AuditSettings.model_validate(limits or {}), 100)
    made.audits.append(Figures(10, "epochs", findings))
    return made


def test_the_strongest_attack_and_the_limit_are_named() -> None:
    rate = IntervalEstimate(0.03, 0.005, 0.06)
    exact = IntervalEstimate(0.01, 0.01, 0.01)
    text = privacy_text(
        record(finding("weak", 0.51, exact), finding("strong", 0.58, rate)), "bank", "telco"
    )
    assert "telco could make on what bank sent" in text
    assert "real labels from synthetic ones with an AUC of 0.58 (interval 0.56 to 0.60)" in text
    assert "your limit is 0.60." in text
    assert "finds 3.0% of them (interval 0.5% to 6.0%), where guessing finds 1%" in text
    assert text.endswith("your limit is 5%. No attack exceeded your limits.")


@pytest.mark.parametrize(
    ("limits", "shown"),
    [
        ({"warn_above": 0.52}, "An attack exceeded one of your warning limits"),
        ({"stop_above": 0.52}, "An attack exceeded a limit at which the run must stop"),
        ({"warn_above": None}, "you have set no limit. No attack exceeded"),
        ({"warn_above": 0.9, "stop_above": 0.7}, "your limit is 0.70"),
    ],
)
def test_the_verdict_follows_the_limits(limits: dict[str, float | None], shown: str) -> None:
    assert shown in privacy_text(record(finding("strong", 0.58), limits=limits), "bank", "telco")


def test_the_passive_party_protects_features() -> None:
    text = privacy_text(record(finding("strong", 0.58), role="passive"), "telco", "bank")
    assert "tells real features from synthetic ones" in text
    assert "false alarm" not in text, "there is no true positive rate"


def test_a_party_without_an_audit_is_told_so() -> None:
    empty = AuditRecord("active", AuditSettings(), 100)
    for nothing in (None, empty):
        assert "was not measured" in privacy_text(nothing, "bank", "telco")


def test_the_quality_is_that_of_the_test_table_or_the_loss() -> None:
    epochs = [EpochFigures(0, 0.65), EpochFigures(1, 0.5)]
    assert "an AUC of 0.7334" in quality_text({"auc": 0.7334}, epochs)
    assert "went from 0.6500 to 0.5000 in the last epoch" in quality_text({}, epochs)
    assert "The loss was 0.6500 in the last epoch" in quality_text({}, epochs[:1])
    assert "was not measured" in quality_text({}, [])


def test_texts_are_escaped() -> None:
    box = conclusion_box(["a <b> c"], report_link("Evaluation", "../evaluation/report.html"))
    assert "<p>a &lt;b&gt; c</p>" in box
    assert '<a href="../evaluation/report.html">Evaluation</a>' in box


def test_a_reason_for_several_attacks_is_given_once() -> None:
    made = AuditRecord("active", AuditSettings(), 100)
    skipped = (
        SkippedAttack("pair", "needs features"),
        SkippedAttack("flips", "needs two epochs"),
        SkippedAttack("posterior-gap", "needs features"),
    )
    made.audits.append(Figures(10, "epochs", (finding("strong", 0.58),), skipped))
    text = skipped_text(made) or ""
    assert "pair, posterior-gap (needs features); flips (needs two epochs)." in text
