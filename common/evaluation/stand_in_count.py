"""How many people an evaluation table can provide stand-ins for."""

from __future__ import annotations

from florist.common.core.errors import ConfigurationError

#: One in three rows is reserved. With k of N rows reserved, the standard errors are proportional to
#: 1/((1 - k/N)·√k), which is smallest at k = N/3.
SHARE = 3


def most_stand_ins(rows: int, padding: int, *, rounded: bool = False) -> int:
    """Return how many UIDs of the peer a table can stand in for, if each row is used once.

    Args:
        rows: the rows of the table.
        padding: how many of the reserved rows are needed for our own padding.
        rounded: round down to a power of two. A party that hides the size of its set with dummies
            must not reveal it here.

    Raises:
        ConfigurationError: the table is too small to stand in for anyone.
    """
    most = rows // SHARE - padding
    if most <= 0:
        raise ConfigurationError(
            f"data.evaluation: {rows} rows are too few for an evaluation: a third of them stand in "
            f"for UIDs that we lack, up to {padding} of which are our own padding; add rows, or "
            "agree on less padding (agreement.union.privacy, agreement.union.planted_pairs) or on "
            "agreement.evaluation.stand_ins: repeated"
        )
    return 1 << (most.bit_length() - 1) if rounded else most
