"""Storage in memory, which nothing survives."""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO


class MemoryStorage:
    """A `Storage` in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        with io.BytesIO() as file:
            yield file
            self.files[name] = file.getvalue()

    @contextmanager
    def reading(self, name: str) -> Iterator[BinaryIO]:
        with io.BytesIO(self.files[name]) as file:
            yield file

    def append(self, name: str, data: bytes) -> None:
        self.files[name] = self.files.get(name, b"") + data

    def size(self, name: str) -> int | None:
        return len(self.files[name]) if name in self.files else None

    @contextmanager
    def scratch(self) -> Iterator[BinaryIO]:
        with io.BytesIO() as file:
            yield file

    def clear(self) -> None:
        self.files.clear()

    def require_space(self, size: int) -> None:
        """Do nothing: memory is not limited here."""
