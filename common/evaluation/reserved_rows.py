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

from florist.common.core.errors import ProtocolViolation
from florist.common.synthetic.stand_ins import StandIns

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.evaluation.evaluation_data import EvaluationData
    from florist.common.synthetic.secret_draws import SecretDraws

    Rows = npt.NDArray[np.int64]


def random_rows(rows: int, count: int, draws: SecretDraws) -> Rows:
    """Return `count` different rows of a table, in ascending order."""
    return np.sort(np.argsort(draws.uniforms("evaluation rows", rows))[:count])


def evaluation_stand_ins(data: EvaluationData) -> StandIns:
    """Return the rule by which the passive party chooses a row for each UID of the union.

    Raises:
        ProtocolViolation: the peer has more UIDs in the union than it announced.
    """
    assert data.features is not None
    if data.agreement.stand_ins == "repeated":
        return StandIns.sampled(data.membership, len(data.features), data.draws)
    missing = int((data.membership.row_of_rank < 0).sum())
    if missing > len(data.kept_out):  # our own padding always fits: see `rows_for_union`
        raise ProtocolViolation(
            f"the peer put {data.sizes.peer} UIDs into the union, which is more than was agreed"
        )
    return StandIns.used_once(data.membership, data.kept_out, data.draws)
