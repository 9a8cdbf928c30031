"""The two halves of the model: the paper's wide-and-deep network, cut in the middle.

    passive   categories -> embeddings --+
              numeric -------------------+-> ReLU layers -> cut
                                                             |
    active    own features, if any ------> ReLU layers ------+-> ReLU layers -> logits

The wide part adds one weight per category and output directly to the logits, for the features of
both parties. The passive party's sum is sent as the last columns of its embeddings.

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

    With a wide part, `wide` values per row follow: the sums over all columns of the last `wide`
    entries of each embedding, which start at 0 and which the layers do not see.
    """

    starts: Tensor

    def __init__(
        self,
        *,
        numeric: int,
        cardinalities: Sequence[int],
        embedding_width: int,
        layers: Sequence[int],
        wide: int = 0,
        sparse: bool,
        seed: int,
    ) -> None:
        super().__init__()
        if not numeric and not cardinalities:
            raise ConfigurationError("data.train: a model needs at least one feature column")
        self.numeric = numeric
        self.width = layers[-1]
        self.wide = wide
        self._embedding_width = embedding_width
        self.table: nn.Embedding | None = None
        if cardinalities:
            self.table = nn.Embedding(
                sum(cardinalities), embedding_width + wide, sparse=sparse, device="meta"
            ).to_empty(device="cpu")
        starts = torch.tensor([0, *cardinalities]).cumsum(0)
        self.register_buffer("starts", starts, persistent=False)
        self.layers = _dense_layers(numeric + embedding_width * len(cardinalities), layers)
        _initialise(self, seed)
        if self.table is not None and wide:
            nn.init.zeros_(self.table.weight.data[:, embedding_width:])

    def forward(self, numeric: Tensor, categories: Tensor) -> Tensor:
        """Map a batch of `n` rows.

        Args:
            numeric: `(n, numeric)`, with the dtype of the weights.
            categories: `(n, len(cardinalities))` integers, each below its column's cardinality.

        Raises:
            IndexError: a category is out of its column's range.
        """
        if self.table is None:
            deep = _relu_all(self.layers, numeric)
            nothing = deep.new_zeros(len(deep), self.wide)
            return torch.cat((deep, nothing), dim=1) if self.wide else deep
        if not self.wide:
            return _relu_all(self.layers, embed(self.table, self.starts, categories, numeric))
        rows = embed(self.table, self.starts, categories, numeric[:, :0])
        entries = rows.unflatten(1, (-1, self._embedding_width + self.wide))
        embeddings, weights = entries.split((self._embedding_width, self.wide), dim=2)
        inputs = torch.cat((embeddings.flatten(1), numeric), dim=1)
        return torch.cat((_relu_all(self.layers, inputs), weights.sum(1)), dim=1)


