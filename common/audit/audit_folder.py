"""The folder in a run directory that holds the results of the self-audit."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.session.retention import if_damaged
from florist.common.storage.manifest import ListedFolder

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class AuditFolder:
    """Paths of the files of a self-audit."""

    path: Path

    @property
    def record(self) -> Path:
        """The findings, one line per audit."""
        return self.path / "audit.jsonl"

    @property
    def view(self) -> Path:
        """What the peer saw, where `audit.keep_view` keeps it."""
        return self.path / "view.safetensors"

    @property
    def files(self) -> ListedFolder:
        """The folder, to read and write its files."""
        return ListedFolder(self.path, if_damaged(f"audit/{self.record.name}"))

    def clear(self) -> None:
        """Delete the audit of an earlier run."""
        if self.path.is_dir():
            shutil.rmtree(self.path)
