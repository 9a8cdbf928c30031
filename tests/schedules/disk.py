"""A simulated disk below the files of each party.

Files are real, in a folder per party, because native code writes some of them. The simulation keeps
what has reached the disk: the content of a file as of its last fsync, and the names as of the last
fsync of a folder. A power failure leaves that, and any part of what was written since: names change
in the order in which they were changed; a file that was not synced has its old content, its new
one, or a mixture by sector. A killed process loses nothing that it has written.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import shutil
import stat
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path
    from random import Random

    from florist.common.core.roles import RoleName

#: Bytes that a disk writes as a whole.
SECTOR = 512

_real: dict[str, Any] = {
    name: getattr(os, name)
    for name in (
        *("open", "fsync", "fdatasync", "rename", "replace", "unlink", "remove", "mkdir"),
        *("rmdir", "pwrite", "close"),
    )
}
_real_open = builtins.open


@dataclass(eq=False)
class File:
    """A file, whatever its name is."""

    #: Its content on disk; None if it was never synced.
    durable: bytes | None = None
    #: Its content when its last name was removed.
    removed: bytes | None = None


#: By path relative to the disk's folder; None is a folder.
Names = dict[str, File | None]


@dataclass(frozen=True)
class Image:
    """What is on a disk when its party is killed."""

    #: By path; None is a folder.
    contents: dict[str, tuple[File, bytes] | None]
    durable_names: Names
    changes: list[Names]


@dataclass
class DiskFaults:
    """What is wrong with a disk at the moment."""

    is_full: bool = False
    #: Seconds that an fsync takes.
    slowness: float = 0.0
    #: Whether an fsync does nothing.
    loses_syncs: bool = False


@dataclass(eq=False)
class Disk:
    """The disk of one party."""

    root: Path
    faults: DiskFaults = field(default_factory=DiskFaults)
    #: Files that the party has opened without a file object.
    descriptors: set[int] = field(default_factory=set)
    #: The names that are on disk, and the states of the names since.
    _durable_names: Names = field(default_factory=dict)
    _changes: list[Names] = field(default_factory=list)
    _names: Names = field(default_factory=dict)
    _by_inode: dict[int, File] = field(default_factory=dict)
    _image: Image | None = None

    def __post_init__(self) -> None:
        """Keep the folder as text, which is compared for each operation."""
        self._folder = str(self.root)
        self._prefix = f"{self.root}/"

    def settle(self) -> None:
        """Take all that is in the folder as being on disk."""
        self._by_inode.clear()
        self._names = {}
        for path, inode in _scan(self._prefix, ""):
            if inode is None:
                self._names[path] = None
            else:
                file = self._by_inode[inode] = File((self.root / path).read_bytes())
                self._names[path] = file
        self._durable_names, self._changes = dict(self._names), []

    # -- what the parties do -----------------------------------------------------------------------

    def relative(self, path: str) -> str | None:
        """Return the path within the disk; None if it is elsewhere."""
        if path.startswith(self._prefix):
            return path[len(self._prefix) :]
        return "" if path == self._folder else None

    def created(self, path: str) -> None:
        """Note that a file or folder may have been created."""
        if path in self._names:
            return
        try:
            facts = os.lstat(self._prefix + path)
        except FileNotFoundError:
            return
        self._names[path] = None if stat.S_ISDIR(facts.st_mode) else self._file(facts.st_ino)
        self._changed()

    def removing(self, path: str) -> None:
        """Note that a name is about to be removed."""
        file = self._names.pop(path, None)
        if file is not None:
            file.removed = (self.root / path).read_bytes()
            self._by_inode = {
                inode: each for inode, each in self._by_inode.items() if each is not file
            }
        self._changed()

    def renaming(self, old: str, new: str) -> None:
        """Note that a file or folder is about to be renamed."""
        self.created(old)
        if self._names.get(old) is None:
            self._notice(_scan(self._prefix, f"{old}/"))
        if self._names.get(new) is not None:
            replaced = self._names[new]
            assert replaced is not None
            replaced.removed = (self.root / new).read_bytes()
            self._by_inode = {
                inode: each for inode, each in self._by_inode.items() if each is not replaced
            }
        moved = {}
        for path, file in self._names.items():
            if path == old or path.startswith(f"{old}/"):
                moved[new + path[len(old) :]] = file
            elif path != new:
                moved[path] = file
        self._names = moved
        self._changed()

    def synced(self, descriptor: int) -> None:
        """Note that a file, or a folder and with it all earlier changes of names, is on disk."""
        facts = os.fstat(descriptor)
        path = self.relative(_path_of(descriptor))
        assert path is not None
        if stat.S_ISDIR(facts.st_mode):
            self._notice(_entries(descriptor, path and f"{path}/"))
            self._durable_names, self._changes = dict(self._names), []
        else:
            self.created(path)
            with _real_open(f"/proc/self/fd/{descriptor}", "rb", 0) as file:
                self._file(facts.st_ino).durable = file.read()

    def _notice(self, found: Iterable[tuple[str, int | None]]) -> None:
        """Notice the files that native code has created.

        It is called before the folder that contains them is synced or renamed, and at a crash.
        """
        changed = False
        for path, inode in found:
            if path not in self._names:
                self._names[path] = None if inode is None else self._file(inode)
                changed = True
        if changed:
            self._changed()

    def _changed(self) -> None:
        self._changes.append(dict(self._names))

    def _file(self, inode: int) -> File:
        return self._by_inode.setdefault(inode, File())

    # -- crashes -----------------------------------------------------------------------------------

    def crash(self, random: Random | None) -> None:
        """Remember what is on disk at this moment; with `random` after a power failure.

        The threads of the killed process may still write while they end: `restore` undoes that.
        """
        self._notice(_scan(self._prefix, ""))
        if random is None:
            contents = {
                path: None if file is None else (file, (self.root / path).read_bytes())
                for path, file in self._names.items()
            }
            self._image = Image(contents, dict(self._durable_names), list(self._changes))
            return
        names = random.choice([self._durable_names, *self._changes, self._names])
        current = {id(file): path for path, file in self._names.items() if file is not None}
        survivors: dict[str, tuple[File, bytes] | None] = {}
        for path, file in names.items():
            if file is None:
                survivors[path] = None
                continue
            where = current.get(id(file))
            newest = file.removed if where is None else (self.root / where).read_bytes()
            content = survived(file.durable, newest or b"", random)
            survivors[path] = (File(content), content)
        durable = {path: kept and kept[0] for path, kept in survivors.items()}
        self._image = Image(survivors, durable, [])

    def restore(self) -> None:
        """Put the files back as they were at the crash."""
        image, self._image = self._image, None
        assert image is not None
        for descriptor in self.descriptors:
            _real["close"](descriptor)
        self.descriptors.clear()
        for entry in os.scandir(self.root):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                _real["unlink"](entry.path)
        self._by_inode.clear()
        self._names = {}
        for path, kept in sorted(image.contents.items()):
            target = self.root / path
            folder = target if kept is None else target.parent
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._names[path] = kept and kept[0]
            if kept is not None:
                file, content = kept
                descriptor = _real["open"](target, os.O_WRONLY | os.O_CREAT, 0o600)
                os.write(descriptor, content)
                self._by_inode[os.fstat(descriptor).st_ino] = file
                os.close(descriptor)
        self._durable_names, self._changes = image.durable_names, image.changes

    def on_disk(self, name: str) -> bytes:
        """Return what would be left of a file after a power failure now, by the end of its path."""
        for path, file in self._durable_names.items():
            if path.endswith(name) and file is not None:
                return file.durable or b""
        return b""

    def flip(self, path: str, bit: int) -> None:
        """Change a bit of a file at rest."""
        target = self.root / path
        content = bytearray(target.read_bytes())
        content[bit // 8] ^= 1 << bit % 8
        with _real_open(target, "r+b") as file:
            file.write(content)


def survived(durable: bytes | None, newest: bytes, random: Random) -> bytes:
    """Return what a power failure leaves of a file."""
    old = durable or b""
    if newest == durable:
        return newest
    match random.randrange(4):
        case 0:
            return old
        case 1:
            return newest
        case _:
            length = random.choice([len(old), len(newest), random.randint(0, len(newest))])
            if length < len(old) <= len(newest):
                length = len(old)  # it only grew
            torn = bytearray(length)
            for start in range(0, length, SECTOR):
                source = random.choice([old, newest])
                part = source[start : min(start + SECTOR, length)]
                torn[start : start + len(part)] = part
            return bytes(torn)


def _scan(root: str, prefix: str) -> Iterator[tuple[str, int | None]]:
    """Yield the path and inode of all files below a folder; a folder has no inode here."""
    for path, inode in list(_entries(root + prefix, prefix)):
        yield path, inode
        if inode is None:
            yield from _scan(root, f"{path}/")


def _entries(folder: str | int, prefix: str) -> Iterator[tuple[str, int | None]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            is_folder = entry.is_dir(follow_symlinks=False)
            yield prefix + entry.name, None if is_folder else entry.inode()


def _path_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - often called


# -- the patches -----------------------------------------------------------------------------------


class FullDisk(io.FileIO):
    """A file on a disk that may be full."""

    disk: Disk

    def write(self, data: Any) -> int:  # noqa: ANN401 - any buffer
        _require_space(self.disk)
        return super().write(data)


def _require_space(disk: Disk) -> None:
    if disk.faults.is_full:
        raise OSError(errno.ENOSPC, "No space left on device")


class DiskPatches:
    """The functions that the parties' code calls instead of those of `os`."""

    def __init__(
        self,
        disks: Mapping[RoleName, Disk],
        on_operation: Callable[[str, Disk], None],
        sleep: Callable[[float], None],
    ) -> None:
        """`on_operation` is called before and after each operation on a disk."""
        self._disks = disks
        self._on_operation = on_operation
        self._sleep = sleep
        #: Threads that are opening a file object, which will close its descriptor by itself.
        self._opening: set[int] = set()

    def _of(self, path: object) -> tuple[Disk, str] | None:
        if isinstance(path, int):
            path = _path_of(path)
        text = os.fsdecode(path)  # type: ignore[arg-type]
        for disk in self._disks.values():
            if (relative := disk.relative(text)) is not None:
                return disk, relative
        return None

    def fsync(self, descriptor: int) -> None:
        if hasattr(descriptor, "fileno"):
            descriptor = descriptor.fileno()
        found = self._of(descriptor)
        if found is None:
            _real["fsync"](descriptor)
            return
        disk, _ = found
        self._on_operation("fsync", disk)
        if disk.faults.slowness:
            self._sleep(disk.faults.slowness)
        _require_space(disk)
        if not disk.faults.loses_syncs:
            disk.synced(descriptor)
        self._on_operation("fsynced", disk)

    def rename(self, old: Any, new: Any, **options: Any) -> None:  # noqa: ANN401 - as in `os`
        found = self._of(old)
        if found is not None:
            disk, source = found
            self._on_operation("rename", disk)
            target = disk.relative(os.fsdecode(new))
            assert target is not None
            os.lstat(old)
            disk.renaming(source, target)
        _real["rename"](old, new, **options)
        if found is not None:
            self._on_operation("renamed", disk)

    def unlink(self, path: Any, **options: Any) -> None:  # noqa: ANN401 - as in `os`
        found = self._of(path)
        if found is not None:
            disk, name = found
            self._on_operation("unlink", disk)
            os.lstat(path)
            disk.removing(name)
        _real["unlink"](path, **options)

    def rmdir(self, path: Any, **options: Any) -> None:  # noqa: ANN401 - as in `os`
        found = self._of(path)
        if found is not None:
            self._on_operation("rmdir", found[0])
        _real["rmdir"](path, **options)
        if found is not None:
            found[0].removing(found[1])

    def mkdir(self, path: Any, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        found = self._of(path)
        if found is not None:
            self._on_operation("mkdir", found[0])
            _require_space(found[0])
        _real["mkdir"](path, *arguments, **options)
        if found is not None:
            found[0].created(found[1])

    def open(self, path: Any, flags: int, *arguments: Any, **options: Any) -> int:  # noqa: ANN401
        found = self._of(path) if flags & os.O_CREAT else None
        if found is not None:
            self._on_operation("create", found[0])
            if not os.path.exists(path):  # noqa: PTH110 - as the rest
                _require_space(found[0])
        descriptor: int = _real["open"](path, flags, *arguments, **options)
        if found is not None:
            found[0].created(found[1])
            if get_ident() not in self._opening and not flags & os.O_EXCL:  # as for temporary files
                found[0].descriptors.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        for disk in self._disks.values():
            disk.descriptors.discard(descriptor)
        _real["close"](descriptor)

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        found = self._of(descriptor)
        if found is not None:
            self._on_operation("write", found[0])
            _require_space(found[0])
        written: int = _real["pwrite"](descriptor, data, offset)
        return written

    def open_file(self, path: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        writes = not mode.startswith("r") or "+" in mode
        found = self._of(path) if writes and isinstance(path, str | os.PathLike) else None
        if found is None:
            return _real_open(path, mode, *arguments, **options)
        disk, name = found
        self._on_operation("open", disk)
        if not os.path.exists(path):  # noqa: PTH110 - as the rest
            _require_space(disk)
        self._opening.add(get_ident())
        try:
            if "b" not in mode or "+" in mode:
                return _real_open(path, mode, *arguments, **options)
            raw = FullDisk(path, mode.replace("b", ""), opener=options.get("opener"))
        finally:
            self._opening.discard(get_ident())
            disk.created(name)
        raw.disk = disk
        is_unbuffered = options.get("buffering") == 0 or arguments[:1] == (0,)
        return raw if is_unbuffered else io.BufferedWriter(raw)

    def _set_open(self, function: Any) -> None:  # noqa: ANN401 - one of two signatures
        builtins.open = io.open = function

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Use them for the duration of a block."""
        replacements = {
            "fsync": self.fsync,
            "fdatasync": self.fsync,
            "rename": self.rename,
            "replace": self.rename,
            "unlink": self.unlink,
            "remove": self.unlink,
            "rmdir": self.rmdir,
            "mkdir": self.mkdir,
            "open": self.open,
            "close": self.close,
            "pwrite": self.pwrite,
        }
        uses_descriptors = shutil._use_fd_functions  # type: ignore[attr-defined]
        try:
            for name, function in replacements.items():
                setattr(os, name, function)
            self._set_open(self.open_file)
            shutil._use_fd_functions = False  # type: ignore[attr-defined]
            yield
        finally:
            for name in replacements:
                setattr(os, name, _real[name])
            self._set_open(_real_open)
            shutil._use_fd_functions = uses_descriptors  # type: ignore[attr-defined]
