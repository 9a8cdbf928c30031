"""Labels for UIDs that the active party lacks: section "Synthetic Data Generation" of the paper.

With two classes a target is P(y=1), float32, one per row. With more classes targets are
(rows, classes), one distribution per row. Cross entropy, calibrated or not, is linear in the
target, so the mean of the gradients over several sampled labels (appendix H) is the gradient at the
mean label: `samples` > 1 needs no additional backward pass. To add a strategy, register it here and
add its name to `settings/agreement.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import numpy as np
import torch
from torch.nn.functional import normalize, one_hot

from florist.common.core.errors import ConfigurationError
from florist.common.core.registry import Registry
from florist.common.synthetic.rate_matching import with_rates

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor


#: The mean of a synthetic label, given x. Calibration depends on nothing else of a strategy.
Expectation = Literal["majority", "minority", "frequencies", "prediction"]


@dataclass(frozen=True, slots=True, eq=False)
class LabelRequest:
    """What the active party knows of a mini-batch of B rows, `n` of them without a real label."""

    #: (B,) bool.
    has_label: Tensor
    #: (B,) int64, the class of each row that has a label; arbitrary elsewhere.
    labels: Tensor
    #: (n, samples), from `LabelDraws`, for the rows without a label, in order.
    uniforms: Tensor
    #: The model's uncalibrated output: P(y=1), (B,), with two classes, else (B, classes).
    predictions: Tensor
    #: (B, d), from the cut layer.
    embeddings: Tensor
    #: The class frequencies of the party's own real labels, from `class_frequencies`.
    frequencies: tuple[float, ...]

    def __post_init__(self) -> None:
        missing = len(self.has_label) - int(self.has_label.sum())
        if len(self.uniforms) != missing:
            raise ValueError(f"{len(self.uniforms)} rows of uniforms for {missing} missing labels")

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.frequencies)


class LabelStrategy(Protocol):
    """How rows without a real label get one."""

    @property
    def name(self) -> str:
        """The name in the agreement."""

    @property
    def multi_class(self) -> bool:
        """Whether the strategy supports more than two classes."""

    @property
    def needs_whole_batch(self) -> bool:
        """Whether a label depends on other rows of the mini-batch."""

    @property
    def expectation(self) -> Expectation:
        """The mean of a label, given x."""

    def fill(self, request: LabelRequest) -> Tensor:
        """Return the targets of the rows without a real label, in order, on any device."""


LABEL_STRATEGIES: Registry[LabelStrategy] = Registry("label strategy")


def label_strategy(name: str, classes: int = 2) -> LabelStrategy:
    """Return the strategy with this name, for labels with this number of classes.

    Raises:
        ConfigurationError: the name is unknown, or the strategy supports only two classes.
    """
    strategy = LABEL_STRATEGIES[name]
    if classes > 2 and not strategy.multi_class:
        others = [n for n in LABEL_STRATEGIES.names if LABEL_STRATEGIES[n].multi_class]
        raise ConfigurationError(
            f"label strategy {name!r} gives all missing rows the same label and supports only two "
            f"classes; for {classes} classes use one of: {', '.join(others)}"
        )
    return strategy


def targets(strategy: LabelStrategy, request: LabelRequest) -> Tensor:
    """Return the targets of the whole mini-batch: real labels where known, else synthetic ones."""
    filled = _as_targets(torch.where(request.has_label, request.labels, 0), request.classes)
    filled[~request.has_label] = strategy.fill(request).to(filled.device)
    return filled


def class_frequencies(labels: npt.NDArray[np.integer], classes: int = 2) -> tuple[float, ...]:
    """Return the frequency of each class among the active party's own labels.

    With two classes the last one is the paper's π.

    Raises:
        ConfigurationError: there are no labels, or some are not in 0 … classes - 1.
    """
    if not len(labels):
        raise ConfigurationError("the active party's table has no labels")
    if labels.min() < 0 or labels.max() >= classes:
        raise ConfigurationError(f"labels must be whole numbers from 0 to {classes - 1}")
    counts = np.bincount(labels, minlength=classes)
    return tuple((counts / counts.sum()).tolist())


def majority(frequencies: tuple[float, ...]) -> int:
    """Return the more frequent of two classes; class 0, as in the paper, if they are equal."""
    return int(frequencies[1] > frequencies[0])


def _as_targets(labels: Tensor, classes: int) -> Tensor:
    return (labels if classes == 2 else one_hot(labels, classes)).to(torch.float32)


def _sample(uniforms: Tensor, probabilities: Tensor) -> Tensor:
    """Return the mean over samples (n, k) of labels drawn from `probabilities`.

    These are P(y=1), or the probability of each class.
    """
    # On the CPU, since not every device supports float64.
    probabilities = probabilities.detach().cpu().to(torch.float64)
    if probabilities.ndim == 1:
        return (uniforms < probabilities[:, None]).to(torch.float32).mean(1)
    inner = probabilities.cumsum(1)[:, :-1].contiguous()
    labels = torch.searchsorted(inner, uniforms, right=True)
    return one_hot(labels, probabilities.shape[1]).to(torch.float32).mean(1)


@dataclass(frozen=True, slots=True)
class ConstantLabel:
    """`label-majority` and `label-minority`: all missing labels are the same."""

    name: str
    expectation: Literal["majority", "minority"]
    multi_class: ClassVar[bool] = False
    needs_whole_batch: ClassVar[bool] = False

    def fill(self, request: LabelRequest) -> Tensor:
        label = constant_label(self.expectation, request.frequencies)
        return torch.full((len(request.uniforms),), float(label))


def constant_label(which: Literal["majority", "minority"], frequencies: tuple[float, ...]) -> int:
    """Return the majority or minority class among the party's own labels."""
    frequent = majority(frequencies)
    return frequent if which == "majority" else 1 - frequent


