"""The passive party's side of training: send embeddings, receive gradients, update `f`."""

from __future__ import annotations

import math
from collections import deque
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from florist.common.core.errors import ConfigurationError, ProtocolViolation
from florist.common.core.interrupts import check_interrupt
from florist.common.label_aggregate.first_model import fit_first_model
from florist.common.session.answer_journal import BlockKind
from florist.common.synthetic.donor_pool import DonorPool
from florist.common.synthetic.embedding_noise import EmbeddingNoise
from florist.common.synthetic.feature_strategies import (
    DonorStrategy,
    EmbeddingStrategy,
    agreed_feature_strategy,
)
from florist.common.synthetic.label_strategies import label_strategy
from florist.common.synthetic.stand_ins import StandIns
from florist.common.training.averaging import WeightAverage
from florist.common.training.distributed import make_compute
from florist.common.training.half_state import tensors_of
from florist.common.training.history import EpochFigures, StepTimer
from florist.common.training.micro_batches import micro_batches, pipelined_micro_batches
from florist.common.training.model_factory import describe, make_bottom
from florist.common.training.row_codec import RowCodec
from florist.common.training.scale_bound import ScaleBound
from florist.common.training.seen_rows import SeenRows
from florist.common.training.torch_batch import FeatureRows
from florist.common.transport.messages import EpochSummary, GradientBlock, TestEmbeddingBlock
from florist.passive_party.label_aggregate import collect_aggregate
from florist.passive_party.offering import DonorEmbeddings, ObliviousSending
from florist.passive_party.sending import PlainSending

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    from torch import Tensor

    from florist.common.data.features import Features
    from florist.common.label_aggregate.first_model import FirstModel
    from florist.common.synthetic.feature_strategies import FeatureStrategy
    from florist.common.training.compute import Compute, Pass
    from florist.common.training.feed import Position
    from florist.common.training.half_setup import HalfSetup
    from florist.common.training.loop import Run
    from florist.common.training.models import BottomModel
    from florist.common.training.run_facts import HalfFacts
    from florist.common.training.training_data import TrainingData
    from florist.common.transport.channel import Channel
    from florist.passive_party.offering import MakePool
    from florist.passive_party.sending import Parcel, PreparedSending, Sending, StepSending


#: Micro-batches in flight at once, so that both parties always have one to work on. (A peer that
#: needs the whole batch reads all of it before it answers; then the window is the whole batch.)
WINDOW = 4


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PassiveBatch:
    """The embeddings to send for a batch, stand-ins included, and which rows are real."""

    prepared: PreparedSending[Any]
    is_real: Tensor

    def __len__(self) -> int:
        return len(self.is_real)


