"""The manifest of a folder: size and SHA-256 of each file, so that damage is noticed.

`manifest.json` is in the folder whose files it lists. A folder that is renamed into place as a
whole brings its manifest along. In a folder whose files are replaced one by one, the manifest lists
the next version of a file before the file is renamed into place, besides the present version; so
files and manifest match at every moment, whenever the process is killed.

A manifest detects damage: bit rot, lost or truncated files, files of another run. It does not
protect against somebody who edits files on purpose and can write a new manifest as well.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from florist.common.core.errors import ConfigurationError
from florist.common.storage.durable import sync
from florist.common.storage.private_files import (
    make_private_folder,
    private_opener,
    refuse_shared,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from pathlib import Path

MANIFEST = "manifest.json"

#: Increased when the file changes so that an older release would misread it.
FORMAT = "florist/manifest/1"


class DamagedFile(ConfigurationError):  # noqa: N818 - named after the event, like the others
    """A file of a run directory is missing, or is not as it was written."""

    advice = (
        "Check the disk. Restore the file from a backup, or repeat the stage as the message says; "
        "`florist verify RUN` lists all damaged files."
    )

    @property
    def for_peer(self) -> str:
        return "a file of its run directory is damaged"


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that is not as it was written."""

    path: Path
    #: The problem, as the rest of a sentence that starts with the path.
    problem: str

    def error(self, consequence: str) -> DamagedFile:
        """Return the error that says so; `consequence` says what to do about it."""
        return DamagedFile(f"{self.path} {self.problem}; {consequence}")


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What a manifest says about a file."""

    #: In bytes.
    size: int
    sha256: str

    def to_json(self) -> dict[str, int | str]:
        """Return what the manifest has of the file."""
        return {"size": self.size, "sha256": self.sha256}

    @classmethod
    def of_content(cls, content: bytes) -> FileFacts:
        """Return the facts of a file with this content."""
        return cls(len(content), hashlib.sha256(content).hexdigest())

    @classmethod
    def of_file(cls, path: Path) -> FileFacts:
        """Return the facts of a file on disk; reads all of it."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return cls(file.tell(), digest)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a manifest; paths are relative to its folder."""

    files: dict[str, FileFacts] = field(default_factory=dict)
    #: Versions that are about to replace those in `files`, or already have.
    next: dict[str, FileFacts] = field(default_factory=dict)
    #: Files that the owner has deleted on purpose.
    deleted: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """Return the content of `manifest.json`, which contains a digest of itself."""
        values: dict[str, object] = {
            "format": FORMAT,
            "files": {name: facts.to_json() for name, facts in self.files.items()},
            "next": {name: facts.to_json() for name, facts in self.next.items()},
            "deleted": self.deleted,
        }
        return (json.dumps(values | {"sha256": _digest(values)}, indent=1) + "\n").encode()

    @classmethod
    def parse(cls, content: bytes) -> Manifest:
        """Read what `to_bytes` returned.

        Raises:
            ValueError: it is damaged, or of another format.
        """
        try:
            values = json.loads(content)
            if values.pop("sha256") != _digest(values) or values.pop("format") != FORMAT:
                raise ValueError("another digest or format")
            found = _MANIFEST.validate_python(values)
        except (KeyError, TypeError, AttributeError, RecursionError, ValidationError):
            raise ValueError("not a manifest") from None
        if found.to_bytes() != content:
            raise ValueError("not as it was written")
        return found

    def damage(self, folder: Path, name: str) -> Damage | None:
        """Compare a listed file with its facts; reads all of it unless its size differs."""
        known = [facts[name] for facts in (self.files, self.next) if name in facts]
        path = folder / name
        try:
            size = path.stat().st_size
            if size not in {facts.size for facts in known}:
                return Damage(
                    path,
                    f"is damaged: it has {size:,} bytes, not {known[0].size:,} as {MANIFEST} says",
                )
            if FileFacts.of_file(path) not in known:
                return Damage(path, f"is damaged: its SHA-256 is not the one in {MANIFEST}")
        except FileNotFoundError:
            # A file that was only announced need not exist.
            missing = Damage(path, f"is missing, although {MANIFEST} lists it")
            return missing if name in self.files else None
        except OSError as error:
            return Damage(path, f"cannot be read: {error.strerror or error}")
        return None


_MANIFEST = TypeAdapter(Manifest)