@dataclass(frozen=True, slots=True)
class LabelRandomPos:
    """Draws labels with the frequencies of the party's own, regardless of the features."""

    name: ClassVar[str] = "label-random-pos"
    expectation: ClassVar[Expectation] = "frequencies"
    multi_class: ClassVar[bool] = True
    needs_whole_batch: ClassVar[bool] = False

    def fill(self, request: LabelRequest) -> Tensor:
        probabilities = torch.tensor(request.frequencies, dtype=torch.float64)
        if request.classes == 2:
            probabilities = probabilities[1]
        return _sample(
            request.uniforms, probabilities.expand(len(request.uniforms), *probabilities.shape)
        )


@dataclass(frozen=True, slots=True)
class LabelRandomPred:
    """Draws labels from the model's own prediction (appendix H), with the rates of own labels.

    The mean prediction of a model that is still learning can be far from the rate of real labels,
    which would reveal the synthetic ones: see `rate_matching`.
    """

    name: ClassVar[str] = "label-random-pred"
    expectation: ClassVar[Expectation] = "prediction"
    multi_class: ClassVar[bool] = True
    needs_whole_batch: ClassVar[bool] = False

    def fill(self, request: LabelRequest) -> Tensor:
        own = request.has_label
        return _sample(
            request.uniforms, with_rates(request.predictions, own, request.frequencies, ~own)
        )


@dataclass(frozen=True, slots=True)
class LabelNeighbors:
    """Takes the majority vote of the `k` nearest rows of the mini-batch that have real labels.

    Nearness is by cosine, and a tie goes to the class of the nearer neighbour. With fewer than `k`
    such rows all of them vote. Without any, the label is drawn as by `label-random-pos`.
    """

    k: int = 3
    #: Rows compared at once: 1,024 by 8,192 similarities take 32 MiB.
    block: int = 1024
    name: ClassVar[str] = "label-neighbors"
    #: An approximation: the vote is the prediction of another model of the same labels.
    expectation: ClassVar[Expectation] = "prediction"
    multi_class: ClassVar[bool] = True
    needs_whole_batch: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 1 <= self.k <= 50:
            raise ConfigurationError(f"{self.name}: {self.k} neighbours are not between 1 and 50")

    def fill(self, request: LabelRequest) -> Tensor:
        if not request.has_label.any():
            return LabelRandomPos().fill(request)
        directions = normalize(request.embeddings.detach())
        voters = directions[request.has_label]
        nearest = self._nearest(directions[~request.has_label], voters)
        labels = request.labels[request.has_label][nearest].cpu()
        # Nearer neighbours count slightly more, which is just enough to break ties.
        weights = 1 + 0.5 ** torch.arange(2, labels.shape[1] + 2, dtype=torch.float64)
        votes = torch.zeros(len(labels), request.classes, dtype=torch.float64)
        votes.scatter_add_(1, labels, weights.expand(labels.shape))
        return _as_targets(votes.argmax(1), request.classes)

    def _nearest(self, rows: Tensor, voters: Tensor) -> Tensor:
        """Return the indices of the voters nearest to each row, the nearest first."""
        k = min(self.k, len(voters))
        nearest = torch.empty(len(rows), k, dtype=torch.int64, device=rows.device)
        for start in range(0, len(rows), self.block):
            block = slice(start, start + self.block)
            nearest[block] = (rows[block] @ voters.T).topk(k).indices
        return nearest


LABEL_STRATEGIES.register(ConstantLabel("label-majority", "majority"))
LABEL_STRATEGIES.register(ConstantLabel("label-minority", "minority"))
LABEL_STRATEGIES.register(LabelRandomPos())
LABEL_STRATEGIES.register(LabelRandomPred())
LABEL_STRATEGIES.register(LabelNeighbors())
