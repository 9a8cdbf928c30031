"""Checking a run directory at rest: whether all its files are as they were written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError
from florist.common.psu.journal import damaged_files
from florist.common.session.answer_journal import AnswerJournal
from florist.common.session.purge import files_below, require_run_directory
from florist.common.session.retention import if_damaged
from florist.common.session.run_directory import RunDirectory
from florist.common.session.stage_state import STAGES
from florist.common.storage.manifest import (
    MANIFEST,
    Manifest,
    damages,
    read_manifest,
)
from florist.common.storage.private_files import LOCK, is_locked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class VerifiedRun:
    """What was found in a run directory.

    Attributes:
        files: how many files were verified.
        problems: a sentence for each damaged or missing file, with the consequence and what to do.
        unverified: files that have no digest or checksum, relative to the run directory.
    """

    files: int
    problems: tuple[str, ...]
    unverified: tuple[str, ...]


def verify_run(path: Path) -> VerifiedRun:
    """Check all files of a run directory that no party uses at the moment.

    Finds damage: bit rot, lost, truncated or exchanged files. Somebody who edits a file on purpose
    can adapt the manifest as well; the signed evidence shows what both parties know of the run.

    Raises:
        ConfigurationError: this is not a run directory, or a party uses it.
    """
    runs = RunDirectory(path)
    require_run_directory(runs)
    if is_locked(path):
        raise ConfigurationError(
            f"{path} is in use by a running party; verify it when it has ended"
        )
    check = _Check(runs)
    problems = list(check.problems())
    every = {str(file.relative_to(path)) for file in files_below(path) if file.name != LOCK}
    unverified = sorted(every - check.verified)
    return VerifiedRun(len(every & check.verified), tuple(problems), tuple(unverified))


class _Check:
    def __init__(self, runs: RunDirectory) -> None:
        self._runs = runs
        #: The files that have been verified, damaged or not, relative to the run directory.
        self.verified: set[str] = set()

    def problems(self) -> Iterator[str]:
        yield from self._unlisted_results()
        yield from self._listed_files()
        yield from self._training()
        yield from self._evaluations()
        yield from self._unfinished_unions()

    def _unlisted_results(self) -> Iterator[str]:
        """Folders that should have a manifest."""
        runs = self._runs
        results = (*map(runs.result, STAGES), runs.evaluation_alignment, runs.audit, runs.evidence)
        secrets = (runs.path / "serving" / "secret", runs.checkpoints / "aggregate.key")
        for folder in (*results, *(path.parent for path in secrets if path.exists())):
            if folder.is_dir() and read_manifest(folder) is None:
                yield (
                    f"{folder} has no {MANIFEST}, so that its files cannot be verified: it was "
                    "deleted, or an earlier release wrote the folder"
                )

    def _listed_files(self) -> Iterator[str]:
        for folder in sorted(self._runs.path.iterdir()):
            manifest = read_manifest(folder) if folder.is_dir() else None
            if manifest is not None:
                self._mark(folder / MANIFEST)
            if isinstance(manifest, Manifest):
                self._mark(*(folder / name for name in {**manifest.files, **manifest.next}))
            for damage in damages(folder) if manifest is not None else ():
                yield f"{damage.path} {damage.problem}; {self._runs.if_damaged(damage)}"

    def _training(self) -> Iterator[str]:
        """The checkpoints of an interrupted training, and its journal."""
        runs = self._runs
        if not runs.checkpoints.is_dir():
            return
        from florist.common.training.run_checkpoints import (  # noqa: PLC0415 - loads torch
            RunCheckpoints,
        )
        from florist.common.training.run_handshake import run_id  # noqa: PLC0415

        self._mark(*runs.checkpoints.rglob("step-*"))
        store = RunCheckpoints(runs.checkpoints, 1)
        yield from store.damages()
        if newest := store.newest():
            owner = run_id(bytes.fromhex(newest.facts.seed))
            yield from self._journal(runs.training_journal, owner, newest.facts.journal_records)

    def _evaluations(self) -> Iterator[str]:
        """The journal of the evaluations."""
        runs = self._runs
        try:
            owner = bytes.fromhex(runs.load_summary("evaluation").union_sha256)
            answered = runs.journal_records()
        except ConfigurationError:  # there was none, or the problem is reported already
            return
        yield from self._journal(runs.evaluation_journal, owner, answered)

    def _journal(self, path: Path, owner: bytes, records: int) -> Iterator[str]:
        """Check a journal, which must have at least so many records."""
        self._mark(path)
        if problem := AnswerJournal(path).problem(owner, records):
            yield f"{path} {problem}; {if_damaged(str(path.relative_to(self._runs.path)))}"

    def _unfinished_unions(self) -> Iterator[str]:
        for stage in STAGES:
            for folder in sorted(self._runs.work(stage).glob("*/")):
                self._mark(*folder.iterdir())
                for name in damaged_files(folder):
                    path = folder / name
                    relative = str(path.relative_to(self._runs.path))
                    yield f"{path} is damaged or lost; {if_damaged(relative)}"

    def _mark(self, *paths: Path) -> None:
        self.verified.update(str(path.relative_to(self._runs.path)) for path in paths)
