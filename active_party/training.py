"""The active party's side of training: receive embeddings, send gradients, update `h`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from florist.common.core.errors import ConfigurationError
from florist.common.evaluation.metrics import BINS, calibration_curve, evaluate
from florist.common.session.answer_journal import BlockKind
from florist.common.synthetic.calibration import (
    Calibration,
    Counts,
    Mixture,
    cross_entropies,
    mixture,
    model_output,
)
from florist.common.synthetic.feature_strategies import FEATURE_STRATEGIES
from florist.common.synthetic.label_draws import KeptTargets, LabelDraws
from florist.common.synthetic.label_strategies import (
    LabelRequest,
    class_frequencies,
    label_strategy,
    targets,
)
from florist.common.synthetic.stand_ins import StandIns
from florist.common.training.averaging import WeightAverage
from florist.common.training.distributed import make_compute
from florist.common.training.half_state import tensors_of
from florist.common.training.history import CalibrationPoints, EpochFigures, StepTimer
from florist.common.training.micro_batches import micro_batches, pipelined_micro_batches
from florist.common.training.model_factory import describe, make_agreed_active
from florist.common.training.models import start_at
from florist.common.training.predictions import predictions
from florist.common.training.row_codec import RowCodec
from florist.common.training.scale_bound import ScaleBound
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
    from florist.common.training.run_facts import HalfFacts
    from florist.common.training.training_data import TrainingData
    from florist.common.transport.channel import Channel


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ActiveBatch:
    """The active party's data of a batch."""

    #: Rank in `U` of each row.
    ranks: Tensor
    #: Real labels; 0 for rows without a label.
    labels: Tensor
    has_label: Tensor
    #: Random draws for each row; used for rows without a label.
    uniforms: Tensor
    features: FeatureRows | None

    def __len__(self) -> int:
        return len(self.labels)


