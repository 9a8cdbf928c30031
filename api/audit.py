"""The record of a self-audit, and repeating its attacks on the view that was kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.audit_folder import AuditFolder
from florist.common.audit.findings import AuditRecord, Figures
from florist.common.core.errors import ConfigurationError

if TYPE_CHECKING:
    from florist.common.session.run_directory import RunDirectory

#: Bootstrap samples per confidence interval.
SAMPLES = 1000


def load_audit(runs: RunDirectory) -> AuditRecord:
    """Read what the self-audit of a run has found so far.

    Raises:
        ConfigurationError: there is no self-audit, or it cannot be read.
    """
    folder = AuditFolder(runs.audit)
    if not folder.files.exists(folder.record.name):
        problem = "holds no self-audit" if runs.path.is_dir() else "is not a folder"
        raise ConfigurationError(
            f"{runs.path} {problem}; give the run_directory of a run whose training has started "
            "with audit.enabled set to true"
        )
    return AuditRecord.load(folder)


def repeat_audit(runs: RunDirectory, record: AuditRecord) -> Figures:
    """Repeat all attacks on the peer's view that was kept, over all epochs.

    The intervals are more precise, and corrected for the number of attacks and strata only.

    Raises:
        ConfigurationError: the view was not kept, or cannot be read.
    """
    from florist.common.audit.attack_runner import attack_as_peer  # noqa: PLC0415 - loads torch
    from florist.common.audit.comparisons import Comparisons  # noqa: PLC0415
    from florist.common.audit.kept_view import load_view  # noqa: PLC0415

    alignment = runs.load_alignment("train")
    sightings = load_view(AuditFolder(runs.audit), alignment.summary.union_sha256)
    own = np.zeros(alignment.summary.union_size, dtype=np.bool_)
    own[alignment.rank_of_row] = True
    comparisons = Comparisons.of_one_audit(record.role)
    attacks = attack_as_peer(
        record.role,
        sightings,
        own,
        SAMPLES,
        comparisons.confidence("epochs"),
        comparisons.stratum_confidence(),
    )
    return Figures.of(max(seen.step for seen in sightings) + 1, "epochs", attacks)