class BottomModel(FeatureTower):
    """The passive party's half `f`; its last layer is the cut.

    With late fusion there is no cut: a linear layer, added to the wide part, makes its output the
    party's share of the logits.
    """

    def __init__(  # noqa: PLR0913 - keyword-only
        self,
        *,
        numeric: int,
        cardinalities: Sequence[int],
        embedding_width: int,
        layers: Sequence[int],
        wide: int = 0,
        late_fusion: bool = False,
        sparse: bool,
        seed: int,
    ) -> None:
        super().__init__(
            numeric=numeric,
            cardinalities=cardinalities,
            embedding_width=embedding_width,
            layers=layers,
            wide=wide,
            sparse=sparse,
            seed=seed,
        )
        self.share: nn.Linear | None = None
        if late_fusion:
            self.share = Linear(self.width, wide)
            # All shares of the first batch are 0: there are no donors yet, and random stand-ins
            # could be recognised by shares that fit the label.
            nn.init.zeros_(self.share.weight)
            nn.init.zeros_(self.share.bias)

    def forward(self, numeric: Tensor, categories: Tensor) -> Tensor:
        """Map a batch of `n` rows to embeddings, or to shares of the logits."""
        values = super().forward(numeric, categories)
        if self.share is None:
            return values
        deep, wide = _split_wide(values, self.wide)
        shares: Tensor = self.share(deep) + wide
        return shares

    @torch.no_grad()
    def start_wide_part(self, weights: Tensor) -> None:
        """Set the weights of the wide part: (categories of all columns, outputs)."""
        assert self.table is not None
        self.table.weight[:, -self.wide :] = weights.to(self.table.weight.device)

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
        wide: bool = False,
        sees_shares: bool = False,
        seed: int,
    ) -> None:
        super().__init__()
        self.wide = outputs if wide else 0
        #: Whether the layers see the peer's share of the logits next to the own features.
        self.sees_shares = sees_shares and bool(tower_width)
        inputs = cut_width + tower_width + (self.wide if self.sees_shares else 0)
        # With late fusion and without own features, there is only a bias.
        widths = layers if inputs else ()
        self.layers = _dense_layers(inputs, widths)
        self.output = Linear(widths[-1] if widths else inputs, outputs)
        _initialise(self, seed)

    def forward(self, embeddings: Tensor, tower_output: Tensor | None = None) -> Tensor:
        """Return the logits of a batch: `(n,)` for one output, otherwise `(n, outputs)`."""
        parts = [embeddings] if tower_output is None else [embeddings, tower_output]
        deep, wide = zip(*(_split_wide(part, self.wide) for part in parts), strict=True)
        seen = (*deep, wide[0]) if self.sees_shares else deep
        inputs = torch.cat(seen, dim=1) if len(seen) > 1 else seen[0]
        return _logits(self.output, _relu_all(self.layers, inputs), wide if self.wide else ())


class PriorModel(nn.Module):
    """Predicts the label from the active party's own features alone."""

    def __init__(self, tower: FeatureTower, outputs: int, seed: int) -> None:
        super().__init__()
        self.tower = tower
        self.output = Linear(tower.width, outputs)
        _initialise(self.output, seed)

    def forward(self, numeric: Tensor, categories: Tensor) -> Tensor:
        """Return logits, shaped as those of `TopModel`."""
        deep, wide = _split_wide(self.tower(numeric, categories), self.tower.wide)
        return _logits(self.output, deep, (wide,) if self.tower.wide else ())


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


class Linear(nn.Linear):
    """A layer whose weights `_initialise` draws, instead of torch's global generator.

    Without inputs it has only a bias.
    """

    def reset_parameters(self) -> None:
        """Leave the weights as they are."""


def _dense_layers(inputs: int, widths: Sequence[int]) -> nn.ModuleList:
    return nn.ModuleList(Linear(*pair) for pair in pairwise([inputs, *widths]))


def _relu_all(layers: nn.ModuleList, values: Tensor) -> Tensor:
    for layer in layers:
        values = functional.relu(layer(values), inplace=True)
    return values


def _split_wide(values: Tensor, wide: int) -> tuple[Tensor, Tensor]:
    """Separate the last `wide` columns, those of the wide part, from the others."""
    deep, last = values.split((values.shape[1] - wide, wide), dim=1)
    return deep, last


def _logits(output: nn.Linear, deep: Tensor, wide: Sequence[Tensor]) -> Tensor:
    """Return the output layer's logits plus the wide parts: `(n,)` for one output."""
    logits: Tensor = sum(wide, output(deep))
    return logits.squeeze(1) if output.out_features == 1 else logits


@torch.no_grad()
def _initialise(module: nn.Module, seed: int) -> None:
    """Initialise all weights: He uniform before a ReLU, zero biases, small embeddings."""
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
            continue
        if not parameter.numel():
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
    output.weight.mul_(OUTPUT_SCALE)
    output.bias.copy_(base_logits(rates))


def base_logits(rates: Sequence[float]) -> Tensor:
    """Return the logits that predict these rates: the log odds, or with several classes logarithms.

    Args:
        rates: one per class, positive, with sum 1.
    """
    logs = torch.tensor(rates, dtype=torch.float64).log()
    return (logs[1:] - logs[:1] if len(rates) == 2 else logs).to(torch.float32)


def above_zero(rates: tuple[float, ...], rows: int) -> list[float]:
    """Return the rates such that none is 0: a class without rows counts as half a row."""
    raised = [max(rate, 0.5 / rows) for rate in rates]
    return [rate / sum(raised) for rate in raised]
