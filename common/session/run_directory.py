"""A party's run directory: one folder per finished stage, written as a whole or not at all.

    <run_directory>/
      alignment/
        train/             and test/, if there is a test table
          alignment.json   sizes, digest of the union, agreement, timings, traffic
          ranks.parquet    for each row of the party's own table, its rank in the union
          commitment.json  the roots to which both parties committed before the union
          commitment.key   the secret with which this party can open its own root
      .alignment-work/     during alignment: finished exchanges, from which it can resume
      .training-work/      before training: unlinked temporary files for tables that do not fit in
                           memory
      checkpoints/         during training; also digests of what was received and sent
      audit/               the findings of the self-audit, during training and afterwards
      training/            this party's half of the model with its preprocessing, metrics, report
      evaluation-alignment/
        alignment.json     as above, for the evaluation tables
        ranks.parquet      as above; -1 for rows that were kept out of the union
        draws.key          the secret of this party's random draws, so that they stay the same
        answers.journal    digests of what was answered for each model
        begun              exists once anything was revealed about people in this union
      evaluation/          the estimated metrics of the model
      evidence/            for each stage, what both parties have signed about it
      status.html          how the last process of this party ended, if it has a status page
      tensorboard/         event files, if `training.tensorboard` is set
      serving/             during serving: `secret`, from which stand-ins are drawn, and the token
                           of the HTTP service

Each of these folders has a `manifest.json` with the sizes and digests of its files, except those
that grow: journals have a checksum per record. Files are verified when they are read.

All of it is accessible only to its owner: files have mode 0600, folders 0700. Only the `.key`
files, the checkpoints and the files of `serving` are secret, and nothing reveals which of the
party's own people the peer also has. The exponents in `.alignment-work` are sealed with a key that
only the peer holds.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from florist.common.core.errors import ConfigurationError
from florist.common.session import alignment_result
from florist.common.session.alignment_result import EvaluationUnion
from florist.common.session.retention import if_damaged
from florist.common.session.stage_state import RESULT_FOLDERS
from florist.common.storage.durable import sync, sync_tree
from florist.common.storage.manifest import (
    DamagedFile,
    ListedFolder,
    damages,
    has_manifest,
    write_manifest,
)
from florist.common.storage.private_files import LOCK, locked_folder, restrict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.session.alignment_result import Alignment, AlignmentSummary, TableName
    from florist.common.session.stage_state import StageName
    from florist.common.storage.manifest import Damage

log = logging.getLogger("florist.session")

_KEY = "draws.key"

#: The last state of the status page.
STATUS_PAGE = "status.html"

#: Next to the evaluation union once an evaluation has started.
_STARTED = "begun"

#: The digests of what was received and sent, in training and in the evaluations of a union.
_JOURNAL = "answers.journal"

#: In a stage's result while the peer may not have its own result.
_PENDING = ".pending"


class RunDirectory:
    """The paths of a run directory, and atomic replacement of its folders."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def result(self, stage: StageName) -> Path:
        """The folder of a stage's result, which exists once the stage is finished."""
        return self.path / RESULT_FOLDERS[stage]

    def pending(self, stage: StageName) -> Path:
        """A file that exists while the peer may not have its own result of that stage."""
        return self.result(stage) / _PENDING

    def work(self, stage: StageName) -> Path:
        """The folder from which a stage resumes; removed when the stage is complete."""
        return self.path / f".{RESULT_FOLDERS[stage]}-work"

    def drop_work(self, stage: StageName) -> None:
        """Remove that folder: both parties have their results of the stage, or start over."""
        shutil.rmtree(self.work(stage), ignore_errors=True)

    @property
    def alignment(self) -> Path:
        return self.result("align")

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def training_journal(self) -> Path:
        return self.checkpoints / _JOURNAL

    @property
    def training(self) -> Path:
        return self.result("train")

    @property
    def audit(self) -> Path:
        return self.path / "audit"

    @property
    def evidence(self) -> Path:
        return self.path / "evidence"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def evaluation_alignment(self) -> Path:
        return self.path / "evaluation-alignment"

    @property
    def evaluation(self) -> Path:
        return self.result("evaluate")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the directory and lock it for one process.

        Raises:
            ConfigurationError: it cannot be written, or another process uses it.
        """
        with locked_folder(
            self.path,
            "run_directory",
            if_not_writable="set another run_directory or fix its permissions",
            if_in_use="another running party; wait for it or set another run_directory",
        ):
            self._remove_leftovers()
            self.restrict()
            yield

    def _remove_leftovers(self) -> None:
        """Delete results that a killed process did not finish, and those that it had replaced."""
        results = {*RESULT_FOLDERS.values(), self.evaluation_alignment.name}
        work = {self.work(stage).name for stage in RESULT_FOLDERS}
        unfinished = tuple(f".{name}-" for name in results)
        replaced = tuple(f".old-{name}-" for name in results)
        for entry in [entry for entry in self.path.iterdir() if entry.is_dir()]:
            if entry.name.startswith(replaced):
                is_left = all((self.path / kept.name).exists() for kept in entry.iterdir())
            else:
                is_left = entry.name.startswith(unfinished) and entry.name not in work
            if is_left:
                shutil.rmtree(entry, ignore_errors=True)

    def restrict(self) -> None:
        """Withdraw other users' access to the entries of the run directory, and report it.

        Earlier releases wrote most files with the permissions that the umask left. `serving` is
        left alone: a secret that others can read is refused when it is used. So is the run
        directory itself if the operator created it, and anything in it that is not a party's.
        """
        try:
            changed = sum(map(restrict, self._entries()))
        except OSError as error:
            log.warning(
                "run_directory %s: other users may have access to its files, and this cannot be "
                "changed: %s; run `chmod -R go=` on it as its owner",
                self.path,
                error.strerror or error,
            )
            return
        if changed:
            log.warning(
                "run_directory %s: withdrew other users' access to %d files and folders",
                self.path,
                changed,
            )

    def _entries(self) -> list[Path]:
        """The files and folders of the run directory that parties create, except `serving`."""
        if not self.path.is_dir():
            return []
        results = {*RESULT_FOLDERS.values(), self.evaluation_alignment.name}
        folders = (self.checkpoints, self.audit, self.evidence, self.tensorboard)
        names = {*results, *(folder.name for folder in folders), LOCK, STATUS_PAGE}
        temporary = tuple(f"{prefix}{name}-" for name in results for prefix in (".", ".old-"))
        return [
            entry
            for entry in self.path.iterdir()
            if entry.name in names or entry.name.startswith(temporary)
        ]

    def save_evaluation_union(self, union: EvaluationUnion) -> None:
        """Write the evaluation union atomically, readable only by its owner."""
        with self.replacing(self.evaluation_alignment) as folder:
            alignment_result.write_alignment(folder, union.alignment)
            (folder / _KEY).write_bytes(union.secret)

    @property
    def evaluation_journal(self) -> Path:
        return self.evaluation_alignment / _JOURNAL

    def mark_evaluation_started(self, answers: int) -> None:
        """Record, durably, that something is revealed about people in the union.

        Args:
            answers: how many records the journal of the evaluations has on disk.
        """
        self._started.write(_STARTED, f"{answers}\n".encode())

    @property
    def has_started_evaluation(self) -> bool:
        """Whether something may have been revealed about the union's people: it must stay.

        A journal alone is no sign of that: a party may be stopped while it creates the file.

        Raises:
            DamagedFile: the manifest is damaged.
        """
        return self._started.exists(_STARTED)

    def journal_records(self) -> int:
        """The number of records that the journal of the evaluations must have at least.

        Raises:
            DamagedFile: the number cannot be read.
        """
        if not self._started.exists(_STARTED):
            return 0
        text = self._started.read(_STARTED)
        if text and not text.strip().isdigit():
            raise DamagedFile(
                f"{self.evaluation_alignment / _STARTED} is damaged; "
                + if_damaged(f"{self.evaluation_alignment.name}/{_STARTED}")
            )
        return int(text or 0)  # earlier releases left it empty

    @property
    def _started(self) -> ListedFolder:
        folder = self.evaluation_alignment
        return ListedFolder(folder, if_damaged(f"{folder.name}/{_STARTED}"))

    def load_evaluation_union(self) -> EvaluationUnion | None:
        """The union of an earlier evaluation, if any.

        Raises:
            ConfigurationError: this release cannot read it.
        """
        if not self.evaluation_alignment.exists():
            return None
        alignment = self.load_alignment("evaluation")
        self.require_intact(self.evaluation_alignment / _KEY)
        try:
            secret = (self.evaluation_alignment / _KEY).read_bytes()
        except OSError as error:
            raise ConfigurationError(
                f"{self.evaluation_alignment / _KEY} cannot be read: {error.strerror}"
            ) from None
        return EvaluationUnion(alignment, secret)

    def load_summary(self, table: TableName = "train") -> AlignmentSummary:
        """Read the summary of a finished alignment without its ranks.

        Raises:
            ConfigurationError: there is no finished alignment, it is damaged, or this release
                cannot read it.
        """
        folder = self.alignment_folder(table)
        self.require_intact(folder / alignment_result.SUMMARY_FILE)
        return alignment_result.load_summary(folder)

    def load_alignment(self, table: TableName = "train") -> Alignment:
        """Check the files of a finished alignment; the ranks are read into memory only when used.

        Raises:
            ConfigurationError: there is no finished alignment, it is damaged, or this release
                cannot read it.
        """
        folder = self.alignment_folder(table)
        self.require_intact(*(folder / name for name in alignment_result.READ_FILES))
        return alignment_result.load_alignment(folder)

    def alignment_folder(self, table: TableName) -> Path:
        """The folder of a finished alignment.

        Raises:
            ConfigurationError: there is none.
        """
        folder = self.evaluation_alignment if table == "evaluation" else self.alignment / table
        if not alignment_result.has_summary(folder):
            self.require_intact(folder / alignment_result.SUMMARY_FILE)
            raise ConfigurationError(
                f"{self.path} contains no finished alignment of the {table} table; run "
                "`florist-party --stage align` first"
            )
        return folder

    def load_history(self) -> dict[str, Any]:
        """The history of a finished training run.

        Raises:
            ConfigurationError: there is no finished training, or the file is damaged.
        """
        path = self.training / "history.json"
        self.require_intact(path)
        try:
            history: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except OSError:
            raise ConfigurationError(
                f"{self.path} contains no finished training; run `florist-party --stage train` "
                "first"
            ) from None
        except (ValueError, RecursionError):
            raise ConfigurationError(f"{path} is damaged; restore it or train again") from None
        return history

    def require_intact(self, *paths: Path) -> None:
        """Verify files of a result before they are read, by the manifest of their folder.

        Files that it does not list, and folders without a manifest, are accepted: earlier releases
        wrote none.

        Raises:
            DamagedFile: a file is missing or not as it was written.
        """
        by_folder: dict[Path, list[str]] = {}
        for path in paths:
            folder = self.path / path.relative_to(self.path).parts[0]
            by_folder.setdefault(folder, []).append(str(path.relative_to(folder)))
        for folder, names in by_folder.items():
            if folder.is_dir() and not has_manifest(folder):
                log.warning(
                    "%s has no manifest, so that its files cannot be verified: it was written by "
                    "an earlier release, or the manifest was deleted",
                    folder,
                )
            for damage in damages(folder, names):
                raise damage.error(self.if_damaged(damage))

    def warn_of_damage(self, folder: Path, *used: str) -> None:
        """Log which files of a result are damaged, apart from those that are used and verified."""
        for damage in damages(folder):
            if str(damage.path.relative_to(folder)) not in used:
                log.warning("%s %s; %s", damage.path, damage.problem, self.if_damaged(damage))

    def if_damaged(self, damage: Damage) -> str:
        """Return what damage to a file means, and what to do about it."""
        return if_damaged(str(damage.path.relative_to(self.path)))

    @contextmanager
    def finishing(self, stage: StageName) -> Iterator[Path]:
        """A new folder that becomes the stage's pending result if the block succeeds."""
        with self.replacing(self.result(stage)) as folder:
            yield folder
            (folder / _PENDING).touch()

    @contextmanager
    def replacing(self, target: Path) -> Iterator[Path]:
        """A new folder that replaces `target` only if the block succeeds.

        Only its owner can access it and its files, however the block creates them.
        """
        try:
            fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=self.path))
        except OSError as error:
            raise _unwritable(target, error) from None
        try:
            yield fresh
            write_manifest(fresh, unlisted=(_PENDING,))
            restrict(fresh)
            sync_tree(fresh)  # so that the files survive a power failure after the rename
            if target.exists():
                old = Path(tempfile.mkdtemp(prefix=f".old-{target.name}-", dir=self.path))
                target.rename(old / target.name)
                fresh.rename(target)
                shutil.rmtree(old)
            else:
                fresh.rename(target)
            sync(self.path)
        except OSError as error:
            raise _unwritable(target, error) from None
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def _unwritable(target: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"{target} cannot be written: {error.strerror or error}")
