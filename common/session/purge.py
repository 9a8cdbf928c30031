"""Deleting the secrets and intermediate files of a run, or all of it."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError
from florist.common.session.retention import PURGED, artefact_of
from florist.common.storage.durable import sync
from florist.common.storage.manifest import mark_deleted
from florist.common.storage.private_files import LOCK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from florist.common.session.retention import Artefact
    from florist.common.session.run_directory import RunDirectory


#: Folders of which a run directory has at least one.
_FOLDERS = (
    "alignment",
    "training",
    "evaluation",
    "evaluation-alignment",
    "checkpoints",
    "serving",
    ".alignment-work",
)


@dataclass(frozen=True, slots=True)
class PurgePlan:
    """What would be deleted from a run directory, and what would stay because it is not known."""

    runs: RunDirectory
    files: tuple[tuple[Path, Artefact], ...]
    #: Files that no release of FLORIST writes there, and symbolic links: never deleted.
    foreign: tuple[Path, ...]
    everything: bool

    @property
    def by_artefact(self) -> list[tuple[Artefact, list[Path]]]:
        """The files of each artefact."""
        found: dict[Artefact, list[Path]] = {}
        for path, artefact in self.files:
            found.setdefault(artefact, []).append(path)
        return list(found.items())


def plan_purge(runs: RunDirectory, *, everything: bool = False) -> PurgePlan:
    """Find what to delete: secrets and working files, or every file that a run writes.

    Raises:
        ConfigurationError: this is not a run directory.
    """
    require_run_directory(runs)
    files, foreign = [], []
    for path in files_below(runs.path):
        artefact = None
        if stat.S_ISREG(path.lstat().st_mode):
            artefact = artefact_of(str(path.relative_to(runs.path)))
        if artefact is None:
            foreign.append(path)
        elif path.name != LOCK and (everything or artefact.kind in PURGED):
            files.append((path, artefact))
    return PurgePlan(runs, tuple(files), tuple(foreign), everything)


def purge(plan: PurgePlan) -> None:
    """Delete the files of a plan, and the folders that are empty then.

    Raises:
        ConfigurationError: a party uses the run directory, or a file cannot be deleted.
    """
    runs = plan.runs
    require_run_directory(runs)
    with runs.locked():
        try:
            for folder, names in _by_folder(plan).items():
                mark_deleted(folder, names)
            for path, _ in plan.files:
                path.unlink(missing_ok=True)
            for folder in sorted(_folders(runs.path), reverse=True):
                if not any(folder.iterdir()):
                    folder.rmdir()
            sync(runs.path)
        except OSError as error:
            raise ConfigurationError(
                f"{error.filename or runs.path} cannot be deleted: {error.strerror}"
            ) from None
        if plan.everything:
            (runs.path / LOCK).unlink(missing_ok=True)
            if not any(runs.path.iterdir()):
                runs.path.rmdir()


def _by_folder(plan: PurgePlan) -> dict[Path, list[str]]:
    """The names of the files to delete, by the folder whose manifest lists them."""
    found: dict[Path, list[str]] = {}
    for path, _ in plan.files:
        folder = plan.runs.path / path.relative_to(plan.runs.path).parts[0]
        found.setdefault(folder, []).append(str(path.relative_to(folder)))
    return found


def require_run_directory(runs: RunDirectory) -> None:
    """Refuse a folder that no party has used as its run directory.

    Raises:
        ConfigurationError: it is not one.
    """
    path = runs.path
    if path.is_symlink() or not path.is_dir():
        raise ConfigurationError(f"{path} is not a folder; give the run_directory of a party")
    lock = path / LOCK
    is_run = lock.is_file() and not lock.is_symlink()
    if not is_run or not any((path / name).is_dir() for name in _FOLDERS):
        raise ConfigurationError(
            f"{path} is not a run directory of FLORIST; nothing was done. Give the run_directory "
            "of a party"
        )


def files_below(folder: Path) -> Iterator[Path]:
    """All files and links below a folder; links are not followed."""
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            yield from files_below(entry)
        else:
            yield entry


def _folders(folder: Path) -> Iterator[Path]:
    """All folders below a folder; links are not followed."""
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            yield entry
            yield from _folders(entry)
