"""Windows of a pass: consecutive steps of an epoch, within which the model changes little."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from florist.common.audit.view import StepView

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from florist.common.audit.view import View

S = TypeVar("S", bound=StepView)

#: The most windows of a pass, and the fewest rows of each on average.
WINDOWS, LEAST_ROWS = 10, 400


def pass_windows(
    view: View[S], windows: int = WINDOWS, least_rows: int = LEAST_ROWS
) -> Iterator[list[S]]:
    """Yield the steps of each window of each epoch, in order.

    An epoch has `windows` windows with about the same number of rows, or fewer if they would have
    fewer than `least_rows` rows on average.
    """
    for steps in view.epochs():
        yield from windows_of(steps, windows, least_rows)


def windows_of(
    steps: Sequence[S], windows: int = WINDOWS, least_rows: int = LEAST_ROWS
) -> Iterator[list[S]]:
    """Yield the steps of each window of one epoch, whose steps are given."""
    ends = np.cumsum([len(step.ranks) for step in steps])
    rows = int(ends[-1]) if len(ends) else 0
    count = max(1, min(windows, rows // least_rows))
    window_of = (ends - 1) * count // max(rows, 1)
    for number in range(count):
        chosen = [step for step, own in zip(steps, window_of, strict=True) if own == number]
        if chosen:
            yield chosen