def _digest(values: dict[str, object]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def write_manifest(folder: Path, unlisted: Collection[str] = ()) -> None:
    """List all files below a new folder, except those with an `unlisted` name.

    Raises:
        OSError: a file cannot be read, or the manifest not written.
    """
    names = (path for path in sorted(folder.rglob("*")) if path.is_file())
    files = {
        str(path.relative_to(folder)): FileFacts.of_file(path)
        for path in names
        if path.name not in unlisted and path != folder / MANIFEST
    }
    _replace(folder / MANIFEST, Manifest(files).to_bytes())


def read_manifest(folder: Path) -> Manifest | Damage | None:
    """Read the manifest of a folder; None if there is none.

    Earlier releases wrote none.
    """
    path = folder / MANIFEST
    try:
        return Manifest.parse(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        return Damage(path, f"cannot be read: {error.strerror or error}")
    except ValueError:
        return Damage(path, "is damaged, so that the files that it lists cannot be verified")


def has_manifest(folder: Path) -> bool:
    """Whether a folder has a manifest, damaged or not."""
    return (folder / MANIFEST).exists()


def damages(folder: Path, names: Iterable[str] | None = None) -> Iterator[Damage]:
    """Yield what is damaged in a folder with a manifest.

    Args:
        folder: the folder; without a manifest nothing can be verified.
        names: only these files and the manifest; by default all that it lists. Files that it does
            not list are not verified.
    """
    manifest = read_manifest(folder)
    if isinstance(manifest, Damage):
        yield manifest
    elif manifest is not None:
        listed = {**manifest.files, **manifest.next}
        for name in listed if names is None else names:
            if name in manifest.deleted:
                if names is not None:
                    yield Damage(folder / name, "was deleted by `florist purge`")
            elif name in listed and (found := manifest.damage(folder, name)) is not None:
                yield found


def mark_deleted(folder: Path, names: Collection[str]) -> None:
    """Record that the owner deletes these files, so that their absence is not taken for damage.

    Raises:
        OSError: the manifest cannot be written.
    """
    manifest = read_manifest(folder)
    if isinstance(manifest, Manifest):
        gone = tuple(sorted({*manifest.deleted, *names} & {*manifest.files, *manifest.next}))
        _replace(folder / MANIFEST, replace(manifest, deleted=gone).to_bytes())


class ListedFolder:
    """A private folder whose files are replaced one by one, and all listed in its manifest.

    Other files, which protect themselves, may be in the folder too. One process at a time writes.
    """

    def __init__(self, folder: Path, consequence: str) -> None:
        """Use a folder, which is created with its first file.

        `consequence` says what damage means and what to do about it.
        """
        self.folder = folder
        self._consequence = consequence

    def exists(self, name: str) -> bool:
        """Whether there is such a file, or should be one."""
        manifest = self._manifest()
        return (self.folder / name).exists() or (manifest is not None and name in manifest.files)

    def read(self, name: str) -> bytes:
        """Return the content of a file, verified if it is listed.

        Raises:
            DamagedFile: it is missing or not as it was written, or the manifest is damaged.
        """
        manifest, path = self._manifest(), self.folder / name
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise self._error(path, "is missing") from None
        except OSError as error:
            raise self._error(path, f"cannot be read: {error.strerror or error}") from None
        if manifest is not None:  # an earlier release wrote none
            known = [facts[name] for facts in (manifest.files, manifest.next) if name in facts]
            if known and FileFacts.of_content(content) not in known:
                raise self._error(path, f"is damaged: its SHA-256 is not the one in {MANIFEST}")
        return content

    def write(self, name: str, content: bytes) -> None:
        """Replace a file atomically and durably, readable only by its owner.

        Raises:
            ConfigurationError: it cannot be written.
            DamagedFile: the manifest is damaged.
        """
        manifest = self._manifest() or Manifest()
        facts = FileFacts.of_content(content)
        path = self.folder / name
        try:
            make_private_folder(self.folder)
            _replace(
                self.folder / MANIFEST,
                replace(manifest, next={**manifest.next, name: facts}).to_bytes(),
            )
            _replace(path, content)
            left = {other: its for other, its in manifest.next.items() if other != name}
            settled = replace(manifest, files={**manifest.files, name: facts}, next=left)
            _replace(self.folder / MANIFEST, settled.to_bytes())
        except OSError as error:
            raise ConfigurationError(
                f"{path} cannot be written: {error.strerror or error}; free some space or fix the "
                "permissions, and start again"
            ) from None

    def delete(self, names: Iterable[str]) -> None:
        """Delete files, and the manifest if it lists no others. Nothing need exist."""
        gone = set(names)
        manifest = read_manifest(self.folder)
        if isinstance(manifest, Manifest):
            left = Manifest(
                {name: facts for name, facts in manifest.files.items() if name not in gone},
                {name: facts for name, facts in manifest.next.items() if name not in gone},
            )
            if left.files or left.next:
                _replace(self.folder / MANIFEST, left.to_bytes())
            else:
                (self.folder / MANIFEST).unlink()
        elif manifest is not None:
            manifest.path.unlink(missing_ok=True)
        for name in gone:
            (self.folder / name).unlink(missing_ok=True)

    def _manifest(self) -> Manifest | None:
        found = read_manifest(self.folder)
        if isinstance(found, Damage):
            raise found.error(self._consequence)
        return found

    def _error(self, path: Path, problem: str) -> DamagedFile:
        return Damage(path, problem).error(self._consequence)


def private_content(files: ListedFolder, name: str, make: Callable[[], bytes]) -> bytes:
    """Read a secret; if there is none, create it with the content that `make` returns.

    Raises:
        DamagedFile: it is missing or not as it was written.
        ConfigurationError: it cannot be read or written, or other users can read it.
    """
    if not files.exists(name):
        files.write(name, make())
    content = files.read(name)
    refuse_shared(files.folder / name)
    return content


def _replace(path: Path, content: bytes) -> None:
    """Write a file atomically and durably, readable only by its owner."""
    part = path.with_name(f".{path.name}.part")
    with open(part, "wb", opener=private_opener) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    sync(path.parent)
