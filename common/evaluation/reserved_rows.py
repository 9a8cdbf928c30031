"""Which rows the passive party reserves as stand-ins for an evaluation, and how it uses them.

All embeddings of an evaluation come from the same weights, so a copied row has a near-identical
twin, and the noise of training hides little. With `stand_ins: once` there are no twins. The passive
party keeps random rows of its table out of the union and uses each of them for at most one UID that
it lacks. What it sends for those UIDs is then a random sample of its rows, like what it sends for
the UIDs that it has. This requires as many reserved rows as the active party has UIDs in the union,
so the active party may have to evaluate on a sample too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ConfigurationError, ProtocolViolation
from florist.common.synthetic.stand_ins import StandIns

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.evaluation.evaluation_data import EvaluationData
    from florist.common.synthetic.secret_draws import SecretDraws

    Rows = npt.NDArray[np.int64]

#: One in three rows is reserved. With k of N rows reserved, the standard errors are proportional to
#: 1/((1 - k/N)·√k), which is smallest at k = N/3.
SHARE = 3


def most_stand_ins(rows: int, dummies: int) -> int:
    """Return how many UIDs a table of `rows` rows can stand in for, if each row is used once.

    A party that hides the size of its set with dummies must not reveal it here, so with dummies the
    result is rounded down to a power of two.

    Raises:
        ConfigurationError: the table is too small to stand in for anyone.
    """
    most = rows // SHARE
    if not most:
        raise ConfigurationError(
            f"data.evaluation: {rows} rows are too few for an evaluation; add rows"
        )
    return most if not dummies else 1 << (most.bit_length() - 1)


def random_rows(rows: int, count: int, draws: SecretDraws) -> Rows:
    """Return `count` different rows of a table, in ascending order."""
    return np.sort(np.argsort(draws.uniforms("evaluation rows", rows))[:count])


def evaluation_stand_ins(data: EvaluationData) -> StandIns:
    """Return the rule by which the passive party chooses a row for each UID of the union.

    Raises:
        ProtocolViolation: the peer has more UIDs in the union than it announced.
        ConfigurationError: own dummies use up the reserved rows.
    """
    assert data.features is not None
    if data.agreement.stand_ins == "repeated":
        return StandIns.sampled(data.membership, len(data.features), data.draws)
    if data.sizes.peer > len(data.kept_out):
        raise ProtocolViolation(
            f"the peer put {data.sizes.peer} UIDs into the union, but at most "
            f"{len(data.kept_out)} were agreed"
        )
    missing = int((data.membership.row_of_rank < 0).sum())
    if missing > len(data.kept_out):
        raise ConfigurationError(
            f"alignment.dummies: {missing} UIDs of the union, our dummies included, need a "
            f"stand-in, but only {len(data.kept_out)} rows are reserved; use fewer dummies, or "
            "agreement.evaluation.stand_ins: repeated"
        )
    return StandIns.used_once(data.membership, data.kept_out, data.draws)
