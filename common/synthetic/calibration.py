"""Logits calibration: appendices E, F and G, by exact counts.

Synthetic data shifts what the model learns from the truth D to D'(y|x) = a·D(y|x) + b_y. With
`train` (the paper's -tr) the model's output is D and the loss uses D'; with `test` (-te) the output
is D' and predictions are brought back to D.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

import torch
from torch.nn.functional import log_softmax, logsigmoid

from florist.common.core.errors import ConfigurationError
from florist.common.synthetic.labels import constant_label

if TYPE_CHECKING:
    from torch import Tensor

    from florist.common.psu.alignment import Sizes
    from florist.common.synthetic.labels import Expectation

When = Literal["none", "train", "test"]


@dataclass(frozen=True, slots=True)
class Mixture:
    """D' = a·D + b, where `b` has an entry per class; so a + Σ b = 1.

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
    def binary(cls, a: float, b: float) -> Self:
        """From the paper's D'(y=1|x) = a·D(y=1|x) + b."""
        # What is left for y=0 can be a rounding error below 0.
        return cls(a, (max(1 - a - b, 0.0), b))

    @classmethod
    def identity(cls, classes: int = 2) -> Self:
        return cls(1.0, (0.0,) * classes)

    def offsets(self, like: Tensor) -> Tensor:
        """`b` by class, for every row alike, in the precision of `like`."""
        return like.new_tensor(self.b)

    def observed(self, truth: Tensor) -> Tensor:
        """D' of D."""
        return self.a * truth + _of_output(self.offsets(truth), truth)

    def truth(self, observed: Tensor) -> Tensor:
        """D of D'. What lies outside [0, 1] is clipped, and several classes add up to 1 again."""
        return _truth(observed, self)


@dataclass(frozen=True, slots=True, eq=False)
class RowMixture:
    """D'(y|x) = a·D(y|x) + (1 - a)·prior(y|x): a mixture with a `b` for each row.

    For an active party with features of its own: where the peer's features are synthetic, the label
    still depends on the own ones, by the prior.
    """

    a: float
    #: P(y=1), (rows,), with two classes, else (rows, classes); without gradient.
    prior: Tensor

    def offsets(self, like: Tensor) -> Tensor:
        """(rows, classes)."""
        prior = self.prior.to(like.dtype)
        by_class = torch.stack((1 - prior, prior), dim=1) if prior.ndim == 1 else prior
        return (1 - self.a) * by_class

    def truth(self, observed: Tensor) -> Tensor:
        """As of `Mixture`."""
        return _truth(observed, self)


def _truth(observed: Tensor, mixture: Mixture | RowMixture) -> Tensor:
    offsets = _of_output(mixture.offsets(observed), observed)
    clipped = ((observed - offsets) / mixture.a).clamp(0, 1)
    return clipped if clipped.ndim == 1 else clipped / clipped.sum(1, keepdim=True)


def _of_output(offsets: Tensor, output: Tensor) -> Tensor:
    """The offsets in the shape of a model's output: those of y=1, or of all classes."""
    return offsets[..., 1] if output.ndim == 1 else offsets


def labels_only(p_a: float) -> Mixture:
    """Appendix E: `label-majority`, and every UID has real features."""
    return Mixture.binary(p_a, 0.0)


def features_only(p_p: float, positive_rate: float) -> Mixture:
    """Appendix F: `fea-sampling`, and every UID has a real label."""
    return Mixture.binary(p_p, (1 - p_p) * positive_rate)


def both_independent(p_a: float, p_p: float, positive_rate: float) -> Mixture:
    """Appendix G: `label-majority` and `fea-sampling`, memberships independent of each other."""
    return Mixture.binary(p_a * p_p, p_a * (1 - p_p) * positive_rate)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many UIDs are of which kind, dummies only among those in the union.

    `active` and `passive` are the rows with a real label and with real features, `shared` those
    with both.
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
    def of_active(cls, sizes: Sizes, own_dummies: int = 0, peer_dummies: int = 0) -> Self:
        """From what the union told the active party; a dummy is never shared.

        The peer's dummies may be unknown. They matter only where `real_features_only` is asked for.
        """
        return cls(sizes.union, sizes.own - own_dummies, sizes.peer - peer_dummies, sizes.shared)


