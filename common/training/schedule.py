"""Which UIDs form each mini-batch: both parties know the schedule, and neither can choose it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from florist.common.session.nonces import NONCE_BYTES

_SEED = b"FLORIST schedule seed 1\0"


def joint_seed(active_nonce: bytes, passive_nonce: bytes, union_sha256: bytes) -> bytes:
    """Return the seed of the schedule, 32 bytes, which is random if at least one nonce is.

    All arguments have a fixed length, so different triples never give the same hash input.

    Raises:
        ValueError: an argument does not have 32 bytes.
    """
    parts = (active_nonce, passive_nonce, union_sha256)
    if any(len(part) != NONCE_BYTES for part in parts):
        raise ValueError(f"nonces and the digest of the union must have {NONCE_BYTES} bytes each")
    return hashlib.sha256(_SEED + b"".join(parts)).digest()


@dataclass(frozen=True, slots=True)
class Schedule:
    """Every UID exactly once per epoch, in an order determined by the seed and the epoch.

    A batch can be computed without the earlier ones, so a run can resume at any step. The order of
    one epoch is held in memory: 4 bytes per UID (8 above 2^32 UIDs), that is 400 MB for 10^8.
    """

    seed: bytes = field(repr=False)
    union_size: int
    batch_size: int
    epochs: int
    _orders: dict[int, npt.NDArray[np.integer]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if len(self.seed) != NONCE_BYTES:
            raise ValueError(f"a seed has {NONCE_BYTES} bytes, not {len(self.seed)}")
        if self.union_size < 1 or self.batch_size < 1:
            raise ValueError(
                f"{self.union_size} UIDs in batches of {self.batch_size}: both must be at least 1"
            )
        if not 0 <= self.epochs < 2**32:
            raise ValueError(f"the number of epochs {self.epochs} is not in 0 … 2^32 - 1")

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps in an epoch; its last batch may be smaller."""
        return -(-self.union_size // self.batch_size)

    @property
    def steps(self) -> int:
        """The number of steps in all epochs."""
        return self.steps_per_epoch * self.epochs

    def batch(self, epoch: int, step: int) -> npt.NDArray[np.int64]:
        """Return the ranks in `U` of one mini-batch.

        Raises:
            IndexError: there is no such epoch, or no such step in it; both count from 0.
        """
        if not (0 <= epoch < self.epochs and 0 <= step < self.steps_per_epoch):
            raise IndexError(
                f"epoch {epoch}, step {step}: there are {self.epochs} epochs of "
                f"{self.steps_per_epoch} steps"
            )
        start = step * self.batch_size
        return self._order(epoch)[start : start + self.batch_size].astype(np.int64)

    def _order(self, epoch: int) -> npt.NDArray[np.integer]:
        order = self._orders.get(epoch)
        if order is None:
            self._orders.clear()  # first, so that there are never two in memory
            order = np.arange(
                self.union_size, dtype=np.uint32 if self.union_size <= 2**32 else np.int64
            )
            # The legacy generator's stream is the same in every version of numpy.
            words = [*np.frombuffer(self.seed, dtype=">u4").tolist(), epoch]
            np.random.RandomState(words).shuffle(order)
            self._orders[epoch] = order
        return order
