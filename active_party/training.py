"""The active party's half of a step: embeddings in, loss, gradients out, update of `h`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from florist.common.core.errors import ConfigurationError
from florist.common.evaluation.metrics import BINS, calibration_curve, evaluate
from florist.common.synthetic.calibration import (
    Calibration,
    Counts,
    Mixture,
    cross_entropies,
    mixture,
    model_output,
)
from florist.common.synthetic.features import FEATURE_STRATEGIES
from florist.common.synthetic.labels import (
    KeptTargets,
    LabelDraws,
    LabelRequest,
    class_frequencies,
    label_strategy,
    targets,
)
from florist.common.synthetic.stand_ins import StandIns
from florist.common.training.averaging import WeightAverage
from florist.common.training.blocks import Wire, micro_batches, pipelined
from florist.common.training.distributed import make_compute
from florist.common.training.half_state import tensors_of
from florist.common.training.history import CalibrationPoints, EpochFigures, StepTimer
from florist.common.training.models import describe, make_agreed_active
from florist.common.training.predictions import predictions
from florist.common.training.torch_batch import FeatureRows
from florist.common.transport.messages import (
    EmbeddingBlock,
    EpochSummary,
    GradientBlock,
    TestEmbeddingBlock,
)

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from florist.common.training.compute import Compute, Pass
    from florist.common.training.feed import Position
    from florist.common.training.half_setup import HalfSetup
    from florist.common.training.loop import Run
    from florist.common.training.models import ActiveModel
    from florist.common.training.training_data import TrainingData
    from florist.common.transport.channel import Channel


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ActiveBatch:
    """What the active party knows of a batch: labels, which are real, draws, own features."""

    #: Of each row in `U`.
    ranks: Tensor
    labels: Tensor
    has_label: Tensor
    #: One row for each row of the batch; used where there is no label.
    uniforms: Tensor
    features: FeatureRows | None

    def __len__(self) -> int:
        return len(self.labels)


class ActiveHalf:
    """The top model `h`, and a tower for own features, in training."""

    def __init__(
        self,
        data: TrainingData,
        model: ActiveModel,
        compute: Compute,
        channel: Channel,
        run: Run,
    ) -> None:
        agreement, train = data.agreement, data.train
        if train.labels is None:
            raise ConfigurationError("data.train.label: the active party needs a label column")
        self._data = data
        self._labels = train.labels
        self._model = model
        self._compute = compute
        self._channel = channel
        self._run = run
        self._timer = StepTimer(run.history)
        self._wire = Wire(agreement.wire_type, agreement.cut_width)
        self._frequencies = class_frequencies(train.labels, agreement.classes)
        self._strategy = label_strategy(agreement.labels.strategy, agreement.classes)
        self._draws = LabelDraws(run.draws, agreement.labels.samples, agreement.sticky)
        self._sent, self._own = calibrations(data, self._frequencies)
        self._average = WeightAverage(model, on=agreement.averaging)
        #: False while a step changes the state.
        self.is_consistent = True
        self._kept: KeptTargets | None = None
        if agreement.sticky and agreement.epochs > 1:
            self._kept = KeptTargets(train.sizes.union, agreement.classes)
        self._tested: tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]] | None = None
        self._stand_ins = StandIns.sampled(
            train.membership, len(train.labels), run.draws, sticky=agreement.sticky
        )

    def prepare(self, position: Position, ranks: npt.NDArray[np.int64]) -> ActiveBatch:
        train, device = self._data.train, self._data.device
        rows = train.membership.rows(ranks)
        has_label = rows >= 0
        features = None
        if train.features is not None:
            shown = self._stand_ins.rows(ranks, position.epoch)
            features = FeatureRows.gather(train.features, shown, device)
        return ActiveBatch(
            torch.from_numpy(ranks),
            torch.from_numpy(np.where(has_label, self._labels[rows], 0)).to(device),
            torch.from_numpy(has_label).to(device),
            self._draws.for_rows(ranks, position.epoch).to(device),
            features,
        )

    def step(self, position: Position, batch: ActiveBatch) -> None:
        """The right half of table "Communication diagram of model training"."""
        parts = list(pipelined(len(batch), self._data.agreement.micro_batch))
        self._compute.zero_grad()
        loss = 0.0
        for together in [parts] if self._strategy.needs_whole_batch else [[p] for p in parts]:
            blocks = [self._receive(position.step, p) for p in together]  # ⟹ f(X)
            embeddings = torch.cat(blocks) if len(blocks) > 1 else blocks[0]
            rows = slice(together[0].start, together[-1].stop)
            share, gradient = self._loss_and_gradient(batch, rows, embeddings)
            loss += share
            for part, block in zip(together, gradient.split(_lengths(together)), strict=True):
                self._send(position, part.start, block)  # g ⟸
        self.is_consistent = False
        self._compute.step()
        self._average.update()
        self._run.history.losses.append(loss)
        self._run.history.rows += len(batch)
        self.is_consistent = True

    def _loss_and_gradient(
        self, batch: ActiveBatch, part: slice, embeddings: Tensor
    ) -> tuple[float, Tensor]:
        """The part's share of the batch's mean loss, and its gradients with respect to f(X).

        The gradients of `h` are left in its parameters: of all rows, or, with masking, of the rows
        with real labels only. The peer gets those of all rows in either case.
        """
        own = batch.features[part] if batch.features is not None else ()
        taken = self._compute.forward(embeddings.requires_grad_(), *own)
        logits = taken.outputs[0].requires_grad_()
        has_label = batch.has_label[part]
        request = LabelRequest(
            has_label=has_label,
            labels=batch.labels[part],
            uniforms=batch.uniforms[part][~has_label],
            predictions=model_output(logits).detach(),
            embeddings=embeddings.detach(),
            frequencies=self._frequencies,
        )
        wanted = targets(self._strategy, request)
        if self._kept is not None:
            unknown = ~has_label
            ranks = batch.ranks[part][unknown.cpu()]
            wanted[unknown] = self._kept.settle(ranks, wanted[unknown])
        loss = self._sent.loss(logits, wanted, len(batch))
        sent = torch.autograd.grad(loss, logits)
        if self._data.agreement.masking:
            gradient = taken.input_gradient(sent)
            real = max(int(batch.has_label.sum()), 1)
            own_loss = self._own_losses(taken, wanted)[has_label].sum() / real
            taken.backward(torch.autograd.grad(own_loss, taken.outputs))
        else:
            gradient = taken.backward_with_input_gradient(sent)
        return float(loss.detach()), gradient

    def _own_losses(self, taken: Pass, wanted: Tensor) -> Tensor:
        """From which `h` learns, and its prior where it has one."""
        logits, *priors = taken.outputs
        if not priors:
            return self._own.losses(logits, wanted)
        prior = priors[0].requires_grad_()
        identity = Mixture.identity(self._data.agreement.classes)
        calibrated = self._own.given(model_output(prior).detach())
        return calibrated.losses(logits, wanted) + cross_entropies(prior, wanted, identity)

    def _receive(self, step: int, part: slice) -> Tensor:
        with self._timer.measure("wait"):
            block = self._channel.receive(EmbeddingBlock)
        rows = self._wire.to_rows(block, step, part.start, part.stop - part.start)
        return rows.to(self._data.device)

    def _receive_test(self, epoch: int, part: slice) -> Tensor:
        with self._timer.measure("wait"):
            block = self._channel.receive(TestEmbeddingBlock)
        rows = self._wire.to_test_rows(block, epoch, part.start, part.stop - part.start)
        return rows.to(self._data.device)

    def _send(self, position: Position, start: int, gradient: Tensor) -> None:
        values = self._wire.to_data(gradient)
        with self._timer.measure("wire"):
            self._channel.send(GradientBlock(position.step, start, values))

    def end_epoch(self, epoch: int) -> EpochFigures:
        steps = self._run.schedule.steps_per_epoch
        loss = float(np.mean(self._run.history.losses[-steps:]))
        figures = EpochFigures(epoch, loss)
        if self._data.test is not None:
            with self._average.applied():
                scores, truth = self.score_test(epoch)
            quality = evaluate(truth, scores)
            self._tested = truth, scores
            figures = EpochFigures(epoch, loss, quality.auc, quality.ace, quality.log_loss)
        self._channel.send(EpochSummary(epoch, loss, figures.auc, figures.ace, figures.log_loss))
        self._timer.pause()
        return figures

    @torch.no_grad()
    def score_test(self, epoch: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Calibrated predictions for the test people in the order of their UIDs, and the truth."""
        test = self._data.test
        assert test is not None
        assert test.labels is not None
        order = test.membership.row_of_rank
        features = None
        if test.features is not None:
            features = FeatureRows.gather(test.features, order, self._data.device)
        scores = []
        for part in micro_batches(len(order), self._data.agreement.micro_batch):
            own = features[part] if features is not None else ()
            embeddings = self._receive_test(epoch, part)
            scores.append(predictions(self._model, self._own, embeddings, *own).cpu())
        return torch.cat(scores).numpy(), test.labels[order]

    @property
    def tested(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]] | None:
        """Truth and predictions of the last epoch's test, where there is a test table."""
        return self._tested

    def describe(self) -> dict[str, Any]:
        return {"top model": describe(self._model)}

    def calibration_points(self) -> CalibrationPoints | None:
        if self._tested is None or self._data.agreement.classes > 2:
            return None
        truth, scores = self._tested
        curve = calibration_curve(truth, scores, bins=min(BINS, len(truth)))
        return CalibrationPoints(curve.confidence, curve.accuracy, curve.count)

    def calibration(self) -> Calibration:
        return self._own

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        kept = self._kept.state() if self._kept is not None else {}
        return self._compute.state(average=self._average.state(), labels=kept)

    def load(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        self._compute.load(tensors, facts)
        self._average.restore(tensors_of("average", tensors))
        if self._kept is not None:
            self._kept.restore(tensors_of("labels", tensors))

    def finish(self) -> None:
        self._average.apply()

    def close(self) -> None:
        self._compute.close()


def _lengths(parts: list[slice]) -> list[int]:
    return [part.stop - part.start for part in parts]


def calibrations(
    data: TrainingData, frequencies: tuple[float, ...]
) -> tuple[Calibration, Calibration]:
    """For the gradients that are sent, and for this party's own update and predictions.

    They are the same without masking. With it each half learns from rows of its own, so each has a
    shift of its own: the bottom model from rows with real features, the top model from rows with
    real labels.
    """
    agreement, train = data.agreement, data.train
    counts = Counts.of_active(train.sizes, own_dummies=train.sizes.own - train.rows)
    expectation = label_strategy(agreement.labels.strategy, agreement.classes).expectation
    told_apart = not FEATURE_STRATEGIES[agreement.features.strategy].looks_real

    def shift(*, real_labels_only: bool, real_features_only: bool) -> Calibration:
        found = mixture(
            counts,
            frequencies,
            expectation,
            agreement.calibration,
            real_labels_only=real_labels_only,
            real_features_only=real_features_only,
        )
        return Calibration(agreement.calibration, found)

    masking = agreement.masking
    return (
        shift(real_labels_only=False, real_features_only=masking or told_apart),
        shift(real_labels_only=masking, real_features_only=told_apart),
    )


def make_active_half(setup: HalfSetup, channel: Channel, run: Run) -> ActiveHalf:
    """A new top model, with a tower where the party has features, ready to train."""
    model = make_agreed_active(
        setup.data.agreement,
        setup.model,
        numeric=setup.numeric,
        cardinalities=setup.cardinalities,
        device=setup.data.device,
        seed=setup.seed(run.draws),
    )
    return ActiveHalf(setup.data, model, make_compute("active", setup, model), channel, run)
