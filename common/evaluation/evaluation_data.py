"""The data that a party brings to an evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from florist.common.evaluation.evaluation_journal import EvaluationJournal

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from florist.common.data.features import Features
    from florist.common.session.union_sizes import UnionSizes
    from florist.common.settings.agreement import EvaluationAgreement
    from florist.common.synthetic.membership import Membership
    from florist.common.synthetic.secret_draws import SecretDraws

#: The name of the channel on which an evaluation runs.
EVALUATION = "evaluation"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EvaluationData:
    """A party's evaluation table, its membership in the union, and its secret draws."""

    agreement: EvaluationAgreement
    membership: Membership
    sizes: UnionSizes
    #: The rows of the table that are not in the union.
    kept_out: npt.NDArray[np.int64]
    #: None for an active party without features of its own.
    features: Features | None
    #: The class of each row; active party only.
    labels: npt.NDArray[np.int64] | None
    draws: SecretDraws
    #: Digests of what was answered, so that nothing else is answered again.
    journal: EvaluationJournal = field(default_factory=lambda: EvaluationJournal(None))
