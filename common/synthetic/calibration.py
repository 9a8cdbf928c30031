"""Logits calibration: appendices E, F and G of the paper, with exact counts.

Synthetic data shifts what the model learns from the true D to D'(y|x) = a·D(y|x) + b_y. With
`train` (the paper's -tr) the model's output is D and the loss uses D'. With `test` (-te) the output
is D' and predictions are converted back to D.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch.nn.functional import log_softmax, logsigmoid

from florist.common.core.errors import ConfigurationError
from florist.common.synthetic.label_strategies import constant_label

if TYPE_CHECKING:
    from torch import Tensor

    from florist.common.session.union_sizes import UnionSizes
    from florist.common.settings.agreement import CalibrationTime
    from florist.common.synthetic.label_strategies import Expectation


@dataclass(frozen=True, slots=True)
class Mixture:
    """The shift D' = a·D + b, where `b` has one entry per class, so that a + Σ b = 1.

    With two classes D and D' are given as P(y=1), shape (rows,), else as (rows, classes).
    """

    a: float
    b: tuple[float, ...]

    def __post_init__(self) -> None:
        if not (0 < self.a <= 1 and len(self.b) >= 2 and all(b >= 0 for b in self.b)):
            raise ValueError(f"not a mixture: a = {self.a}, b = {self.b}")
        if not math.isclose(self.a + sum(self.b), 1, abs_tol=1e-9):
            raise ValueError(f"a = {self.a} and b = {self.b} do not add up to 1")

    @classmethod
    def identity(cls, classes: int = 2) -> Self:
        """Return the mixture that changes nothing."""
        return cls(1.0, (0.0,) * classes)

    def offsets(self, like: Tensor) -> Tensor:
        """Return `b` by class, the same for every row, in the precision of `like`."""
        return like.new_tensor(self.b)

    def truth(self, observed: Tensor) -> Tensor:
        """Return D given D', clipped to [0, 1]; several classes are normalised to sum to 1."""
        return _truth(observed, self)


@dataclass(frozen=True, slots=True, eq=False)
class RowMixture:
    """The shift D'(y|x) = a·D(y|x) + (1 - a)·prior(y|x): a mixture with a `b` for each row.

    This is for an active party with features of its own. Where the peer's features are synthetic,
    the label still depends on the own features, as described by the prior.
    """

    a: float
    #: P(y=1), (rows,), with two classes, else (rows, classes), without gradient.
    prior: Tensor

    def offsets(self, like: Tensor) -> Tensor:
        """Return `b` by row and class, (rows, classes), in the precision of `like`."""
        prior = self.prior.to(like.dtype)
        by_class = torch.stack((1 - prior, prior), dim=1) if prior.ndim == 1 else prior
        return (1 - self.a) * by_class

    def truth(self, observed: Tensor) -> Tensor:
        """Return D given D', clipped to [0, 1]; several classes are normalised to sum to 1."""
        return _truth(observed, self)


def _truth(observed: Tensor, mixture: Mixture | RowMixture) -> Tensor:
    offsets = _of_output(mixture.offsets(observed), observed)
    clipped = ((observed - offsets) / mixture.a).clamp(0, 1)
    return clipped if clipped.ndim == 1 else clipped / clipped.sum(1, keepdim=True)