def mixture(
    counts: Counts,
    frequencies: tuple[float, ...],
    expectation: Expectation,
    when: When,
    *,
    real_labels_only: bool = False,
    real_features_only: bool = False,
) -> Mixture:
    """What a model sees that learns from UIDs of three kinds, which look alike to it.

    `shared` ones with their true label; those with a real label but another person's features,
    whose label is like any; and those with a synthetic label.

    Args:
        counts: of these kinds.
        frequencies: of the classes among the active party's own labels, the paper's D(y).
        expectation: of the label strategy.
        when: decides what `label-random-pred` draws from: D with `train`, otherwise D'.
        real_labels_only: the rows without a real label are left out (the top model's masking).
        real_features_only: the rows without real features are left out, by the bottom model's
            masking or because they can be told apart (`looks_real` is false).

    Raises:
        ConfigurationError: the parties share nobody.
    """
    if counts.shared == 0:
        raise ConfigurationError(
            "the parties have no person in common, so features and labels never meet and there is "
            "nothing to learn"
        )
    true = counts.shared
    unrelated = 0 if real_features_only else counts.active - counts.shared
    unlabelled = (counts.passive - true) if real_features_only else (counts.union - counts.active)
    if real_labels_only:
        unlabelled = 0
    offsets = [unrelated * frequency for frequency in frequencies]
    match expectation:
        case "majority" | "minority":
            offsets[constant_label(expectation, frequencies)] += unlabelled
        case "frequencies":
            offsets = [(unrelated + unlabelled) * frequency for frequency in frequencies]
        case "prediction" if when == "train":
            true += unlabelled  # drawn from D, as if they were real
        case "prediction":
            unlabelled = 0  # drawn from D' itself, which they leave as it is
    total = counts.shared + unrelated + unlabelled
    return Mixture(true / total, tuple(offset / total for offset in offsets))


@dataclass(frozen=True, slots=True)
class Calibration:
    """When the shift is taken out of the model, and which it is.

    Logits are (rows,) with two classes, else (rows, classes).
    """

    when: When
    mixture: Mixture | RowMixture

    def given(self, prior: Tensor) -> Calibration:
        """The same with a prior for each row in place of the frequencies of the classes."""
        return Calibration(self.when, RowMixture(self.mixture.a, prior))

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The cross entropy of each row; `targets` as in `synthetic_labels`."""
        identity = Mixture.identity(2 if logits.ndim == 1 else logits.shape[1])
        return cross_entropies(logits, targets, self.mixture if self.when == "train" else identity)

    def loss(self, logits: Tensor, targets: Tensor, divisor: float = 1.0) -> Tensor:
        """Their sum over the rows, divided by `divisor`, such as the size of the whole batch."""
        return self.losses(logits, targets).sum() / divisor

    def predict(self, logits: Tensor) -> Tensor:
        """D(y=1|x), or D(y|x) of each class."""
        output = model_output(logits)
        return self.mixture.truth(output) if self.when == "test" else output


def model_output(logits: Tensor) -> Tensor:
    """The model's own prediction: P(y=1), or of each class. `label-random-pred` draws from it."""
    return logits.sigmoid() if logits.ndim == 1 else logits.softmax(1)


def cross_entropies(logits: Tensor, targets: Tensor, mixture: Mixture | RowMixture) -> Tensor:
    """-Σ_y target_y · log D'(y|x) of each row; finite for every finite logit."""
    offsets = mixture.offsets(logits).log()  # -inf for 0, which logaddexp passes by
    scale = math.log(mixture.a)
    if logits.ndim == 1:
        no = torch.logaddexp(logsigmoid(-logits) + scale, offsets[..., 0])
        yes = torch.logaddexp(logsigmoid(logits) + scale, offsets[..., 1])
        return -(targets * yes + (1 - targets) * no)
    return -(targets * torch.logaddexp(log_softmax(logits, 1) + scale, offsets)).sum(1)
