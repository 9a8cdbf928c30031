"""The folder in a run directory that holds the results of the self-audit."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.storage.private_files import make_private_folder

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

    def create(self) -> None:
        """Create the folder unless it exists; only its owner can access it."""
        make_private_folder(self.path)

    def clear(self) -> None:
        """Delete the audit of an earlier run."""
        if self.path.is_dir():
            shutil.rmtree(self.path)
