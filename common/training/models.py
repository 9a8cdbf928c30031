"""The two halves of the model: the paper's wide-and-deep network, cut in the middle.

    passive   categories -> embeddings --+
              numeric -------------------+-> ReLU layers -> cut
                                                             |
    active    own features, if any ------> ReLU layers ------+-> ReLU layers -> logits

Initial weights depend only on the seed and the parameter's name, not on torch's generators, the
order in which models are made, or the version of torch. Parameter names are keys in checkpoints.
"""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from florist.common.core.errors import ConfigurationError
from florist.common.training.embedding_rows import embed

if TYPE_CHECKING:
    from collections.abc import Sequence


#: Factor of the output layer's initial weights. With weights of full size, the mean of the first
#: predictions was 0.34 to 2.15 times the base rate, depending on the seed (20 seeds, 1% positives);
#: with this factor 0.80 to 1.16. A tenth would be closer still, but training then amplifies
#: rounding errors: one and two processes no longer agreed to 1e-5. With zero weights, all gradients
#: of the first batch would be zero.
OUTPUT_SCALE = 0.2

#: Standard deviation of initial embeddings. Small ones learn fastest: on the loans data with 77,000
#: categories, 0.05, 0.2 and 1 were each slower than the one before.
EMBEDDING_SPREAD = 0.01


class FeatureTower(nn.Module):
    """Maps features through embeddings and ReLU layers to `layers[-1]` values per row.

    The embeddings of all categorical columns are in one table, column after column, so a batch
    needs one lookup. With `sparse` the table's gradients are sparse tensors.
    """

    _starts: Tensor

    def __init__(
        self,
        *,
        numeric: int,
        cardinalities: Sequence[int],
        embedding_width: int,
        layers: Sequence[int],
        sparse: bool,
        seed: int,
    ) -> None:
        super().__init__()
        if not numeric and not cardinalities:
            raise ConfigurationError("data.train: a model needs at least one feature column")
        self.numeric = numeric
        self.width = layers[-1]
        self.table: nn.Embedding | None = None
        if cardinalities:
            self.table = nn.Embedding(
                sum(cardinalities), embedding_width, sparse=sparse, device="meta"
            ).to_empty(device="cpu")
        starts = torch.tensor([0, *cardinalities]).cumsum(0)
        self.register_buffer("_starts", starts, persistent=False)
        self.layers = _dense_layers(numeric + embedding_width * len(cardinalities), layers)
        _initialise(self, seed)

    def forward(self, numeric: Tensor, categories: Tensor) -> Tensor:
        """Map a batch of `n` rows.

        Args:
            numeric: `(n, numeric)`, with the dtype of the weights.
            categories: `(n, len(cardinalities))` integers, each below its column's cardinality.

        Raises:
            IndexError: a category is out of its column's range.
        """
        inputs = numeric
        if self.table is not None:
            inputs = embed(self.table, self._starts, categories, numeric)
        return _relu_all(self.layers, inputs)


class BottomModel(FeatureTower):
    """The passive party's half `f`; its last layer is the cut."""

    def outputs(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs that have a gradient in training: the embeddings."""
        return (self(*inputs),)


class TopModel(nn.Module):
    """The active party's half `h`, from the cut to the logits."""

    def __init__(
        self,
        *,
        cut_width: int,
        tower_width: int = 0,
        layers: Sequence[int],
        outputs: int = 1,
        seed: int,
    ) -> None:
        super().__init__()
        inputs = cut_width + tower_width
        self.layers = _dense_layers(inputs, layers)
        self.output = _linear(layers[-1] if layers else inputs, outputs)
        _initialise(self, seed)

    def forward(self, embeddings: Tensor, tower_output: Tensor | None = None) -> Tensor:
        """Return the logits of a batch: `(n,)` for one output, otherwise `(n, outputs)`."""
        inputs = embeddings
        if tower_output is not None:
            inputs = torch.cat((embeddings, tower_output), dim=1)
        logits: Tensor = self.output(_relu_all(self.layers, inputs))
        return logits.squeeze(1) if self.output.out_features == 1 else logits


class PriorModel(nn.Module):
    """Predicts the label from the active party's own features alone."""

    def __init__(self, tower: FeatureTower, outputs: int, seed: int) -> None:
        super().__init__()
        self.tower = tower
        self.output = _linear(tower.width, outputs)
        _initialise(self.output, seed)

    def forward(self, numeric: Tensor, categories: Tensor) -> Tensor:
        """Return logits, shaped as those of `TopModel`."""
        logits: Tensor = self.output(self.tower(numeric, categories))
        return logits.squeeze(1) if self.output.out_features == 1 else logits


class ActiveModel(nn.Module):
    """All that the active party trains: the top model and, if it has features, their tower.

    A prior, which calibration uses, predicts the label from these features alone.
    """

    def __init__(
        self,
        top: TopModel,
        tower: FeatureTower | None = None,
        prior: PriorModel | None = None,
    ) -> None:
        super().__init__()
        self.top = top
        self.tower = tower
        self.prior = prior

    def forward(
        self, embeddings: Tensor, numeric: Tensor | None = None, categories: Tensor | None = None
    ) -> Tensor:
        """Return logits, shaped as those of `TopModel`; a tower requires the features."""
        if self.tower is None:
            logits: Tensor = self.top(embeddings)
        else:
            logits = self.top(embeddings, self.tower(numeric, categories))
        return logits

    def outputs(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs that have a gradient in training: logits, and those of the prior."""
        logits = self(*inputs)
        return (logits,) if self.prior is None else (logits, self.prior(*inputs[1:]))


# --- layers and initial weights ---


def _linear(inputs: int, outputs: int) -> nn.Linear:
    # Through "meta", so that no weights are drawn from torch's global generator.
    return nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")


def _dense_layers(inputs: int, widths: Sequence[int]) -> nn.ModuleList:
    return nn.ModuleList(_linear(*pair) for pair in pairwise([inputs, *widths]))


def _relu_all(layers: nn.ModuleList, values: Tensor) -> Tensor:
    for layer in layers:
        values = functional.relu(layer(values), inplace=True)
    return values


@torch.no_grad()
def _initialise(module: nn.Module, seed: int) -> None:
    """Initialise all weights: He uniform before a ReLU, zero biases, small embeddings."""
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
            continue
        spread = EMBEDDING_SPREAD if name == "table.weight" else parameter.shape[1] ** -0.5
        if name.startswith("layers."):
            spread *= 2**0.5
        # 256 bits: torch's own generator has 32, which a peer could try exhaustively.
        # RandomState's streams are the same in every version of numpy.
        key = hashlib.sha256(f"{seed}/{type(module).__name__}/{name}".encode()).digest()
        draws = np.random.RandomState(np.frombuffer(key, "<u4"))
        bound = spread * 3**0.5
        for part in torch.split(parameter, 1 << 20):
            values = draws.uniform(-bound, bound, tuple(part.shape))
            part.copy_(torch.from_numpy(values))


@torch.no_grad()
def start_at(output: nn.Linear, rates: Sequence[float]) -> None:
    """Make the first predictions of a new output layer nearly equal to `rates`.

    The biases become the log odds (one output) or the logarithms of the rates, and the weights are
    multiplied by `OUTPUT_SCALE`.

    Args:
        output: the layer, with its initial weights.
        rates: one per class, positive, with sum 1.
    """
    logs = torch.tensor(rates, dtype=torch.float64).log()
    output.bias.copy_(logs[1:] - logs[:1] if output.out_features == 1 else logs)
    output.weight.mul_(OUTPUT_SCALE)
