"""How precise a metric can be for tables of a size, before anything is computed.

For a small table the figures of a run say little. These are the widths to expect, so that nobody
spends privacy budget to find out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from florist.common.evaluation.private_estimate import WIDEST, WIDTH
from florist.common.evaluation.stand_in_count import SHARE

#: The AUC for which widths are stated; they change little with it.
TYPICAL_AUC = 0.7


def auc_standard_error(auc: float, positives: float, negatives: float) -> float:
    """Return the standard error of an AUC (Hanley and McNeil, 1982).

    Args:
        auc: the true AUC.
        positives: the number of rows of class 1, above 0.
        negatives: the number of rows of class 0, above 0.
    """
    both_positive, both_negative = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    variance = (
        auc * (1 - auc)
        + (positives - 1) * (both_positive - auc**2)
        + (negatives - 1) * (both_negative - auc**2)
    )
    return math.sqrt(max(variance, 0.0) / (positives * negatives))


@dataclass(frozen=True, slots=True)
class ExpectedPrecision:
    """The half-width of the 95% interval of an AUC of `TYPICAL_AUC`, and what it is based on."""

    half_width: float
    #: How many rows are scored.
    rows: int
    #: The fraction of them with real features.
    share: float = 1.0

    @property
    def shown(self) -> str:
        """A phrase that states it."""
        width = f"±{self.half_width:.2g}" if self.half_width < 0.5 else "±0.5 or more"
        return f"an AUC of {TYPICAL_AUC:g} would be known to {width} (95% interval)"

    @property
    def warning(self) -> str:
        """What to do if the interval is too wide to be of use; empty if it is not."""
        if self.half_width <= WIDEST:
            return ""
        if math.isinf(self.half_width):
            return "too few rows of a class for any estimate; use a larger table"
        times = (self.half_width / WIDEST) ** 2
        return f"too wide to be of use: ±{WIDEST:g} needs a table {times:.2g} times as large"


def expected_for_test_table(rows: int, positive_rate: float) -> ExpectedPrecision:
    """Return the precision of the AUC of a test table, whose people both parties have."""
    return ExpectedPrecision(_half_width(rows, positive_rate, 1.0), rows)


def expected_for_evaluation(
    rows: int, positive_rate: float, *, padding: int, once: bool
) -> ExpectedPrecision:
    """Return the precision of the private estimate of the AUC.

    It assumes that the peer's table is as large as ours and that half of the people are shared.

    Args:
        rows: of our evaluation table.
        positive_rate: the fraction of class 1, or of the class that is rarest.
        padding: the most that a party pads its set by.
        once: whether stand-ins are used once: then a third of the passive party's rows are kept
            out of the union, and at most as many people are scored.
    """
    if not once:
        return ExpectedPrecision(_half_width(rows, positive_rate, 0.5), rows, 0.5)
    scored = max(rows // SHARE - padding, 0)
    share = 0.5 * (1 - 1 / SHARE)
    return ExpectedPrecision(_half_width(scored, positive_rate, share), scored, share)


def _half_width(rows: int, positive_rate: float, share: float) -> float:
    """Return the half-width if a fraction `share` of the rows has real features.

    The predictions of the others are independent of their labels, so that the plain AUC is nearer
    to 1/2 by this factor; the estimate corrects for it, and its error grows by the same factor.
    """
    positives, negatives = rows * positive_rate, rows * (1 - positive_rate)
    if min(positives, negatives) < 2:
        return math.inf
    plain = 0.5 + share * (TYPICAL_AUC - 0.5)
    return WIDTH * auc_standard_error(plain, positives, negatives) / share
