"""Labels for the UIDs that the active party lacks: section "Synthetic Data Generation".

With two classes a target is P(y=1), float32, one per row; with more it is (rows, classes), each
row a distribution. Cross entropy, calibrated or not, is linear in the target, so the mean of the
gradients over several sampled labels (appendix H) is the gradient at the mean label: `samples` > 1
costs no further backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import numpy as np
import torch
from torch.nn.functional import normalize, one_hot

from florist.common.core.errors import ConfigurationError
from florist.common.core.registry import Registry

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from florist.common.synthetic.secret_draws import SecretDraws

#: What a synthetic label is on average, given x; calibration depends on nothing else of a strategy.
Expectation = Literal["majority", "minority", "frequencies", "prediction"]


@dataclass(frozen=True, slots=True, eq=False)
class LabelRequest:
    """One mini-batch of B rows, `n` of them without a real label, as the active party sees it."""

    #: (B,) bool.
    has_label: Tensor
    #: (B,) int64, the class of each row that has a label; any value elsewhere.
    labels: Tensor
    #: (n, samples), from `LabelDraws`, for the rows without a label in their order.
    uniforms: Tensor
    #: The model's own, not calibrated: P(y=1), (B,), with two classes, else (B, classes).
    predictions: Tensor
    #: (B, d), at the cut layer.
    embeddings: Tensor
    #: Of the party's own real labels, by class: `class_frequencies`.
    frequencies: tuple[float, ...]

    def __post_init__(self) -> None:
        missing = len(self.has_label) - int(self.has_label.sum())
        if len(self.uniforms) != missing:
            raise ValueError(f"{len(self.uniforms)} rows of uniforms for {missing} missing labels")

    @property
    def classes(self) -> int:
        return len(self.frequencies)


class LabelStrategy(Protocol):
    """How the rows without a real label get one."""

    @property
    def name(self) -> str: ...
    @property
    def multi_class(self) -> bool:
        """Whether it can be used with more than two classes."""

    @property
    def needs_whole_batch(self) -> bool:
        """Whether a label depends on other rows of the mini-batch."""

    @property
    def expectation(self) -> Expectation: ...
    def fill(self, request: LabelRequest) -> Tensor:
        """The targets of the rows without a real label, in their order; perhaps on the CPU."""


LABEL_STRATEGIES: Registry[LabelStrategy] = Registry("label strategy")


def label_strategy(name: str, classes: int = 2) -> LabelStrategy:
    """The strategy of this name, for labels of so many classes.

    Raises:
        ConfigurationError: there is none, or it cannot be used with more than two classes.
    """
    strategy = LABEL_STRATEGIES[name]
    if classes > 2 and not strategy.multi_class:
        others = [n for n in LABEL_STRATEGIES.names if LABEL_STRATEGIES[n].multi_class]
        raise ConfigurationError(
            f"label strategy {name!r} gives all missing rows one label, which is meant for two "
            f"unbalanced classes; for {classes} classes use one of: {', '.join(others)}"
        )
    return strategy


def targets(strategy: LabelStrategy, request: LabelRequest) -> Tensor:
    """The targets of the whole mini-batch: real labels where there are any, else synthetic ones."""
    filled = _as_targets(torch.where(request.has_label, request.labels, 0), request.classes)
    filled[~request.has_label] = strategy.fill(request).to(filled.device)
    return filled


def class_frequencies(labels: npt.NDArray[np.integer], classes: int = 2) -> tuple[float, ...]:
    """How frequent each class is among the active party's own labels; with two, the last is π.

    Raises:
        ConfigurationError: there are no labels, or some are not of 0 … classes - 1.
    """
    if not len(labels):
        raise ConfigurationError("the active party's table holds no label")
    if labels.min() < 0 or labels.max() >= classes:
        raise ConfigurationError(f"labels must be whole numbers from 0 to {classes - 1}")
    counts = np.bincount(labels, minlength=classes)
    return tuple((counts / counts.sum()).tolist())


def majority(frequencies: tuple[float, ...]) -> int:
    """Of two classes the more frequent one; class 0, as in the paper, where they are equal."""
    return int(frequencies[1] > frequencies[0])


@dataclass(frozen=True, slots=True)
class LabelDraws:
    """The secret uniforms behind sampled labels.

    Sticky: the same for a UID in every epoch. Otherwise they are drawn again each epoch, and since
    a real label never changes, a label that does gives the row away.
    """

    draws: SecretDraws
    samples: int = 1
    sticky: bool = True

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ConfigurationError(f"samples: {self.samples} is less than 1")

    def for_rows(self, ranks: npt.NDArray[np.int64], epoch: int) -> Tensor:
        """(n, samples), float64, for UIDs given by their rank in `U`."""
        positions = ranks[:, None] * self.samples + np.arange(self.samples)
        context = () if self.sticky else (epoch,)
        return torch.from_numpy(self.draws.uniforms_at("label", positions, *context))


class KeptTargets:
    """Synthetic targets that stay what they were when first drawn, as real labels do.

    Uniforms that stay the same are not enough: the prediction moves, and where it crosses them the
    label would change.
    """

    _NONE = -1.0

    def __init__(self, union_size: int, classes: int) -> None:
        shape = (union_size,) if classes == 2 else (union_size, classes)
        self._targets = torch.full(shape, self._NONE)

    def settle(self, ranks: Tensor, drawn: Tensor) -> Tensor:
        """The targets of UIDs, given by their rank in `U`: those kept, else those just drawn."""
        kept = self._targets[ranks]
        missing = kept == self._NONE
        settled = torch.where(missing, drawn.to(kept), kept)
        self._targets[ranks] = settled
        return settled.to(drawn)

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold."""
        return {"kept": self._targets}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        self._targets.copy_(state["kept"])


