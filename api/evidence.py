"""The evidence of a run: written for others, and checked offline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.api.runs import load_evaluation
from florist.common.core.errors import ConfigurationError
from florist.common.evaluation.metric_names import METRICS
from florist.common.evidence.evidence_file import (
    load_evidence,
    load_stage_evidence,
    save_run_evidence,
    write_private,
)
from florist.common.evidence.summary_page import RunFacts, render
from florist.common.evidence.verification import verify_run, verify_stage
from florist.common.session.stage_state import STAGES
from florist.common.transport.certificate_files import load_certificates

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.evidence.verification import Check
    from florist.common.session.run_directory import RunDirectory
    from florist.common.session.stage_state import StageName


@dataclass(frozen=True, slots=True)
class WrittenEvidence:
    """The files that were written, and what is missing from them."""

    json: Path
    html: Path
    #: Sentences on stages without evidence, or not signed by both parties.
    gaps: list[str]


def write_evidence(runs: RunDirectory, folder: Path | None = None) -> WrittenEvidence:
    """Write the evidence of all finished stages as `evidence.json` and `evidence.html`.

    Args:
        runs: the run directory.
        folder: where to write; by default next to the evidence of the stages.

    Raises:
        ConfigurationError: there is no evidence, or a file cannot be read or written.
    """
    target = runs.evidence if folder is None else folder
    found = {
        stage: load_stage_evidence(path)
        for stage in STAGES
        if (path := runs.evidence / f"{stage}.json").exists()
    }
    if not found:
        raise ConfigurationError(
            f"{runs.path} contains no evidence; both parties sign it at the end of each stage"
        )
    stages = list(found.values())
    evaluation = load_evaluation(runs)
    estimates = {
        METRICS[estimate.metric][0]: f"{estimate.value:.4f} "
        f"(95% interval {estimate.low:.4f} to {estimate.high:.4f})"
        for estimate in (evaluation.estimates if evaluation is not None else ())
    }
    written = WrittenEvidence(
        target / "evidence.json", target / "evidence.html", list(_gaps(runs, set(found)))
    )
    for stage, evidence in found.items():
        problems = {stored.problem for stored in evidence.signatures.values() if stored.problem}
        written.gaps.extend(f"{stage}: {problem}" for problem in sorted(problems))
    try:
        page = render(RunFacts(stages, estimates))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ConfigurationError(f"{runs.evidence}: a record is damaged; restore it") from None
    save_run_evidence(written.json, stages)
    write_private(written.html, page.encode())
    return written


def verify_evidence(path: Path, *authority_files: Path) -> list[Check]:
    """Check a file of evidence against the certificates of the parties' authority or authorities.

    Raises:
        ConfigurationError: a file cannot be read.
    """
    stages = load_evidence(path)
    authorities = [each for file in authority_files for each in load_certificates(file)]
    if not stages:
        raise ConfigurationError(f"{path} contains the evidence of no stage")
    checks = [check for stage in stages for check in verify_stage(stage, authorities)]
    return [*checks, verify_run(stages)] if len(stages) > 1 else checks


def _gaps(runs: RunDirectory, found: set[StageName]) -> list[str]:
    return [
        f"{stage}: finished, but without evidence"
        for stage in STAGES
        if runs.result(stage).exists() and stage not in found
    ]