def _of_output(offsets: Tensor, output: Tensor) -> Tensor:
    """Return the offsets in the shape of a model's output: those of y=1, or of all classes."""
    return offsets[..., 1] if output.ndim == 1 else offsets


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of UIDs of each kind; padding is counted only in the union.

    `active` and `passive` are the UIDs with a real label and with real features, `shared` those
    with both. The last two are estimates.
    """

    union: int
    active: int
    passive: int
    shared: int

    def __post_init__(self) -> None:
        if not (
            0 <= self.shared <= min(self.active, self.passive)
            and self.active + self.passive - self.shared <= self.union
        ):
            raise ValueError(f"impossible counts: {self}")

    @classmethod
    def of_active(cls, sizes: UnionSizes, rows: int) -> Self:
        """Compute the counts from the public estimates and the active party's number of rows.

        Dummies that the peer has configured count as its people. That matters only with
        `real_features_only`.
        """
        passive = max(sizes.peer_people_estimate, 0)
        shared = min(max(sizes.shared_estimate, 0), rows, passive)
        return cls(sizes.union, rows, passive, shared)


def mixture(  # noqa: PLR0913 - keyword-only, but for four
    counts: Counts,
    frequencies: tuple[float, ...],
    expectation: Expectation,
    when: CalibrationTime,
    *,
    real_labels_only: bool = False,
    real_features_only: bool = False,
    matched: bool = False,
    shown_share: float = 1.0,
) -> Mixture:
    """Return the shift that a model learns from UIDs of three kinds that it cannot distinguish.

    These are shared UIDs with their true label; UIDs with a real label but someone else's features,
    whose label is independent of the features, unless they are matched by it; and UIDs with a
    synthetic label.

    Args:
        counts: the number of UIDs of each kind.
        frequencies: class frequencies among the active party's own labels, the paper's D(y).
        expectation: the mean of the strategy's labels.
        when: decides what `label-random-pred` draws from: D with `train`, otherwise D'.
        real_labels_only: whether rows without a real label are left out (the top model's masking).
        real_features_only: whether rows without real features are left out, by the bottom model's
            masking or because the model can distinguish them (`looks_real` is false).
        matched: whether stand-ins are rows with the same label (oblivious stand-ins). The donor's
            label is true with the share of the passive party's UIDs that are shared, otherwise
            synthetic. Not for strategies with a constant label.
        shown_share: the share of donors whose class is the label that was shown; that of the others
            is drawn from the model's prediction.

    Raises:
        ConfigurationError: the parties share nobody.
    """
    if counts.shared == 0:
        raise ConfigurationError(
            "the parties have nobody in common, so no row has both real features and a real label, "
            "and there is nothing to learn"
        )
    true: float = counts.shared
    unrelated: float = 0 if real_features_only else counts.active - counts.shared
    unlabelled = (counts.passive - true) if real_features_only else (counts.union - counts.active)
    if real_labels_only:
        unlabelled = 0
    if matched:
        # Features are drawn given the label, from rows that have it. So their joint distribution
        # is that of these rows: true ones, and those with a label of the strategy.
        if expectation != "frequencies":
            true, unrelated = true + unrelated, 0
        else:
            shown = unrelated * shown_share
            fitting = shown * counts.shared / counts.passive
            # The others have labels of the model: D with `train`; otherwise D', which they do not
            # change.
            predicted = unrelated - shown if when == "train" else 0.0
            true, unrelated = true + fitting + predicted, shown - fitting
    total = true + unrelated + unlabelled
    offsets = [unrelated * frequency for frequency in frequencies]
    match expectation:
        case "majority" | "minority":
            offsets[constant_label(expectation, frequencies)] += unlabelled
        case "frequencies":
            offsets = [(unrelated + unlabelled) * frequency for frequency in frequencies]
        case "prediction" if when == "train":
            true += unlabelled  # drawn from D, like real labels
        case "prediction":
            total -= unlabelled  # drawn from D' itself, which they do not change
    return Mixture(true / total, tuple(offset / total for offset in offsets))


@dataclass(frozen=True, slots=True)
class Calibration:
    """The shift and when it is corrected.

    Logits are (rows,) with two classes, else (rows, classes).
    """

    when: CalibrationTime
    mixture: Mixture | RowMixture
    #: How much rows of class 0 and 1 count in the loss; None if all count alike. The loss corrects
    #: for it, so that predictions do not depend on it.
    weights: tuple[float, float] | None = None

    def given(self, prior: Tensor) -> Calibration:
        """Return the calibration with a prior for each row instead of class frequencies."""
        return Calibration(self.when, RowMixture(self.mixture.a, prior), self.weights)

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the cross entropy of each row; `targets` are those of `label_strategies`."""
        identity = Mixture.identity(2 if logits.ndim == 1 else logits.shape[1])
        shift = self.mixture if self.when == "train" else identity
        return cross_entropies(logits, targets, shift, self.weights)

    def loss(self, logits: Tensor, targets: Tensor, divisor: float = 1.0) -> Tensor:
        """Return the sum of `losses` divided by `divisor`, such as the size of the whole batch."""
        return self.losses(logits, targets).sum() / divisor

    def output_rates(self, frequencies: tuple[float, ...]) -> tuple[float, ...]:
        """Return the mean of the model's output, D or D', if the classes have these frequencies.

        Raises:
            TypeError: the mixture has a prior for each row, so that the mean is unknown.
        """
        if self.when == "train":
            return frequencies
        if isinstance(self.mixture, RowMixture):
            raise TypeError("the mean output of a mixture by row is unknown")
        return tuple(
            self.mixture.a * frequency + offset
            for frequency, offset in zip(frequencies, self.mixture.b, strict=True)
        )

    def predict(self, logits: Tensor) -> Tensor:
        """Return D(y=1|x), or D(y|x) of each class."""
        output = model_output(logits)
        return self.mixture.truth(output) if self.when == "test" else output


def model_output(logits: Tensor) -> Tensor:
    """Return the model's uncalibrated prediction, from which `label-random-pred` draws.

    It is P(y=1), or the probability of each class.
    """
    return logits.sigmoid() if logits.ndim == 1 else logits.softmax(1)


def cross_entropies(
    logits: Tensor,
    targets: Tensor,
    mixture: Mixture | RowMixture,
    weights: tuple[float, float] | None = None,
) -> Tensor:
    """Return -Σ_y target_y · log D'(y|x) of each row; finite for every finite logit.

    With class weights w (two classes only) it is -Σ_y target_y · w_y · log Q(y|x), where Q is D'
    with class y weighted by w_y. The expectation is smallest where Q is the weighted distribution
    of the labels, which is where D' is that of the labels: the weights do not shift predictions.
    """
    offsets = mixture.offsets(logits).log()  # -inf for 0, which logaddexp ignores
    scale = math.log(mixture.a)
    if logits.ndim != 1:
        return -(targets * torch.logaddexp(log_softmax(logits, 1) + scale, offsets)).sum(1)
    no = torch.logaddexp(logsigmoid(-logits) + scale, offsets[..., 0])
    yes = torch.logaddexp(logsigmoid(logits) + scale, offsets[..., 1])
    if weights is None:
        return -(targets * yes + (1 - targets) * no)
    no, yes = no + math.log(weights[0]), yes + math.log(weights[1])
    both = torch.logaddexp(no, yes)
    return targets * weights[1] * (both - yes) + (1 - targets) * weights[0] * (both - no)
