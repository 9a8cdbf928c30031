"""What the active party's features add to the logit, against the passive party's own features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from florist.common.audit.attacks.share_fit import share_fit
from florist.common.audit.statistics import evaluate
from tests.unit.audit.views import BATCH, half_real, own_features, passive

if TYPE_CHECKING:
    from florist.common.audit.view import PassiveView

Array = npt.NDArray[Any]

SIZE, OWN = 3000, 2400


def planted(contribution: float, *, related: bool = True) -> tuple[PassiveView, Array]:
    """Return a view and the truth about own UIDs.

    The peer's share of the logit is `contribution` times a number that depends on the own features,
    if it is related and real.
    """
    random = np.random.default_rng(5)
    categories = random.integers(0, 4, (SIZE, 2))
    is_real = half_real(SIZE)
    depends = np.array([-2.0, -0.5, 0.5, 2.0])[categories[:, 0]]
    fitting = depends if related else random.permutation(depends)
    peers = np.where(is_real, fitting, random.permutation(depends)) + random.normal(size=SIZE)
    sent = random.normal(size=SIZE)
    predicted = expit(sent + contribution * peers)
    labels = (random.random(SIZE) < predicted).astype(float)
    view = passive(
        ((predicted - labels) / BATCH)[None, :, None],
        sent[None, :, None],
        np.arange(OWN),
        own_features(np.zeros((OWN, 0)), categories[:OWN]),
        1,
    )
    return view, is_real[:OWN]


def test_a_contribution_that_fits_is_found() -> None:
    view, is_real = planted(0.5)
    assert evaluate("share-fit", share_fit(view), is_real).auc.low > 0.6


def test_a_contribution_that_is_unrelated_reveals_nothing() -> None:
    view, is_real = planted(0.5, related=False)
    result = evaluate("share-fit", share_fit(view), is_real)
    assert result.auc.low < 0.5 < result.auc.high


def test_without_a_contribution_there_is_nothing_to_compare() -> None:
    """Gradients of the own share alone: the prediction is a function of what was sent."""
    view, _ = planted(0.0)
    assert np.isnan(share_fit(view)).all()
