"""The calibrations of a run: of the gradients for the peer, and of own updates and predictions.

Without masking they are the same. With masking each half learns from different rows and so has its
own shift: the bottom model from rows with real features, the top model from rows with real labels.
Oblivious stand-ins fit the label, but only from the step on in which there are enough donors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from florist.common.synthetic.calibration import Calibration, Counts, mixture
from florist.common.synthetic.donor_pool import FEWEST, SHOWN_SHARE
from florist.common.synthetic.feature_strategies import FEATURE_STRATEGIES
from florist.common.synthetic.label_strategies import label_strategy

if TYPE_CHECKING:
    from torch import Tensor

    from florist.common.training.training_data import TrainingData


@dataclass(frozen=True, slots=True)
class Calibrations:
    """The calibrations by step."""

    #: Of the first steps, whose stand-ins do not fit the label: the gradients, and own updates.
    first: tuple[Calibration, Calibration]
    #: Of all later steps.
    later: tuple[Calibration, Calibration]
    #: The first of the later steps.
    matched_from: int

    @classmethod
    def of_run(cls, data: TrainingData, frequencies: tuple[float, ...]) -> Self:
        """Compute them from the public counts and the frequencies of own labels."""
        counts = Counts.of_active(data.train.sizes, data.train.rows)
        if data.agreement.stand_ins == "plain":
            plain = _pair(data, counts, frequencies, matched=False)
            return cls(plain, plain, 0)
        return cls(
            _pair(data, counts, frequencies, matched=False),
            _pair(data, counts, frequencies, matched=True),
            0
            if data.agreement.has_donors_from_the_start
            else first_matched_step(counts, frequencies, data.agreement.known_batch_size),
        )

    def gradients(self, step: int) -> Calibration:
        """Return the calibration of the gradients for the peer."""
        return self._at(step)[0]

    def own(self, step: int) -> Calibration:
        """Return the calibration of own updates."""
        return self._at(step)[1]

    def own_given(self, step: int, prior: Tensor, independent: Tensor | None) -> Calibration:
        """Return the calibration of own updates if the active party has features.

        Args:
            step: counted from 0 over all epochs.
            prior: D(y|x_a) of each row, from the own features alone.
            independent: D(y|x_a, x_p) if both features were independent given the label, which is
                what matched stand-ins teach; None if it is unknown.
        """
        if step < self.matched_from:
            return self.first[1].given(prior)
        if independent is None:
            return self.later[1].given(prior)
        return self.first[1].given(independent)

    @property
    def final(self) -> Calibration:
        """The calibration of predictions."""
        return self.later[1]

    def _at(self, step: int) -> tuple[Calibration, Calibration]:
        return self.first if step < self.matched_from else self.later


def first_matched_step(counts: Counts, frequencies: tuple[float, ...], batch_size: int) -> int:
    """Return the step from which on the peer is expected to have enough donors of every class.

    Before step s, gradients have shown the labels of s batches. In each, the peer has its share of
    the UIDs, and their labels have the frequencies of our own ones. It uses donors once a class has
    enough of them, and all together are as many as the stand-ins of a batch.
    """
    share = counts.passive / counts.union
    rarest = min(frequency for frequency in frequencies if frequency > 0)
    enough = FEWEST / (batch_size * share * rarest)
    return max(1, math.ceil(enough), math.ceil((1 - share) / share))


def _pair(
    data: TrainingData, counts: Counts, frequencies: tuple[float, ...], *, matched: bool
) -> tuple[Calibration, Calibration]:
    agreement = data.agreement
    expectation = label_strategy(agreement.labels.strategy, agreement.classes).expectation
    distinguishable = not FEATURE_STRATEGIES[agreement.features.strategy].looks_real
    # The bottom model does not learn from stand-ins that are offers.
    is_masked_at_peer = agreement.masking or agreement.stand_ins == "oblivious"

    def shift(*, real_labels_only: bool, real_features_only: bool) -> Calibration:
        found = mixture(
            counts,
            frequencies,
            expectation,
            agreement.calibration,
            real_labels_only=real_labels_only,
            real_features_only=real_features_only,
            matched=matched,
            shown_share=SHOWN_SHARE,
        )
        return Calibration(agreement.calibration, found, agreement.loss_weights)

    return (
        shift(real_labels_only=False, real_features_only=is_masked_at_peer or distinguishable),
        shift(real_labels_only=agreement.masking, real_features_only=distinguishable),
    )
