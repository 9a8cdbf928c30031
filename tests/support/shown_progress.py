"""Progress that records what an operator would see."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.core.progress import StepProgress


class Shown:
    """Records each progress report as a line."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @contextmanager
    def step(self, title: str) -> Iterator[StepProgress]:
        self.lines.append(f"{title} begins")
        yield self
        self.lines.append(f"{title} ends")

    def expect(self, total: int) -> None:
        self.lines.append(f"of {total}")

    def advance(self, done: int) -> None:
        self.lines.append(f"+{done}")
