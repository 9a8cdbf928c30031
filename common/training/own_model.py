"""Trains a model on a party's own features and labels, with the agreed learner but without a peer.

It is the baseline to which a joint model is compared: the active party's network, with nothing in
place of the peer's embeddings, trained on its own rows with the agreed batch size, learning rate,
schedule, epochs and averaging. It needs no traffic, and its weights are not kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from florist.common.synthetic.calibration import Mixture, cross_entropies, model_output
from florist.common.synthetic.label_strategies import class_frequencies
from florist.common.training.averaging import WeightAverage
from florist.common.training.micro_batches import micro_batches
from florist.common.training.model_factory import make_active
from florist.common.training.models import above_zero, start_at
from florist.common.training.optimisers import Optimisers
from florist.common.training.rate_schedule import RateSchedule
from florist.common.training.torch_batch import FeatureRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    from torch import Tensor

    from florist.common.core.progress import StepProgress
    from florist.common.data.features import Features
    from florist.common.settings.agreement import TrainingAgreement
    from florist.common.settings.training import Model, Optimiser
    from florist.common.training.models import ActiveModel

    Floats = npt.NDArray[np.float64]
    Labels = npt.NDArray[np.int64]

#: Rows that are predicted at a time.
_ROWS = 8192


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OwnModelSetup:
    """What the model is built from."""

    #: Batch size and learning rate may be `auto`; they are chosen by the number of own rows.
    agreement: TrainingAgreement
    model: Model
    optimiser: Optimiser
    #: Number of numeric columns, and categories of each categorical one.
    numeric: int
    cardinalities: tuple[int, ...]
    device: torch.device
    #: Of the initial weights and the order of rows. It protects nobody: nothing of this model
    #: leaves the process but figures.
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OwnModel:
    """A model that predicts from own features alone, or without any the class frequencies."""

    frequencies: tuple[float, ...]
    #: None without features.
    model: ActiveModel | None
    device: torch.device
    wire_width: int = 0

    @torch.no_grad()
    def predict(self, features: Features | None, rows: int) -> Floats:
        """Return P(y=1), (rows,), with two classes, otherwise (rows, classes)."""
        if self.model is None or features is None:
            constant = np.array(self.frequencies)
            if len(constant) == 2:
                return np.full(rows, constant[1])
            return np.tile(constant, (rows, 1))
        parts = [
            model_output(self._logits(self.model, features.slice(part.start, part.stop)))
            for part in micro_batches(rows, _ROWS)
        ]
        return np.asarray(torch.cat(parts).cpu().numpy().astype(np.float64))

    def _logits(self, model: ActiveModel, features: Features) -> Tensor:
        inputs = FeatureRows.of(features, self.device)
        logits: Tensor = model(_no_embeddings(inputs, self.wire_width), *inputs[:])
        return logits


def train_own_model(
    setup: OwnModelSetup, features: Features | None, labels: Labels, progress: StepProgress
) -> OwnModel:
    """Train on all rows; the same arguments give the same model on the same machine.

    Args:
        setup: settings of the agreement and of the party.
        features: of the same rows as `labels`; None if the party has none.
        labels: the class of each row, counted from 0.
        progress: counts rows.

    Raises:
        ConfigurationError: there are no labels.
    """
    frequencies = class_frequencies(labels, setup.agreement.classes)
    agreement = setup.agreement.resolved(len(labels))
    if features is None:
        return OwnModel(frequencies, None, setup.device)
    model = _initial_model(setup, agreement, above_zero(frequencies, len(labels)))
    rates = RateSchedule.agreed(agreement, setup.optimiser, len(labels))
    optimisers = Optimisers(model, setup.optimiser, rates)
    average = WeightAverage(model, on=agreement.averaging)
    identity = Mixture.identity(agreement.classes)
    progress.expect(agreement.epochs * len(labels))
    for step, rows in enumerate(_batches(agreement, len(labels), setup.seed)):
        inputs = FeatureRows.gather(features, rows, setup.device)
        logits = model(_no_embeddings(inputs, agreement.wire_width), *inputs[:])
        targets = _targets(labels[rows], logits)
        optimisers.zero_grad()
        cross_entropies(logits, targets, identity, agreement.loss_weights).mean().backward()
        optimisers.step(step)
        average.update()
        progress.advance(len(rows))
    average.apply()
    model.eval().requires_grad_(requires_grad=False)
    return OwnModel(frequencies, model, setup.device, agreement.wire_width)


def _initial_model(
    setup: OwnModelSetup, agreement: TrainingAgreement, rates: list[float]
) -> ActiveModel:
    """Return the active party's network. The prior, which only calibrates, is not needed."""
    model = make_active(
        setup.model,
        numeric=setup.numeric,
        cardinalities=setup.cardinalities,
        cut_width=agreement.cut_width,
        outputs=agreement.outputs,
        wide=agreement.wide,
        sees_shares=agreement.shows_shares_only,
        device=setup.device,
        seed=setup.seed,
    )
    start_at(model.top.output, rates)
    return model


def _batches(agreement: TrainingAgreement, rows: int, seed: int) -> Iterator[Labels]:
    """Yield the rows of each batch, in a new random order in each epoch."""
    random = np.random.default_rng([seed, 2])
    for _ in range(agreement.epochs):
        order = random.permutation(rows)
        for part in micro_batches(rows, agreement.known_batch_size):
            yield order[part]


def _no_embeddings(inputs: FeatureRows, width: int) -> Tensor:
    return torch.zeros((len(inputs.numeric), width), device=inputs.numeric.device)


def _targets(labels: Labels, logits: Tensor) -> Tensor:
    classes = torch.from_numpy(labels).to(logits.device)
    if logits.ndim == 1:
        return classes.to(logits.dtype)
    return torch.nn.functional.one_hot(classes, logits.shape[1]).to(logits.dtype)
