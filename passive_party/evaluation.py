"""The passive party's part in an evaluation: an embedding for every UID, figures back."""

from __future__ import annotations

import math
from dataclasses import astuple
from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ProtocolViolation
from florist.common.evaluation.evaluation import Evaluation
from florist.common.evaluation.private_estimate import Estimate
from florist.common.evaluation.reserved_rows import evaluation_stand_ins
from florist.common.synthetic.features import EmbeddingNoise
from florist.common.training.blocks import Wire, micro_batches
from florist.common.transport.messages import EvaluationEmbeddingBlock, EvaluationSummary

if TYPE_CHECKING:
    from florist.common.bundle.bundle import PassiveBundle
    from florist.common.core.progress import StepProgress
    from florist.common.evaluation.parts import EvaluationParts
    from florist.common.transport.channel import Channel


def evaluate_passive(
    bundle: PassiveBundle, parts: EvaluationParts, channel: Channel, progress: StepProgress
) -> Evaluation | None:
    """Send all embeddings, in the order of UIDs; what the peer tells of them, if agreed.

    The same model on the same union sends the same bytes again, so that nothing is learnt by
    repeating.

    Raises:
        ProtocolViolation: the peer has too many people in the union, or tells what is no estimate.
    """
    agreement = bundle.agreement.training
    assert parts.features is not None
    stand_ins = evaluation_stand_ins(parts)
    union_size = parts.sizes.union
    wire = Wire(agreement.wire_type, agreement.cut_width)
    noise = _noise(bundle, parts)
    progress.expect(union_size)
    for part in micro_batches(union_size, agreement.micro_batch):
        rows = stand_ins.rows(np.arange(part.start, part.stop))
        embeddings = bundle.embed(parts.features.take(rows)).cpu()
        values = wire.to_data(noise(embeddings, part.start))
        channel.send(EvaluationEmbeddingBlock(part.start, values))
        progress.advance(len(embeddings))
    summary = channel.receive(EvaluationSummary)
    if parts.agreement.passive_learns == "nothing":
        _check(not any(value is not None for value in astuple(summary)))
        return None
    return Evaluation(
        _estimate(summary.auc, summary.auc_error),
        _estimate(summary.ace, summary.ace_error),
        _estimate(summary.log_loss, summary.log_loss_error),
        None,
        parts.sizes.peer,
        parts.sizes.shared,
    )


def _noise(bundle: PassiveBundle, parts: EvaluationParts) -> EmbeddingNoise:
    """That of training where rows are copied. Where none is, there is nothing to hide by it."""
    is_copied = parts.agreement.stand_ins == "repeated"
    of_model = int.from_bytes(bundle.digest[:8], signed=True)
    return EmbeddingNoise(
        bundle.agreement.training.embedding_noise if is_copied else 0.0,
        parts.draws.derive("evaluation noise", of_model),
    )


def _estimate(value: float | None, error: float | None) -> Estimate:
    _check(
        value is not None and error is not None and math.isfinite(value) and 0 <= error < math.inf
    )
    assert value is not None
    assert error is not None
    return Estimate(value, error)


def _check(is_as_agreed: bool) -> None:  # noqa: FBT001 - it reads as a sentence
    if not is_as_agreed:
        raise ProtocolViolation("the peer's summary of the evaluation is not as agreed")
