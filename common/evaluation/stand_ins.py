"""Whose features the passive party sends for people whom it lacks, when a model is evaluated.

A copy of a row is a twin of it: unlike in training, all embeddings come from the same weights, and
the usual noise hides little. With `once` there are no twins. The passive party keeps random rows of
its table out of the union and uses each of them for one person, so that what it sends for people
whom it lacks is a random sample of its people, as is what it sends for people whom it has. This
takes as many such rows as the active party has people in the union: these may be but a sample too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ConfigurationError, ProtocolViolation
from florist.common.synthetic.features import FeaSampling

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.evaluation.parts import EvaluationParts
    from florist.common.synthetic.secret_draws import SecretDraws

    Rows = npt.NDArray[np.int64]

#: A third of the table: with k of N rows kept out, errors are as 1/((1 - k/N)·√k).
SHARE = 3


def most_stand_ins(rows: int, dummies: int) -> int:
    """How many people a table of so many rows can stand in for, if each row does so once.

    Who hides the size of its set by dummies does not give it away here: then it is a power of two.

    Raises:
        ConfigurationError: none.
    """
    most = rows // SHARE
    if not most:
        raise ConfigurationError(
            f"data.evaluation: {rows} rows are too few to be evaluated with; add some"
        )
    return most if not dummies else 1 << (most.bit_length() - 1)


def random_rows(rows: int, count: int, draws: SecretDraws) -> Rows:
    """`count` different rows of a table, in ascending order."""
    return np.sort(np.argsort(draws.uniforms("evaluation rows", rows))[:count])


def row_of_each(parts: EvaluationParts) -> Rows:
    """The row of the passive party's table that stands for each UID of the union.

    Raises:
        ProtocolViolation: the peer has more people in the union than it may have.
    """
    assert parts.features is not None
    rows = parts.membership.row_of_rank.copy()
    missing = np.flatnonzero(rows < 0)
    if parts.agreement.stand_ins == "repeated":
        rows[missing] = FeaSampling(parts.draws, len(parts.features)).donors(missing, 0)
        return rows
    if parts.sizes.peer > len(parts.kept_out):
        raise ProtocolViolation(
            f"the peer put {parts.sizes.peer} people into the union, of {len(parts.kept_out)} that "
            "it may"
        )
    order = np.argsort(parts.draws.uniforms("stand-ins", len(parts.kept_out)))
    rows[missing] = parts.kept_out[order[: len(missing)]]
    return rows