def _as_targets(labels: Tensor, classes: int) -> Tensor:
    return (labels if classes == 2 else one_hot(labels, classes)).to(torch.float32)


def _sample(uniforms: Tensor, probabilities: Tensor) -> Tensor:
    """Mean over the samples (n, k) of labels with `probabilities`: P(y=1), or of each class."""
    # On the CPU: not every device has float64.
    probabilities = probabilities.detach().cpu().to(torch.float64)
    if probabilities.ndim == 1:
        return (uniforms < probabilities[:, None]).to(torch.float32).mean(1)
    inner = probabilities.cumsum(1)[:, :-1].contiguous()
    labels = torch.searchsorted(inner, uniforms, right=True)
    return one_hot(labels, probabilities.shape[1]).to(torch.float32).mean(1)


@dataclass(frozen=True, slots=True)
class ConstantLabel:
    """`label-majority` and `label-minority`: all missing labels are alike."""

    name: str
    expectation: Literal["majority", "minority"]
    multi_class: ClassVar[bool] = False
    needs_whole_batch: ClassVar[bool] = False

    def fill(self, request: LabelRequest) -> Tensor:
        label = constant_label(self.expectation, request.frequencies)
        return torch.full((len(request.uniforms),), float(label))


def constant_label(which: Literal["majority", "minority"], frequencies: tuple[float, ...]) -> int:
    """The class that is the majority, or the minority, among the party's own labels."""
    common = majority(frequencies)
    return common if which == "majority" else 1 - common


@dataclass(frozen=True, slots=True)
class LabelRandomPos:
    """Labels as frequent as among the party's own, whatever the features."""

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
    """Labels drawn from the model's own prediction: appendix H."""

    name: ClassVar[str] = "label-random-pred"
    expectation: ClassVar[Expectation] = "prediction"
    multi_class: ClassVar[bool] = True
    needs_whole_batch: ClassVar[bool] = False

    def fill(self, request: LabelRequest) -> Tensor:
        return _sample(request.uniforms, request.predictions[~request.has_label])


@dataclass(frozen=True, slots=True)
class LabelNeighbors:
    """The vote of the `k` rows with real labels in the mini-batch that are nearest by cosine.

    A tie goes to the class of the nearer neighbour. With fewer than `k` such rows all of them vote;
    with none, the label is drawn as by `label-random-pos`.
    """

    k: int = 3
    #: Rows compared at a time: 1,024 by 8,192 similarities are 32 MiB.
    block: int = 1024
    name: ClassVar[str] = "label-neighbors"
    #: An approximation: it is the prediction of another model, with the same purpose.
    expectation: ClassVar[Expectation] = "prediction"
    multi_class: ClassVar[bool] = True
    needs_whole_batch: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 1 <= self.k <= 50:
            raise ConfigurationError(f"{self.name} with {self.k} neighbours: allowed are 1 to 50")

    def fill(self, request: LabelRequest) -> Tensor:
        if not request.has_label.any():
            return LabelRandomPos().fill(request)
        directions = normalize(request.embeddings.detach())
        voters = directions[request.has_label]
        nearest = self._nearest(directions[~request.has_label], voters)
        labels = request.labels[request.has_label][nearest].cpu()
        # A vote counts 1 and a little more, ever less with distance: enough to decide ties only.
        weights = 1 + 0.5 ** torch.arange(2, labels.shape[1] + 2, dtype=torch.float64)
        votes = torch.zeros(len(labels), request.classes, dtype=torch.float64)
        votes.scatter_add_(1, labels, weights.expand(labels.shape))
        return _as_targets(votes.argmax(1), request.classes)

    def _nearest(self, rows: Tensor, voters: Tensor) -> Tensor:
        """Indices of the voters nearest to each row, the nearest first."""
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