class PassiveHalf:
    """The bottom model `f` in training."""

    def __init__(
        self,
        data: TrainingData,
        model: BottomModel,
        compute: Compute,
        channel: Channel,
        run: Run,
        first_model: FirstModel | None = None,
        make_pool: MakePool = DonorPool,
    ) -> None:
        agreement, features = data.agreement, data.train.features
        if features is None:
            raise ConfigurationError("data.train: the passive party needs feature columns")
        self._data = data
        self._features = features
        self._model = model
        self._compute = compute
        self._channel = channel
        self._run = run
        self._timer = StepTimer(run.history)
        self._codec = RowCodec(agreement.wire_type, agreement.wire_width)
        self._embedding_bound = ScaleBound.of_embeddings()
        self._gradient_bound = ScaleBound.of_gradients(agreement.known_batch_size)
        self._strategy = agreed_feature_strategy(agreement, len(features), run.draws)
        self._sending = make_sending(
            data, features, model, self._strategy, self._codec, run, make_pool
        )
        if first_model is not None and agreement.has_donors_from_the_start:
            self._sending.start_with(first_model, features.categories)
        self._rank_of_row = data.train.membership.rank_of_row
        self._average = WeightAverage(model, on=agreement.averaging)
        #: False while a step is changing the state.
        self.is_consistent = True
        whole_batch = label_strategy(agreement.labels.strategy, agreement.classes).needs_whole_batch
        self._window = agreement.known_batch_size if whole_batch else WINDOW

    def prepare(self, position: Position, ranks: npt.NDArray[np.int64]) -> PassiveBatch:
        is_real = torch.from_numpy(self._data.train.membership.rows(ranks) >= 0)
        prepared = self._sending.prepare(position, ranks)
        return PassiveBatch(prepared, is_real.to(self._data.device))

    def step(self, position: Position, batch: PassiveBatch) -> None:
        """Run the passive party's side of a step: the left half of the paper's training table.

        Forward:   X → f → f(X) ⟹
        Backward:  the gradients of f's parameters ← g ⟸
        """
        self._compute.zero_grad()
        sending = batch.prepared.begin()
        with self._restored_if_interrupted():
            self._exchange(position, batch, sending)
        self._run.journal.begin_sync()  # while the next embeddings are computed
        self.is_consistent = False
        self._compute.step(position.step)
        self._average.update()
        self._sending.finish(sending)
        self._run.history.rows += len(batch)
        self.is_consistent = True

    def _exchange(self, position: Position, batch: PassiveBatch, sending: StepSending) -> None:
        """Send the embeddings of a batch, and learn from the gradients that come back."""
        in_flight: deque[tuple[Parcel, Pass]] = deque()
        for part, model_pass, embeddings in self._forward(position, batch, sending.features):
            if len(in_flight) == self._window:
                self._backward(position, batch, sending, *in_flight.popleft())
            parcel = sending.parcel(part, embeddings.detach().cpu())
            self._send(position, parcel)  # f(X) ⟹
            in_flight.append((parcel, model_pass))
        for parcel, model_pass in in_flight:
            self._backward(position, batch, sending, parcel, model_pass)  # ⟸ g

    @contextmanager
    def _restored_if_interrupted(self) -> Iterator[None]:
        """Undo what the exchange changes before the step is complete: the strategy's statistics."""
        if not isinstance(self._strategy, EmbeddingStrategy):
            yield
            return
        before = {name: tensor.clone() for name, tensor in self._strategy.state().items()}
        self.is_consistent = False
        try:
            yield
        except BaseException:
            self._strategy.restore(before)
            self.is_consistent = True
            raise

    def between_steps(self) -> None:
        check_interrupt()  # the peer has sent all of this step, so it completes the step as well

    def _forward(
        self, position: Position, batch: PassiveBatch, features: FeatureRows
    ) -> Iterator[tuple[slice, Pass, Tensor]]:
        """Yield each micro-batch with its pass through `f` and the embeddings to send."""
        parts = list(pipelined_micro_batches(len(batch), self._data.agreement.micro_batch))
        passes = (self._compute.forward(*features[part]) for part in parts)
        if isinstance(self._strategy, DonorStrategy):
            for part, model_pass in zip(parts, passes, strict=True):
                yield part, model_pass, model_pass.outputs[0]
        else:
            all_passes = list(passes)
            embeddings = torch.cat([each.outputs[0] for each in all_passes])
            mixed = self._with_synthetic(position, batch, embeddings)
            for part, model_pass in zip(parts, all_passes, strict=True):
                yield part, model_pass, mixed[part]

    def _send(self, position: Position, parcel: Parcel) -> None:
        message = parcel.message
        self._embedding_bound.check_sent(self._codec.decode(parcel.plain), position.step)
        self._run.journal.sent(parcel.kind, position.step, message.start, message.values)
        # Embeddings depend on the gradients of the steps before, and offers on the choices.
        if message.start == 0:
            self._run.journal.settle_received()
        with self._timer.measure("wire"):
            self._channel.send(message)

    def _backward(
        self,
        position: Position,
        batch: PassiveBatch,
        sending: StepSending,
        parcel: Parcel,
        model_pass: Pass,
    ) -> None:
        """Receive the peer's gradients, and learn from those rows from which `f` may learn."""
        part = parcel.part
        with self._timer.measure("wait"):
            block = self._channel.receive(GradientBlock)
        rows = self._codec.decode_block(block, position.step, part.start, part.stop - part.start)
        self._gradient_bound.check_received(rows, position.step)
        self._run.journal.received(BlockKind.GRADIENTS, position.step, part.start, block.values)
        opened = sending.opened(parcel, rows)
        if self._run.observe is not None:
            origins = self._rank_of_row[opened.rows]
            self._run.observe(
                SeenRows(position.step, part.start, opened.embeddings, block.values, origins)
            )
        gradient = rows.to(self._data.device)
        if not self._learns_from_stand_ins:
            gradient = gradient * batch.is_real[part, None]
        model_pass.backward((gradient,))

    @property
    def _learns_from_stand_ins(self) -> bool:
        if self._data.agreement.masking or isinstance(self._strategy, EmbeddingStrategy):
            return False
        return self._sending.teaches_stand_ins

    def _with_synthetic(
        self, position: Position, batch: PassiveBatch, embeddings: Tensor
    ) -> Tensor:
        """Return the batch's embeddings with those of stand-ins replaced by synthetic ones."""
        assert isinstance(self._strategy, EmbeddingStrategy)
        synthetic = self._strategy.embeddings(
            embeddings[batch.is_real].cpu(),
            int((~batch.is_real).sum()),
            position.epoch,
            position.step,
        )
        mixed = embeddings.clone()
        mixed[~batch.is_real] = synthetic.to(mixed.device)
        return mixed

    def end_epoch(self, epoch: int) -> EpochFigures:
        if self._data.test is not None:
            with self._average.applied():
                self._run.journal.settle_received()
                for start, embeddings in self.test_embeddings():
                    values = self._codec.encode(embeddings)
                    self._run.journal.sent(BlockKind.TEST_EMBEDDINGS, epoch, start, values)
                    self._channel.send(TestEmbeddingBlock(epoch, start, values))
        summary = self._channel.receive(EpochSummary)
        figures = EpochFigures(epoch, summary.loss, summary.auc, summary.ace, summary.log_loss)
        is_tested = figures.auc is not None
        if summary.epoch != epoch or is_tested != (self._data.test is not None):
            raise ProtocolViolation(f"the peer's summary is not for epoch {epoch}")
        if not all(math.isfinite(value) for value in astuple(figures) if value is not None):
            raise ProtocolViolation(f"the peer's summary of epoch {epoch} contains NaN or infinity")
        self._timer.pause()
        return figures

    @torch.no_grad()
    def test_embeddings(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the first rank and the embeddings of each micro-batch of the test union.

        Both test tables have the same people; the other UIDs are padding and get stand-ins.
        """
        test = self._data.test
        assert test is not None
        assert test.features is not None
        draws = self._run.draws.derive("test stand-ins")
        stand_ins = StandIns.sampled(test.membership, len(test.features), draws)
        for part in micro_batches(test.sizes.union, self._data.agreement.micro_batch):
            shown = stand_ins.rows(np.arange(part.start, part.stop))
            rows = FeatureRows.gather(test.features, shown, self._data.device)
            yield part.start, self._model(rows.numeric, rows.categories)

    def describe(self) -> dict[str, str]:
        return {"bottom model": describe(self._model)}

    def calibration_points(self) -> None:
        """Return None: only the active party has labels."""

    def calibration(self) -> None:
        """Return None: only the active party calibrates."""

    def state(self) -> tuple[dict[str, Tensor], HalfFacts]:
        strategy = self._strategy.state() if isinstance(self._strategy, EmbeddingStrategy) else {}
        average = self._average.state()
        return self._compute.state(
            strategy=strategy, average=average, sending=self._sending.state()
        )

    def load(self, tensors: dict[str, Tensor], facts: HalfFacts) -> None:
        self._compute.load(tensors, facts)
        self._average.restore(tensors_of("average", tensors))
        if isinstance(self._strategy, EmbeddingStrategy):
            self._strategy.restore(tensors_of("strategy", tensors))
        self._sending.restore(tensors_of("sending", tensors))

    def finish(self) -> None:
        self._average.apply()

    def close(self) -> None:
        self._compute.close()


def make_sending(
    data: TrainingData,
    features: Features,
    model: BottomModel,
    strategy: FeatureStrategy,
    codec: RowCodec,
    run: Run,
    make_pool: MakePool = DonorPool,
) -> Sending[Any]:
    """Return how embeddings are sent, as agreed. Oblivious stand-ins begin with base transfers."""
    agreement, membership = data.agreement, data.train.membership
    noise = EmbeddingNoise(agreement.embedding_noise, run.draws)

    def gather(rows: npt.NDArray[np.int64]) -> FeatureRows:
        return FeatureRows.gather(features, rows, data.device)

    if agreement.stand_ins == "plain":
        return PlainSending(gather, StandIns.of_strategy(membership, strategy), noise, codec)
    lacked = 1 - len(features) / data.train.sizes.union
    donors = DonorEmbeddings(gather, model, noise, codec, lacked)
    return ObliviousSending(data, donors, run, make_pool)


def make_passive_half(
    setup: HalfSetup, channel: Channel, run: Run, make_pool: MakePool = DonorPool
) -> PassiveHalf:
    """Make a new bottom model, ready to train; `make_pool` makes the pool of its donors."""
    model = make_bottom(
        setup.model,
        numeric=setup.numeric,
        cardinalities=setup.cardinalities,
        cut_width=setup.data.agreement.cut_width,
        wide=setup.data.agreement.wide_outputs,
        device=setup.data.device,
        seed=setup.seed(run.draws),
    )
    first_model = _first_model(setup, run) if run.aggregate is not None else None
    if first_model is not None and "weights" in setup.data.agreement.aggregate.uses:
        model.start_wide_part(torch.from_numpy(first_model.category_weights()))
    compute = make_compute("passive", setup, model)
    return PassiveHalf(setup.data, model, compute, channel, run, first_model, make_pool)


def _first_model(setup: HalfSetup, run: Run) -> FirstModel | None:
    """Learn the label aggregate, and fit the first model to it; None without categories."""
    features = setup.data.train.features
    assert run.aggregate is not None
    if features is None:
        return None  # an error that `PassiveHalf` reports
    aggregate = collect_aggregate(run.aggregate, setup.data, features, setup.cardinalities)
    if aggregate is None:
        return None
    random = np.random.RandomState(np.frombuffer(run.draws.derive("first model").secret, "<u4"))
    with run.aggregate.progress.step("fitting the first model"):
        first_model = fit_first_model(aggregate, features.categories, random)
    if run.observe_aggregate is not None:
        run.observe_aggregate(aggregate, first_model)
    return first_model
