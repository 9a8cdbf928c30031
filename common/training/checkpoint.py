"""Checkpoints: all that a party needs to resume from a step, written atomically.

    <directory>/                                     0700
      step-000001200.json                            0600  step, digests, facts
      step-000001200-<start of digest>.safetensors   0600  weights, moments and other tensors
      unfinished/                                    0700  files that are being written

A checkpoint exists once its JSON file, the manifest, is moved into place, and no longer once that
file is deleted. So the process may be killed at any moment: tensor files that no manifest names are
ignored, and the next save deletes them. Only one process at a time may save or prune.

The facts contain secrets of this party, such as the seed of its random draws.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NotRequired, TypedDict

from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save_file as write_tensors

from florist.common.core.errors import ConfigurationError
from florist.common.session.retention import if_damaged
from florist.common.storage.durable import sync
from florist.common.storage.manifest import DamagedFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from torch import Tensor

#: Increased when the files change so that an older release would misread them.
FORMAT = 1

_MANIFEST = re.compile(r"step-([0-9]{9,})\.json")
_TENSORS = re.compile(r"step-([0-9]{9,})-[0-9a-f]{16}\.safetensors")


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """The state of a party after `step` steps.

    Facts are JSON values: strings, integers, finite floats, booleans, None, lists, and dictionaries
    with string keys. The repr shows neither facts nor tensors.
    """

    step: int
    tensors: Mapping[str, Tensor] = field(repr=False)
    facts: Mapping[str, object] = field(repr=False)


class _TensorEntry(TypedDict):
    """What a manifest says about its tensor file."""

    format: int
    step: int
    tensors_bytes: int
    tensors_sha256: str


class _Manifest(_TensorEntry):
    facts_sha256: str
    facts: dict[str, object]
    #: The digest of all of the above; checkpoints of earlier releases have none.
    sha256: NotRequired[str]


class CheckpointStore:
    """The checkpoints of one run; only the newest `keep` stay on disk."""

    def __init__(self, directory: Path, keep: int) -> None:
        if keep < 1:
            raise ValueError("at least one checkpoint must be kept")
        self.directory = directory
        self._keep = keep

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint and sync it to disk, then delete those that are no longer needed.

        It replaces one of the same step. Checkpoints of later steps are deleted as well: the run
        went back, and will write them again.

        Raises:
            ConfigurationError: it cannot be written, or an existing one has an unknown format. The
                existing checkpoints remain.
            TypeError, ValueError: the facts are not JSON values.
        """
        steps = {step for step in self.steps() if step < checkpoint.step} | {checkpoint.step}
        kept = sorted(steps)[-self._keep :]
        # Through JSON, so that the digest is that of the facts as they will be read.
        facts: dict[str, object] = json.loads(json.dumps(checkpoint.facts, allow_nan=False))
        try:
            entry = self._write_tensors(checkpoint)
            content = {**entry, "facts_sha256": _digest(facts), "facts": facts}
            manifest = content | {"sha256": _digest(content)}
            fresh = self._unfinished / "manifest"
            fresh.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
            _place(fresh, self._path(checkpoint.step))
            self._delete({step for step in self.all_steps() if not kept[0] <= step <= kept[-1]})
        except (OSError, SafetensorError) as error:
            with suppress(OSError):
                self._clear()
            raise ConfigurationError(
                f"the checkpoint {self._path(checkpoint.step)} cannot be written: "
                f"{getattr(error, 'strerror', None) or error}; free some space or fix the "
                "permissions, and start again"
            ) from None

    def steps(self) -> list[int]:
        """Return the steps of all complete checkpoints, ascending.

        Complete means a manifest and a tensor file of the right length; `load` checks the rest.

        Raises:
            ConfigurationError: a checkpoint has a format that this release cannot read.
        """
        complete = []
        for step in self.all_steps():
            with suppress(_Damaged):
                self._manifest(step)
                complete.append(step)
        return complete

    def damages(self) -> list[str]:
        """Return a sentence for each checkpoint that cannot be loaded; reads all of them."""
        found = []
        for step in self.all_steps():
            try:
                self.load(step)
            except ConfigurationError as error:
                found.append(error.reason)
        return found

    def load(self, step: int) -> Checkpoint:
        """Read a checkpoint and verify all of it.

        Raises:
            ConfigurationError: it is missing, damaged, or in a format that this release cannot
                read.
        """
        if step not in self.all_steps():
            raise ConfigurationError(f"{self.directory} contains no checkpoint of step {step}")
        manifest = self._manifest(step)
        path = self._tensors(manifest)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise _Damaged(path, f"cannot be read: {error.strerror}") from None
        if hashlib.sha256(content).hexdigest() != manifest["tensors_sha256"]:
            raise _Damaged(path, "is damaged: its digest does not match")
        try:
            tensors = parse_tensors(content)
        except SafetensorError as error:
            raise _Damaged(path, f"cannot be read: {error}") from None
        return Checkpoint(step, tensors, manifest["facts"])

    def prune(self) -> None:
        """Delete all but the newest `keep` checkpoints, and the remains of interrupted saves.

        The newest checkpoint that can be loaded always stays.
        """
        steps = self.steps()
        older = steps[: -self._keep]
        good = next(filter(self._is_loadable, reversed(steps)), None) if older else None
        self._delete(set(older) - {good})

    def _write_tensors(self, checkpoint: Checkpoint) -> _TensorEntry:
        """Write the tensors and return their entry in the manifest."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        self._unfinished.mkdir(mode=0o700, exist_ok=True)
        fresh = self._unfinished / "tensors"
        write_tensors(_separate(checkpoint.tensors), fresh)
        with fresh.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        entry: _TensorEntry = {
            "format": FORMAT,
            "step": checkpoint.step,
            "tensors_bytes": fresh.stat().st_size,
            "tensors_sha256": digest,
        }
        _place(fresh, self._tensors(entry))
        return entry

    def clear(self) -> None:
        """Delete all checkpoints: the run is complete or starts over."""
        if self.directory.is_dir():
            self._delete(self.all_steps())

    def _is_loadable(self, step: int) -> bool:
        try:
            self.load(step)
        except ConfigurationError:
            return False
        return True

    def _delete(self, steps: Iterable[int]) -> None:
        """Delete these checkpoints: first the manifests, then files that belong to none."""
        for step in steps:
            self._path(step).unlink()
        self._clear()

    def _clear(self) -> None:
        """Delete files that belong to no checkpoint; keep those of a damaged manifest's step."""
        named, damaged = set(), set()
        for step in self.all_steps():
            try:
                named.add(self._tensors(self._manifest(step)))
            except ConfigurationError:
                damaged.add(step)
        for path in self._files():
            tensors = _TENSORS.fullmatch(path.name)
            if tensors and path not in named and int(tensors[1]) not in damaged:
                path.unlink()
        shutil.rmtree(self._unfinished, ignore_errors=True)

    def all_steps(self) -> list[int]:
        """Return the steps of all manifests, complete or not, ascending."""
        found = (_MANIFEST.fullmatch(path.name) for path in self._files())
        return sorted(int(match[1]) for match in found if match)

    def _files(self) -> list[Path]:
        return list(self.directory.iterdir()) if self.directory.is_dir() else []

    def _manifest(self, step: int) -> _Manifest:
        """Read a manifest; verify it and the length of its tensor file."""
        path = self._path(step)
        try:
            manifest: _Manifest = json.loads(path.read_bytes())
            if manifest.pop("sha256", None) not in (None, _digest(manifest)):
                raise _Damaged(path, "is damaged: its digest does not match")
            if manifest["format"] != FORMAT:
                raise ConfigurationError(
                    f"{path} has format {manifest['format']}, but this release reads format "
                    f"{FORMAT}; resume with the release that wrote it, or train in another "
                    "run_directory"
                )
            if manifest["step"] != step or _digest(manifest["facts"]) != manifest["facts_sha256"]:
                raise _Damaged(path, "is damaged: its digest does not match")
            tensors = self._tensors(manifest)
            if tensors.stat().st_size != manifest["tensors_bytes"]:
                raise _Damaged(tensors, "is damaged: its length does not match")
        except OSError as error:
            raise _Damaged(path, f"or its tensors cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise _Damaged(path, "is damaged") from None
        return manifest

    @property
    def _unfinished(self) -> Path:
        return self.directory / "unfinished"

    def _path(self, step: int) -> Path:
        return self.directory / f"step-{step:09d}.json"

    def _tensors(self, entry: _TensorEntry) -> Path:
        name = f"step-{entry['step']:09d}-{entry['tensors_sha256'][:16]}.safetensors"
        return self.directory / name


class _Damaged(DamagedFile):
    """A file of a checkpoint is not as it was written."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path} {problem}; {if_damaged(f'checkpoints/{path.name}')}")


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return contiguous tensors on the CPU that share no memory, as safetensors requires."""
    separate: dict[str, Tensor] = {}
    memory: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        address = plain.untyped_storage().data_ptr()
        separate[name] = plain.clone() if address in memory else plain
        memory.add(address)
    return separate


def _digest(facts: object) -> str:
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _place(fresh: Path, target: Path) -> None:
    """Sync a file to disk and move it into place."""
    fresh.chmod(0o600)
    sync(fresh)
    fresh.replace(target)
    sync(target.parent)
