"""The page of evidence: what it shows of good and of incomplete evidence."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from florist.api.evidence import write_evidence
from florist.common.core.errors import ConfigurationError
from florist.common.evidence.evidence_file import save_evidence
from florist.common.evidence.summary_page import RunFacts, render
from florist.common.session.run_directory import RunDirectory
from tests.unit.evidence.pairs import complete_evidence, connected, exchanged

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.evidence.evidence_file import StageEvidence
    from florist.common.transport.credentials import Credentials


@pytest.fixture
def evidence(active: Credentials, passive: Credentials) -> StageEvidence:
    return complete_evidence(active, passive)


def test_complete_evidence(evidence: StageEvidence) -> None:
    page = render(RunFacts([evidence], {"AUC": "0.7"}))
    for words in ("Promised", "Exchanged", "Measured", "Signatures", "150 ± 1.4", "signed 20"):
        assert words in page
    assert "ε = 1, δ = 1e-09 for each union" in page
    assert "not signed:" not in page


def test_missing_signatures_are_shown(active: Credentials) -> None:
    sides = connected(active, None)
    page = render(RunFacts([sides["active"].stored(exchanged(sides)["active"])]))
    assert "not signed: the peer did not sign" in page


def test_the_findings_of_the_audit(evidence: StageEvidence) -> None:
    auc = {"value": 0.61, "low": 0.55, "high": 0.66}
    finding = {"attack": "spectral", "auc": auc}
    audit = {"verdict": "warn", "strongest": finding, "worst_window": finding}
    page = render(RunFacts([replace(evidence, local=evidence.local | {"audit": audit})]))
    assert "verdict: warn" in page
    assert "Worst part of training: spectral, AUC 0.610" in page
    few = {"verdict": "fine", "strongest": None}
    page = render(RunFacts([replace(evidence, local=evidence.local | {"audit": few})]))
    assert "too few rows" in page


def test_text_of_the_peer_is_escaped(evidence: StageEvidence) -> None:
    record = json.loads(json.dumps(evidence.record))
    for account in record["accounts"].values():
        account["release"] = account["name"] = "<script>alert(1)</script>"
        account["sent"]["<b>"] = {"messages": 1, "bytes": 1}
    stored = replace(evidence.signatures["passive"], problem="<img src=x>", signature="")
    signatures = evidence.signatures | {"passive": stored}
    page = render(RunFacts([replace(evidence, record=record, signatures=signatures)]))
    assert "<script>" not in page
    assert "<img" not in page
    assert "<b>" not in page


def test_stages_without_evidence_and_damaged_records(
    evidence: StageEvidence, tmp_path: Path
) -> None:
    runs = RunDirectory(tmp_path)
    with pytest.raises(ConfigurationError, match="contains no evidence"):
        write_evidence(runs)
    save_evidence(runs.evidence, "align", evidence)
    runs.training.mkdir()
    assert write_evidence(runs).gaps == ["train: finished, but without evidence"]
    record = {key: value for key, value in evidence.record.items() if key != "agreement"}
    save_evidence(runs.evidence, "align", replace(evidence, record=record))
    with pytest.raises(ConfigurationError, match="damaged"):
        write_evidence(runs)
