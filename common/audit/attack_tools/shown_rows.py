"""What the gradients of a whole run show about each of the attacker's own UIDs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.attack_tools.shown_predictions import shown_predictions

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.audit.view import Floats, PassiveView

    Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ShownRows:
    """One row for each UID of a view, for two classes."""

    #: Whether any label was shown. The other fields mean nothing where none was.
    known: Flags
    #: Whether the label is the rarer one; the more frequent of several.
    labels: Flags
    #: The model's probability of the rarer label, on average.
    probabilities: Floats
    #: Whether different labels were shown, which cannot be real.
    changed: Flags

    @classmethod
    def of(cls, view: PassiveView) -> ShownRows:
        """Collect the labels and predictions of all epochs."""
        windows = list(shown_predictions(view, view.is_own()))
        labels = view.means((window.ranks, window.labels.astype(np.float64)) for window in windows)
        predictions = view.means((window.ranks, window.probabilities) for window in windows)
        known = np.isfinite(labels)
        return cls(
            known,
            labels > 0.5,
            np.where(known, predictions, 0.5),
            known & (labels > 0) & (labels < 1),
        )
