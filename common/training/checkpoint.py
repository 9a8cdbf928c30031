"""Checkpoints: all that a party needs to go on from a step, written whole or not at all.

    <directory>/                                     0700
      step-000001200.json                            0600  step, digests, facts
      step-000001200-<start of digest>.safetensors   0600  weights, moments and other tensors
      unfinished/                                    0700  where files are written

A checkpoint is there once its JSON file, the manifest, is moved into place, and gone once that is
deleted. So a process may die at any moment: tensors that no manifest names are not looked at, and
the next save clears them away. One process at a time may save or prune.

The facts hold secrets of this party, such as the seed of its draws.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save_file as write_tensors

from florist.common.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from torch import Tensor

#: Raised when what is written changes so that an older reader would misread it.
FORMAT = 1

_MANIFEST = re.compile(r"step-([0-9]{9,})\.json")
_TENSORS = re.compile(r"step-([0-9]{9,})-[0-9a-f]{16}\.safetensors")


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """The state of a party after `step` steps.

    Facts are what JSON can hold: texts, whole and finite numbers, booleans, None, lists, and
    dictionaries with texts as keys. Neither they nor the tensors show in the repr.
    """

    step: int
    tensors: Mapping[str, Tensor] = field(repr=False)
    facts: Mapping[str, Any] = field(repr=False)


class CheckpointStore:
    """The checkpoints of one run, of which the newest `keep` are kept."""

    def __init__(self, directory: Path, keep: int) -> None:
        if keep < 1:
            raise ValueError("at least one checkpoint must be kept")
        self.directory = directory
        self._keep = keep

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint through to the disk, then delete those that it makes superfluous.

        It takes the place of one of the same step. Those of later steps go too: the run went back
        and will make them anew.

        Raises:
            ConfigurationError: it cannot be written, or `steps` cannot read those there; these stay
                as they were.
            TypeError, ValueError: the facts are not what JSON can hold.
        """
        steps = {step for step in self.steps() if step < checkpoint.step} | {checkpoint.step}
        kept = sorted(steps)[-self._keep :]
        # By way of JSON, so that their digest is of what will be read.
        facts = json.loads(json.dumps(checkpoint.facts, allow_nan=False))
        try:
            manifest = self._place_tensors(checkpoint)
            manifest |= {"facts_sha256": _digest(facts), "facts": facts}
            fresh = self._unfinished / "manifest"
            fresh.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
            _place(fresh, self._path(checkpoint.step))
            self._delete({step for step in self._manifests() if not kept[0] <= step <= kept[-1]})
        except (OSError, SafetensorError) as error:
            with suppress(OSError):
                self._clear()
            raise ConfigurationError(
                f"the checkpoint {self._path(checkpoint.step)} cannot be written: "
                f"{getattr(error, 'strerror', None) or error}; make room or mend the permissions, "
                "and start again"
            ) from None

    def steps(self) -> list[int]:
        """Steps of all complete checkpoints, ascending.

        Complete means a manifest and a tensor file of the right length; `load` checks the rest.

        Raises:
            ConfigurationError: there are checkpoints of a release that this one cannot read.
        """
        complete = []
        for step in self._manifests():
            with suppress(_Damaged):
                self._manifest(step)
                complete.append(step)
        return complete

    def load(self, step: int) -> Checkpoint:
        """Read a checkpoint and check all of it.

        Raises:
            ConfigurationError: it is not there, damaged, or of a release that this one cannot read.
        """
        if step not in self._manifests():
            raise ConfigurationError(f"{self.directory} holds no checkpoint of step {step}")
        manifest = self._manifest(step)
        path = self._tensors(manifest)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise _Damaged(path, f"cannot be read: {error.strerror}") from None
        if hashlib.sha256(content).hexdigest() != manifest["tensors_sha256"]:
            raise _Damaged(path, "is damaged: its digest differs")
        try:
            tensors = parse_tensors(content)
        except SafetensorError as error:
            raise _Damaged(path, f"cannot be read: {error}") from None
        return Checkpoint(step, tensors, manifest["facts"])

    def prune(self) -> None:
        """Delete all but the newest `keep` checkpoints, and what killed saves left behind.

        The newest one that can be loaded stays in any case.
        """
        steps = self.steps()
        older = steps[: -self._keep]
        good = next(filter(self._loads, reversed(steps)), None) if older else None
        self._delete(set(older) - {good})

    def _place_tensors(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """Write the tensors; returns what the manifest says of them."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        self._unfinished.mkdir(mode=0o700, exist_ok=True)
        fresh = self._unfinished / "tensors"
        write_tensors(_separate(checkpoint.tensors), fresh)
        with fresh.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        manifest = {
            "format": FORMAT,
            "step": checkpoint.step,
            "tensors_bytes": fresh.stat().st_size,
            "tensors_sha256": digest,
        }
        _place(fresh, self._tensors(manifest))
        return manifest

    def clear(self) -> None:
        """Delete all checkpoints: the run has ended, or is to begin anew."""
        if self.directory.is_dir():
            self._delete(self._manifests())

    def _loads(self, step: int) -> bool:
        try:
            self.load(step)
        except ConfigurationError:
            return False
        return True

    def _delete(self, steps: Iterable[int]) -> None:
        """Delete these checkpoints: manifests first, then the files that belong to none."""
        for step in steps:
            self._path(step).unlink()
        self._clear()

    def _clear(self) -> None:
        """Delete what belongs to no checkpoint; next to a damaged manifest nothing is touched."""
        named, damaged = set(), set()
        for step in self._manifests():
            try:
                named.add(self._tensors(self._manifest(step)))
            except ConfigurationError:
                damaged.add(step)
        for path in self._files():
            tensors = _TENSORS.fullmatch(path.name)
            if tensors and path not in named and int(tensors[1]) not in damaged:
                path.unlink()
        shutil.rmtree(self._unfinished, ignore_errors=True)

    def _manifests(self) -> list[int]:
        """Steps of all manifests, whole or not, ascending."""
        found = (_MANIFEST.fullmatch(path.name) for path in self._files())
        return sorted(int(match[1]) for match in found if match)

    def _files(self) -> list[Path]:
        return list(self.directory.iterdir()) if self.directory.is_dir() else []

    def _manifest(self, step: int) -> dict[str, Any]:
        """Read a manifest, and check it and the length of its tensors."""
        path = self._path(step)
        try:
            manifest: dict[str, Any] = json.loads(path.read_bytes())
            if manifest["format"] != FORMAT:
                raise ConfigurationError(
                    f"{path} is of format {manifest['format']}, and this release reads {FORMAT}; "
                    "go on with the release that wrote it, or train anew in another run_directory"
                )
            if manifest["step"] != step or _digest(manifest["facts"]) != manifest["facts_sha256"]:
                raise _Damaged(path, "is damaged: its digest differs")
            tensors = self._tensors(manifest)
            if tensors.stat().st_size != manifest["tensors_bytes"]:
                raise _Damaged(tensors, "is damaged: its length differs")
        except OSError as error:
            raise _Damaged(path, f"or its tensors cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise _Damaged(path, "is damaged") from None
        return manifest

    @property
    def _unfinished(self) -> Path:
        return self.directory / "unfinished"

    def _path(self, step: int) -> Path:
        return self.directory / f"step-{step:09d}.json"

    def _tensors(self, manifest: Mapping[str, Any]) -> Path:
        name = f"step-{manifest['step']:09d}-{manifest['tensors_sha256'][:16]}.safetensors"
        return self.directory / name


class _Damaged(ConfigurationError):  # noqa: N818 - as the others, it reads as what happened
    def __init__(self, path: Path, what: str) -> None:
        super().__init__(
            f"{path} {what}; delete it and start again: the run goes on from an earlier one"
        )


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """On the CPU, contiguous, no two of them in the same memory: as safetensors wants them."""
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
    """Move a file to its place, where it is whole and on the disk when this returns."""
    fresh.chmod(0o600)
    _sync(fresh)
    fresh.replace(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
