"""Labels as small integers, whose sums by category the aggregate consists of.

The code of class y has one number for each class k except class 0: d·[y = k] - m_k, with a centre
m_k / d near the frequency of the class. A person whom the active party lacks has the code 0, so the
centre determines how much it matters that the passive party does not know how many people with a
category are shared. With two classes of similar frequency the codes are 1 and -1: a centre of one
half halves the largest code, and with it the noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

#: The denominator of centres other than one half.
_DENOMINATOR = 64
#: With two classes the centre is one half if both frequencies are at least this.
_BALANCED = 0.25


@dataclass(frozen=True, slots=True)
class LabelCodes:
    """The codes of all classes."""

    #: The denominator d of the centres.
    scale: int
    #: The numerator m_k of each class except class 0.
    centres: tuple[int, ...]

    @classmethod
    def for_counts(cls, counts: Sequence[int]) -> Self:
        """Choose the centres for (noised) numbers of people by class."""
        rates = class_rates(counts)
        if len(rates) == 2 and min(rates) >= _BALANCED:
            return cls(2, (1,))
        return cls(
            _DENOMINATOR,
            tuple(min(max(round(rate * _DENOMINATOR), 1), _DENOMINATOR - 1) for rate in rates[1:]),
        )

    @property
    def outputs(self) -> int:
        """The number of sums per category: one for each class except class 0."""
        return len(self.centres)

    def table(self) -> npt.NDArray[np.int64]:
        """Return the code of each class: (classes, outputs)."""
        hits = np.eye(self.outputs + 1, dtype=np.int64)[:, 1:]
        return self.scale * hits - np.array(self.centres, dtype=np.int64)

    @property
    def squared_norm(self) -> int:
        """The largest squared length of a code."""
        return int((self.table() ** 2).sum(axis=1).max())

    @property
    def largest(self) -> int:
        """The largest absolute value of any number of a code."""
        return int(np.abs(self.table()).max())


def class_rates(counts: Sequence[int]) -> tuple[float, ...]:
    """Return class frequencies from noised counts, none of them 0 or less."""
    raised = [max(count, 1) for count in counts]
    return tuple(count / sum(raised) for count in raised)
