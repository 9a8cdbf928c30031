"""What a run tells of itself: losses, figures per epoch, and where its time went.

Everything here is an aggregate over whole batches or the whole test table: nothing tells who is
shared, and a colleague may see it.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

Kind = Literal["wire", "wait"]


@dataclass(frozen=True, slots=True)
class EpochFigures:
    """An epoch's mean loss and, where there is a test table, its figures."""

    epoch: int
    loss: float
    auc: float | None = None
    ace: float | None = None
    log_loss: float | None = None


#: Test rows from which a bin is shown: a rate over fewer would tell of single people.
FEWEST = 5


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationPoints:
    """Per bin of test rows: mean prediction, rate observed, rows; three arrays of one length.

    Bins of fewer than `FEWEST` rows may hold anything, and are not shown.
    """

    predicted: npt.NDArray[np.float64]
    observed: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]


@dataclass(slots=True)
class History:
    """Grows with the run, and is saved with each checkpoint."""

    #: Mean loss of each step, synthetic labels included; the active party's only.
    losses: list[float] = field(default_factory=list)
    epochs: list[EpochFigures] = field(default_factory=list)
    #: Seconds: computing, handing messages over, waiting for the peer.
    compute: float = 0.0
    wire: float = 0.0
    wait: float = 0.0
    rows: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> History:
        return cls(**(facts | {"epochs": [EpochFigures(**epoch) for epoch in facts["epochs"]]}))


class StepTimer:
    """Splits the time of a run into computing, wire and waiting."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._last = time.monotonic()

    @contextmanager
    def measure(self, kind: Kind) -> Iterator[None]:
        """Time inside counts as `kind`; time since the last such block as computing."""
        started = time.monotonic()
        self._history.compute += started - self._last
        try:
            yield
        finally:
            self._last = time.monotonic()
            setattr(self._history, kind, getattr(self._history, kind) + self._last - started)

    def pause(self) -> None:
        """What happened since the last block is not training: count it as nothing."""
        self._last = time.monotonic()
