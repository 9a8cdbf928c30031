"""What the parties see of each other in a part of a training step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from florist.common.transport.messages import Data


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SeenRows:
    """The rows of a batch from `start` on, encoded as on the wire, but not encrypted."""

    #: The training step, counted from 0 over all epochs.
    step: int
    start: int
    #: The embedding of each row that the active party got.
    embeddings: Data
    #: The gradient of each row that the passive party got.
    gradients: Data
    #: The rank in the union of the UID whose features each row has: its own, or that of the donor.
    #: None at the active party, which does not know.
    origins: npt.NDArray[np.int64] | None = None