class ActiveHalf:
    """The top model `h`, with the tower of own features if there are any, in training."""

    def __init__(
        self,
        data: TrainingData,
        model: ActiveModel,
        compute: Compute,
        channel: Channel,
        run: Run,
    ) -> None:
        agreement, train = data.agreement, data.train
        self._data = data
        self._labels = own_labels(data)
        self._model = model
        self._compute = compute
        self._channel = channel
        self._run = run
        self._timer = StepTimer(run.history)
        self._codec = RowCodec(agreement.wire_type, agreement.cut_width)
        self._embedding_bound = ScaleBound.of_embeddings()
        self._gradient_bound = ScaleBound.of_gradients(agreement.batch_size)
        self._frequencies = class_frequencies(self._labels, agreement.classes)
        self._strategy = label_strategy(agreement.labels.strategy, agreement.classes)
        self._draws = LabelDraws(run.draws, agreement.labels.samples, agreement.sticky)
        self._gradient_calibration, self._own_calibration = calibrations(data, self._frequencies)
        self._average = WeightAverage(model, on=agreement.averaging)
        #: False while a step is changing the state.
        self.is_consistent = True
        self._sticky_targets: KeptTargets | None = None
        if agreement.sticky and agreement.epochs > 1:
            self._sticky_targets = KeptTargets(train.sizes.union, agreement.classes)
        self._tested: tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]] | None = None
        self._stand_ins = StandIns.sampled(
            train.membership, len(self._labels), run.draws, sticky=agreement.sticky
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
        """Run the active party's side of a step: the right half of the paper's training table.

        Forward:   ⟹ f(X) → h → logits → L(logits, y)
        Backward:  ⟸ g = dL/df(X) ← dL/dlogits ← 1, and ↓ the gradients of h's parameters
        """
        parts = list(pipelined_micro_batches(len(batch), self._data.agreement.micro_batch))
        self._compute.zero_grad()
        loss = 0.0
        for together in [parts] if self._strategy.needs_whole_batch else [[p] for p in parts]:
            blocks = [self._receive(position.step, p) for p in together]  # ⟹ f(X)
            self._run.journal.begin_sync()  # while the gradients are computed
            embeddings = torch.cat(blocks) if len(blocks) > 1 else blocks[0]
            rows = slice(together[0].start, together[-1].stop)
            loss_share, gradient = self._loss_and_gradient(batch, rows, embeddings)
            loss += loss_share
            for part, block in zip(together, gradient.split(_lengths(together)), strict=True):
                self._send(position, part.start, block)  # ⟸ g
        self.is_consistent = False
        self._compute.step()
        self._average.update()
        self._run.history.losses.append(loss)
        self._run.history.rows += len(batch)
        self.is_consistent = True

    def _loss_and_gradient(
        self, batch: ActiveBatch, part: slice, embeddings: Tensor
    ) -> tuple[float, Tensor]:
        """Return the part's share of the batch's mean loss, and its gradient with respect to f(X).

        It also accumulates the gradients of `h`'s parameters: from all rows, or with masking only
        from rows with real labels. The peer gets the gradients of all rows in either case.
        """
        own = batch.features[part] if batch.features is not None else ()
        model_pass = self._compute.forward(embeddings.requires_grad_(), *own)
        logits = model_pass.outputs[0].requires_grad_()
        has_label = batch.has_label[part]
        request = LabelRequest(
            has_label=has_label,
            labels=batch.labels[part],
            uniforms=batch.uniforms[part][~has_label],
            predictions=model_output(logits).detach(),
            embeddings=embeddings.detach(),
            frequencies=self._frequencies,
        )
        target = targets(self._strategy, request)
        if self._sticky_targets is not None:
            synthetic = ~has_label
            ranks = batch.ranks[part][synthetic.cpu()]
            target[synthetic] = self._sticky_targets.settle(ranks, target[synthetic])
        loss = self._gradient_calibration.loss(logits, target, len(batch))
        logit_gradient = torch.autograd.grad(loss, logits)
        if self._data.agreement.masking:
            gradient = model_pass.input_gradient(logit_gradient)
            real_rows = max(int(batch.has_label.sum()), 1)
            own_loss = self._own_losses(model_pass, target)[has_label].sum() / real_rows
            model_pass.backward(torch.autograd.grad(own_loss, model_pass.outputs))
        else:
            gradient = model_pass.backward_with_input_gradient(logit_gradient)
        return float(loss.detach()), gradient

    def _own_losses(self, model_pass: Pass, target: Tensor) -> Tensor:
        """Return the loss of each row from which `h` and its prior, if it has one, learn."""
        logits, *priors = model_pass.outputs
        if not priors:
            return self._own_calibration.losses(logits, target)
        prior = priors[0].requires_grad_()
        identity = Mixture.identity(self._data.agreement.classes)
        calibrated = self._own_calibration.given(model_output(prior).detach())
        return calibrated.losses(logits, target) + cross_entropies(prior, target, identity)

    def _receive(self, step: int, part: slice) -> Tensor:
        with self._timer.measure("wait"):
            block = self._channel.receive(EmbeddingBlock)
        rows = self._codec.decode_block(block, step, part.start, part.stop - part.start)
        self._embedding_bound.check_received(rows, step)
        self._run.journal.received(BlockKind.EMBEDDINGS, step, part.start, block.values)
        return rows.to(self._data.device)

    def _receive_test(self, epoch: int, part: slice) -> Tensor:
        with self._timer.measure("wait"):
            block = self._channel.receive(TestEmbeddingBlock)
        rows = self._codec.decode_test_block(block, epoch, part.start, part.stop - part.start)
        self._run.journal.received(BlockKind.TEST_EMBEDDINGS, epoch, part.start, block.values)
        return rows.to(self._data.device)

    def _send(self, position: Position, start: int, gradient: Tensor) -> None:
        values = self._codec.encode(gradient)
        self._gradient_bound.check_sent(self._codec.decode(values), position.step)
        self._run.journal.sent(BlockKind.GRADIENTS, position.step, start, values)
        self._run.journal.settle_received()
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
        self._run.journal.settle_received()
        self._channel.send(EpochSummary(epoch, loss, figures.auc, figures.ace, figures.log_loss))
        self._timer.pause()
        return figures

    @torch.no_grad()
    def score_test(self, epoch: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Return calibrated predictions for the test table in rank order, and the true classes."""
        test = self._data.test
        assert test is not None
        assert test.labels is not None
        order = test.membership.row_of_rank
        is_own = order >= 0  # the other UIDs are padding
        features = None
        if test.features is not None:
            rows = np.maximum(order, 0)
            features = FeatureRows.gather(test.features, rows, self._data.device)
        scores = []
        for part in micro_batches(len(order), self._data.agreement.micro_batch):
            own = features[part] if features is not None else ()
            embeddings = self._receive_test(epoch, part)
            scores.append(predictions(self._model, self._own_calibration, embeddings, *own).cpu())
        return torch.cat(scores).numpy()[is_own], test.labels[order[is_own]]

    @property
    def tested(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]] | None:
        """True classes and predictions of the last epoch's test, if there is a test table."""
        return self._tested

    def describe(self) -> dict[str, str]:
        return {"top model": describe(self._model)}

    def calibration_points(self) -> CalibrationPoints | None:
        if self._tested is None or self._data.agreement.classes > 2:
            return None
        truth, scores = self._tested
        curve = calibration_curve(truth, scores, bins=min(BINS, len(truth)))
        return CalibrationPoints(curve.confidence, curve.accuracy, curve.count)

    def calibration(self) -> Calibration:
        return self._own_calibration

    def state(self) -> tuple[dict[str, Tensor], HalfFacts]:
        labels = self._sticky_targets.state() if self._sticky_targets is not None else {}
        return self._compute.state(average=self._average.state(), labels=labels)

    def load(self, tensors: dict[str, Tensor], facts: HalfFacts) -> None:
        self._compute.load(tensors, facts)
        self._average.restore(tensors_of("average", tensors))
        if self._sticky_targets is not None:
            self._sticky_targets.restore(tensors_of("labels", tensors))

    def finish(self) -> None:
        self._average.apply()

    def close(self) -> None:
        self._compute.close()


def _lengths(parts: list[slice]) -> list[int]:
    return [part.stop - part.start for part in parts]


def calibrations(
    data: TrainingData, frequencies: tuple[float, ...]
) -> tuple[Calibration, Calibration]:
    """Return the calibrations of the gradients for the peer, and of own updates and predictions.

    Without masking they are the same. With masking each half learns from different rows and so has
    its own shift: the bottom model from rows with real features, the top model from rows with real
    labels.
    """
    agreement, train = data.agreement, data.train
    counts = Counts.of_active(train.sizes, train.rows)
    expectation = label_strategy(agreement.labels.strategy, agreement.classes).expectation
    distinguishable = not FEATURE_STRATEGIES[agreement.features.strategy].looks_real

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
        shift(real_labels_only=False, real_features_only=masking or distinguishable),
        shift(real_labels_only=masking, real_features_only=distinguishable),
    )


def start_at_base_rate(model: ActiveModel, data: TrainingData) -> None:
    """Make the first predictions of a new model match the party's own class frequencies.

    `label-random-pred` draws labels from the predictions. If the model started at other rates, such
    as one half, the peer could tell synthetic labels from real ones in the first batches.
    """
    labels = own_labels(data)
    # A class without rows counts as half a row: its logarithm must be finite.
    least = 0.5 / len(labels)
    frequencies = class_frequencies(labels, data.agreement.classes)

    def positive(rates: tuple[float, ...]) -> list[float]:
        raised = [max(rate, least) for rate in rates]
        return [rate / sum(raised) for rate in raised]

    _, own_calibration = calibrations(data, frequencies)
    start_at(model.top.output, positive(own_calibration.output_rates(frequencies)))
    if model.prior is not None:
        start_at(model.prior.output, positive(frequencies))


def own_labels(data: TrainingData) -> npt.NDArray[np.int64]:
    """Return the party's own labels.

    Raises:
        ConfigurationError: the table has no label column.
    """
    if data.train.labels is None:
        raise ConfigurationError("data.train.label: the active party needs a label column")
    return data.train.labels


def make_active_half(setup: HalfSetup, channel: Channel, run: Run) -> ActiveHalf:
    """Make a new top model, with a tower if the party has features, ready to train."""
    model = make_agreed_active(
        setup.data.agreement,
        setup.model,
        numeric=setup.numeric,
        cardinalities=setup.cardinalities,
        device=setup.data.device,
        seed=setup.seed(run.draws),
    )
    start_at_base_rate(model, setup.data)
    return ActiveHalf(setup.data, model, make_compute("active", setup, model), channel, run)
