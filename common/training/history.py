"""The record of a run: losses, metrics per epoch, and how its time was spent.

Everything here is an aggregate over whole batches or the whole test table. Nothing reveals who is
shared, so the record may be shown to others in the organisation.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal

from pydantic import TypeAdapter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    import numpy.typing as npt

#: How time outside computing is spent: sending messages, or waiting for the peer.
Activity = Literal["wire", "wait"]


@dataclass(frozen=True, slots=True)
class EpochFigures:
    """An epoch's mean training loss and, if there is a test table, the metrics on it."""

    epoch: int
    loss: float
    auc: float | None = None
    ace: float | None = None
    log_loss: float | None = None


#: Bins with fewer test rows are not shown: their rates would reveal something about individuals.
MIN_BIN_ROWS = 5


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationPoints:
    """Mean prediction, observed rate and number of rows, per bin of test rows.

    Bins of fewer than `MIN_BIN_ROWS` rows may contain anything and must not be shown.
    """

    predicted: npt.NDArray[np.float64]
    observed: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]


@dataclass(slots=True)
class History:
    """The record of a run so far; it is saved with each checkpoint."""

    #: Mean loss of each step, synthetic labels included; at the active party only.
    losses: list[float] = field(default_factory=list)
    epochs: list[EpochFigures] = field(default_factory=list)
    #: Seconds spent computing, sending messages, and waiting for the peer.
    compute: float = 0.0
    wire: float = 0.0
    wait: float = 0.0
    #: Rows processed, over all steps.
    rows: int = 0

    def to_json(self) -> dict[str, object]:
        """Return the record as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> History:
        """Read what `to_json` returned."""
        return _HISTORY.validate_python(values)


_HISTORY = TypeAdapter(History)


class StepTimer:
    """Splits the time of a run into computing, sending and waiting."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._last = time.monotonic()

    @contextmanager
    def measure(self, activity: Activity) -> Iterator[None]:
        """Count the time inside as `activity`, and the time since the last block as computing."""
        started = time.monotonic()
        self._history.compute += started - self._last
        try:
            yield
        finally:
            self._last = time.monotonic()
            spent = self._last - started
            if activity == "wire":
                self._history.wire += spent
            else:
                self._history.wait += spent

    def pause(self) -> None:
        """Leave out the time since the last block: it was not spent on training."""
        self._last = time.monotonic()
