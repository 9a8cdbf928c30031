"""The active party's side of training: receive embeddings, send gradients, update `h`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from florist.active_party.calibrations import Calibrations
from florist.active_party.label_aggregate import send_aggregate
from florist.active_party.receiving import make_receiving
from florist.common.core.errors import ConfigurationError
from florist.common.core.interrupts import check_interrupt
from florist.common.evaluation.metrics import BINS, calibration_curve, evaluate
from florist.common.session.answer_journal import BlockKind
from florist.common.synthetic.calibration import Mixture, cross_entropies, model_output
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
from florist.common.training.models import above_zero, base_logits, start_at
from florist.common.training.predictions import predictions
from florist.common.training.row_codec import RowCodec
from florist.common.training.scale_bound import ScaleBound
from florist.common.training.seen_rows import SeenRows
from florist.common.training.torch_batch import FeatureRows
from florist.common.transport.messages import EpochSummary, GradientBlock, TestEmbeddingBlock

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from florist.active_party.receiving import BatchReceiving
    from florist.common.synthetic.calibration import Calibration
    from florist.common.training.compute import Compute, Pass
    from florist.common.training.feed import Position
    from florist.common.training.half_setup import HalfSetup
    from florist.common.training.loop import Run
    from florist.common.training.models import ActiveModel
    from florist.common.training.run_facts import HalfFacts
    from florist.common.training.training_data import TrainingData
    from florist.common.transport.channel import Channel
    from florist.common.transport.messages import EmbeddingBlock


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
    embeddings: BatchReceiving

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
        self._codec = RowCodec(agreement.wire_type, agreement.wire_width)
        self._embedding_bound = ScaleBound.of_embeddings()
        self._gradient_bound = ScaleBound.of_gradients(agreement.known_batch_size)
        self._frequencies = class_frequencies(self._labels, agreement.classes)
        self._strategy = label_strategy(agreement.labels.strategy, agreement.classes)
        self._draws = LabelDraws(run.draws, agreement.labels.samples, agreement.sticky)
        self._calibrations = Calibrations.of_run(data, self._frequencies)
        self._own_calibration = self._calibrations.final
        #: Logits at the base rate, to which the peer's share of the logits is added.
        rates = self._calibrations.gradients(0).output_rates(self._frequencies)
        self._base = base_logits(above_zero(rates, len(self._labels))).to(data.device)
        self._average = WeightAverage(model, on=agreement.averaging)
        #: False while a step is changing the state.
        self.is_consistent = True
        self._sticky_targets: KeptTargets | None = None
        if agreement.sticky and agreement.epochs > 1:
            self._sticky_targets = KeptTargets(train.sizes.union, agreement.classes)
        self._receiving = make_receiving(agreement, self._codec.row_bytes, run)
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
        labels = np.where(has_label, self._labels[rows], -1)
        return ActiveBatch(
            torch.from_numpy(ranks),
            torch.from_numpy(np.maximum(labels, 0)).to(device),
            torch.from_numpy(has_label).to(device),
            self._draws.for_rows(ranks, position.epoch).to(device),
            features,
            self._receiving.prepare(position, ranks, labels),
        )

    def step(self, position: Position, batch: ActiveBatch) -> None:
        """Run the active party's side of a step: the right half of the paper's training table.

        Forward:   ⟹ f(X) → h → logits → L(logits, y)
        Backward:  ⟸ g = dL/df(X) ← dL/dlogits ← 1, and ↓ the gradients of h's parameters
        """
        all_parts = list(pipelined_micro_batches(len(batch), self._data.agreement.micro_batch))
        self._compute.zero_grad()
        loss = 0.0
        whole = self._strategy.needs_whole_batch
        for together in [all_parts] if whole else [[part] for part in all_parts]:
            blocks = [self._receive(position, batch, part) for part in together]  # ⟹ f(X)
            if together[0].start == 0:
                check_interrupt()  # the peer has completed the last step, and cannot complete this
            self._run.journal.begin_sync()  # while the gradients are computed
            decoded = [rows for _, rows in blocks]
            embeddings = torch.cat(decoded) if len(decoded) > 1 else decoded[0]
            rows = slice(together[0].start, together[-1].stop)
            loss_share, gradient = self._loss_and_gradient(batch, rows, embeddings, position.step)
            loss += loss_share
            parts = gradient.split([len(each) for each in decoded])
            for (block, _), part_gradient in zip(blocks, parts, strict=True):
                self._send(position, block, part_gradient)  # ⟸ g
        self.is_consistent = False
        self._compute.step(position.step)
        self._average.update()
        self._run.history.losses.append(loss)
        self._run.history.rows += len(batch)
        self.is_consistent = True

    def between_steps(self) -> None:
        """Do not stop: the peer may still need what was sent last. The next step stops."""

    def _loss_and_gradient(
        self, batch: ActiveBatch, part: slice, embeddings: Tensor, step: int
    ) -> tuple[float, Tensor]:
        """Return the part's share of the batch's mean loss, and its gradient with respect to f(X).

        It also accumulates the gradients of `h`'s parameters: from all rows, or with masking only
        from rows with real labels. The peer gets the gradients of all rows in either case.
        """
        own = batch.features[part] if batch.features is not None else ()
        model_pass = self._compute.forward(embeddings.requires_grad_(), *own)
        logits = self._peer_logits(model_pass, embeddings)
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
        loss = self._calibrations.gradients(step).loss(logits, target, len(batch))
        logit_gradient = torch.autograd.grad(loss, logits)
        agreement = self._data.agreement
        if not agreement.masking and not agreement.shows_shares_only:
            return float(loss.detach()), model_pass.backward_with_input_gradient(logit_gradient)
        if agreement.shows_shares_only:
            gradient = logit_gradient[0].reshape(embeddings.shape)
        else:
            gradient = model_pass.input_gradient(logit_gradient)
        learned = has_label if agreement.masking else torch.ones_like(has_label)
        rows = max(int(batch.has_label.sum()), 1) if agreement.masking else len(batch)
        own_loss = self._own_losses(model_pass, embeddings, target, step)[learned].sum() / rows
        model_pass.backward(torch.autograd.grad(own_loss, model_pass.outputs))
        return float(loss.detach()), gradient

    def _peer_logits(self, model_pass: Pass, embeddings: Tensor) -> Tensor:
        """Return the logits whose gradient the peer gets, and from which labels are drawn.

        They are those of the whole model, or with `own-share` those of the peer's features alone:
        its share of the logits, and the base rate.
        """
        if not self._data.agreement.shows_shares_only:
            return model_pass.outputs[0].requires_grad_()
        shares = embeddings.detach()
        return (self._base + (shares[:, 0] if shares.shape[1] == 1 else shares)).requires_grad_()

    def _own_losses(
        self, model_pass: Pass, embeddings: Tensor, target: Tensor, step: int
    ) -> Tensor:
        """Return the loss of each row from which `h` and its prior, if it has one, learn."""
        logits, *priors = model_pass.outputs
        logits.requires_grad_()
        if not priors:
            return self._calibrations.own(step).losses(logits, target)
        prior = priors[0].requires_grad_()
        independent = None
        if self._data.agreement.shows_shares_only:
            # By Bayes' rule the log odds of independent features add up.
            shares = embeddings.detach()
            both = prior.detach() + (shares[:, 0] if shares.shape[1] == 1 else shares)
            independent = model_output(both)
        identity = Mixture.identity(self._data.agreement.classes)
        calibrated = self._calibrations.own_given(step, model_output(prior).detach(), independent)
        return calibrated.losses(logits, target) + cross_entropies(prior, target, identity)

    def _receive(
        self, position: Position, batch: ActiveBatch, part: slice
    ) -> tuple[EmbeddingBlock, Tensor]:
        """Receive the embeddings of a part; return the block, opened, and its rows."""
        with self._timer.measure("wait"):
            received = batch.embeddings.receive(self._channel, part)
        step, opened = position.step, received.opened
        rows = self._codec.decode_block(opened, step, part.start, part.stop - part.start)
        self._embedding_bound.check_received(rows, step)
        self._run.journal.received(received.kind, step, part.start, received.message.values)
        return opened, rows.to(self._data.device)

    def _receive_test(self, epoch: int, part: slice) -> Tensor:
        with self._timer.measure("wait"):
            block = self._channel.receive(TestEmbeddingBlock)
        rows = self._codec.decode_test_block(block, epoch, part.start, part.stop - part.start)
        self._run.journal.received(BlockKind.TEST_EMBEDDINGS, epoch, part.start, block.values)
        return rows.to(self._data.device)

    def _send(self, position: Position, embeddings: EmbeddingBlock, gradient: Tensor) -> None:
        """Answer a block of embeddings with its gradient."""
        values, start = self._codec.encode(gradient), embeddings.start
        self._gradient_bound.check_sent(self._codec.decode(values), position.step)
        self._run.journal.sent(BlockKind.GRADIENTS, position.step, start, values)
        self._run.journal.settle_received()
        with self._timer.measure("wire"):
            self._channel.send(GradientBlock(position.step, start, values))
        if self._run.observe is not None:
            self._run.observe(SeenRows(position.step, start, embeddings.values, values))

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


def start_at_base_rate(model: ActiveModel, data: TrainingData) -> None:
    """Make the first predictions of a new model match the party's own class frequencies.

    `label-random-pred` draws labels from the predictions. If the model started at other rates, such
    as one half, the peer could tell synthetic labels from real ones in the first batches.
    """
    labels = own_labels(data)
    frequencies = class_frequencies(labels, data.agreement.classes)
    calibration = Calibrations.of_run(data, frequencies).own(0)
    rates = calibration.output_rates(frequencies)
    start_at(model.top.output, above_zero(rates, len(labels)))
    if model.prior is not None:
        start_at(model.prior.output, above_zero(frequencies, len(labels)))


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
    if run.aggregate is not None:
        send_aggregate(run.aggregate, setup.data, own_labels(setup.data))
    return ActiveHalf(setup.data, model, make_compute("active", setup, model), channel, run)
