"""What a party brings to an evaluation: its people, their places in the union, and its draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from florist.common.data.features import Features
    from florist.common.psu.alignment import Sizes
    from florist.common.settings.agreement import EvaluationAgreement
    from florist.common.synthetic.membership import Membership
    from florist.common.synthetic.secret_draws import SecretDraws

#: The channel that carries an evaluation from its opening to its summary.
EVALUATION = "evaluation"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EvaluationParts:
    """The evaluation table by row, and the row of each UID of the union."""

    agreement: EvaluationAgreement
    membership: Membership
    sizes: Sizes
    #: Rows of the table that are not in the union.
    kept_out: npt.NDArray[np.int64]
    #: None for an active party without features of its own.
    features: Features | None
    #: Classes, active party only.
    labels: npt.NDArray[np.int64] | None
    draws: SecretDraws
