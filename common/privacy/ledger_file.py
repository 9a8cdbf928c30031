"""The file of a privacy ledger: JSON lines that are only ever appended, chained by a keyed hash.

    ledger.jsonl   one entry per line; `chain` of each is HMAC-SHA-256(key, chain before || entry)
    ledger.head    the number of entries and the last chain value
    ledger.key     32 random bytes

An entry is on disk before `append` returns, first in the file, then in the head. So a file with
fewer entries than the head says was cut off, and is refused like one that was edited. Entries
beyond the head were interrupted before the head was written: they count. An unfinished line beyond
the head was interrupted earlier: its `append` never returned, so nothing was announced for it. It
is replaced by an entry that says so.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import ValidationError

from florist.common.core.errors import ConfigurationError
from florist.common.privacy.ledger_entries import ENTRY, FORMAT, Opened, Repair, now
from florist.common.storage.durable import sync
from florist.common.storage.files import FolderStorage
from florist.common.storage.private_files import private_file, private_opener

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.privacy.ledger_entries import Entry

log = logging.getLogger("florist.privacy")

LEDGER = "ledger.jsonl"
HEAD = "ledger.head"
KEY = "ledger.key"

KEY_BYTES = 32
_START = "0" * 64
_ADVICE = (
    "restore the folder from a backup; or set privacy.ledger to a new folder, and lower "
    "privacy.budget by what was spent"
)


@dataclass(frozen=True, slots=True)
class LedgerContents:
    """The verified entries of a ledger."""

    entries: tuple[Entry, ...]
    #: The chain value of the last entry.
    chain: str
    #: Length of the complete lines, and of an unfinished line after them, in bytes.
    length: int
    torn: int
    #: Whether the head lacks entries.
    head_is_behind: bool


class LedgerFile:
    """The entries in one folder. The caller makes sure that no other process writes to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / LEDGER
        self.entries: list[Entry] = []
        self.key = b""
        self._chain = _START
        self._length = 0

    def open(self, party: str, peer: str) -> None:
        """Read the entries, or create the files; finish what a crash has interrupted.

        Raises:
            ConfigurationError: the ledger is damaged, belongs to others, or cannot be used.
        """
        if not self.path.exists() and not (self.folder / HEAD).exists():
            self.key = _create_key(self.folder / KEY)
            self.append(Opened(format=FORMAT, date=now(), party=party, peer=peer))
            return
        contents, self.key = read_ledger(self.folder)
        self.entries, self._chain = list(contents.entries), contents.chain
        self._length = contents.length
        _check_owner(self.path, self.entries, party, peer)
        if contents.torn:
            log.warning(
                "%s: an entry was interrupted before anything was announced; %d bytes are removed "
                "and the ledger records it",
                self.path,
                contents.torn,
            )
            self.append(Repair(date=now(), removed_bytes=contents.torn))
        elif contents.head_is_behind:
            log.warning("%s: the last entry was interrupted; it counts", self.path)
            self._write_head()

    def append(self, entry: Entry) -> None:
        """Add an entry; it is on disk when this returns.

        Raises:
            ConfigurationError: it cannot be written.
        """
        line, chain = _line(self.key, self._chain, entry)
        try:
            with open(self.path, "ab", buffering=0, opener=private_opener) as file:
                file.truncate(self._length)  # removes what an interrupted `append` left
                written = file.write(line)
                os.fsync(file.fileno())
                if written < len(line):
                    raise ConfigurationError(f"{self.path}: the disk is full")
            sync(self.folder)
        except OSError as error:
            raise ConfigurationError(f"{self.path}: cannot be written: {error.strerror}") from None
        self.entries.append(entry)
        self._chain, self._length = chain, self._length + len(line)
        self._write_head()

    def _write_head(self) -> None:
        head = {"entries": len(self.entries), "chain": self._chain}
        with FolderStorage(self.folder).writing(HEAD) as file:
            file.write(json.dumps(head).encode())


def read_ledger(folder: Path) -> tuple[LedgerContents, bytes]:
    """Read and verify a ledger without changing it; returns its entries and its key.

    Raises:
        ConfigurationError: it does not exist, is damaged or was edited; names the line.
    """
    path = folder / LEDGER
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}; {_ADVICE}") from None
    if not (folder / KEY).exists():
        raise ConfigurationError(f"{folder / KEY}: missing; {_ADVICE}")
    if len(key := private_file(folder / KEY, bytes)) != KEY_BYTES:
        raise ConfigurationError(f"{folder / KEY}: damaged; {_ADVICE}")
    length = data.rfind(b"\n") + 1
    entries: list[Entry] = []
    chains = [_START]
    for number, line in enumerate(data[:length].splitlines(keepends=True), start=1):
        entry = _parsed(line)
        if entry is None or _line(key, chains[-1], entry)[0] != line:
            raise ConfigurationError(f"{path}: line {number} was changed or damaged; {_ADVICE}")
        entries.append(entry)
        chains.append(_line(key, chains[-1], entry)[1])
    known, chain = _read_head(folder, entries)
    if known > len(entries) or chain != chains[known]:
        raise ConfigurationError(
            f"{path}: it has {len(entries)} entries, but {HEAD} says {known} or other ones: some "
            f"were removed or changed; {_ADVICE}"
        )
    if not entries or not isinstance(entries[0], Opened):
        raise ConfigurationError(f"{path}: the first entry is missing; {_ADVICE}")
    torn = len(data) - length
    return LedgerContents(tuple(entries), chains[-1], length, torn, known < len(entries)), key


def _create_key(path: Path) -> bytes:
    """Create the key of a new ledger; replaces one that an interrupted creation left unfinished."""
    if path.exists() and path.stat().st_size != KEY_BYTES:
        path.unlink()
    key = private_file(path, lambda: secrets.token_bytes(KEY_BYTES))
    sync(path)
    return key


def _read_head(folder: Path, entries: list[Entry]) -> tuple[int, str]:
    try:
        head = json.loads((folder / HEAD).read_bytes())
        return int(head["entries"]), str(head["chain"])
    except FileNotFoundError:
        if len(entries) <= 1:  # interrupted when it was created: nothing was charged yet
            return 0, _START
        raise ConfigurationError(f"{folder / HEAD}: missing; {_ADVICE}") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise ConfigurationError(f"{folder / HEAD}: cannot be read; {_ADVICE}") from None


def _check_owner(path: Path, entries: list[Entry], party: str, peer: str) -> None:
    first = entries[0]
    assert isinstance(first, Opened)
    if first.format != FORMAT:
        raise ConfigurationError(f"{path}: it was written by another release; {_ADVICE}")
    if (first.party, first.peer) != (party, peer):
        raise ConfigurationError(
            f"{path}: this is the ledger of {first.party} with {first.peer}, not of {party} with "
            f"{peer}; set another privacy.ledger"
        )


def _line(key: bytes, before: str, entry: Entry) -> tuple[bytes, str]:
    """Return the line of an entry, and its chain value."""
    values = entry.model_dump(mode="json")
    chain = hmac.digest(key, bytes.fromhex(before) + _canonical(values), "sha256").hex()
    return _canonical(values | {"chain": chain}) + b"\n", chain


def _parsed(line: bytes) -> Entry | None:
    try:
        values = json.loads(line)
        values.pop("chain")
        return ENTRY.validate_python(values)
    except (ValueError, ValidationError, KeyError, AttributeError, TypeError, RecursionError):
        return None


def _canonical(values: dict[str, object]) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
