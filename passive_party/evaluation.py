"""The passive party's side of an evaluation: send an embedding per UID, receive the summary."""

from __future__ import annotations

import math
from dataclasses import astuple
from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ProtocolViolation
from florist.common.evaluation.metric_estimates import Evaluation
from florist.common.evaluation.private_estimate import Estimate
from florist.common.evaluation.reserved_rows import evaluation_stand_ins
from florist.common.evaluation.worth import Evaluated
from florist.common.session.answer_journal import BlockKind
from florist.common.synthetic.embedding_noise import EmbeddingNoise
from florist.common.training.micro_batches import micro_batches
from florist.common.training.row_codec import RowCodec
from florist.common.transport.messages import EvaluationEmbeddingBlock, EvaluationSummary
from florist.passive_party.worth import passive_worth

if TYPE_CHECKING:
    from florist.common.bundle.bundle import PassiveBundle
    from florist.common.core.progress import Progress, StepProgress
    from florist.common.evaluation.evaluation_data import EvaluationData
    from florist.common.evaluation.worth import Worth
    from florist.common.settings.party_config import PartyConfig
    from florist.common.transport.channel import Channel


def evaluate_passive(
    bundle: PassiveBundle, data: EvaluationData, channel: Channel, progress: StepProgress
) -> Evaluated:
    """Send all embeddings in rank order, and return the peer's estimates if it is to send them.

    The same model on the same union always sends the same bytes, so that the peer learns nothing
    from repeated evaluations. The journal makes sure of it.

    Raises:
        EvaluationNotReproducible: our embeddings are not those of an earlier evaluation.
        ProtocolViolation: the peer has too many UIDs in the union, or its summary is invalid.
    """
    agreement = bundle.agreement.training
    assert data.features is not None
    features = data.features

    def worth(_config: PartyConfig, progress: Progress) -> Worth:
        return passive_worth(bundle, features, progress)

    stand_ins = evaluation_stand_ins(data)
    union_size = data.sizes.union
    codec = RowCodec(agreement.wire_type, agreement.wire_width)
    noise = _noise(bundle, data)
    journal = data.journal
    progress.expect(union_size)
    for part in micro_batches(union_size, agreement.micro_batch):
        rows = stand_ins.rows(np.arange(part.start, part.stop))
        embeddings = bundle.embed(features.take(rows)).cpu()
        values = codec.encode(noise(embeddings, part.start))
        journal.sent(BlockKind.EVALUATION_EMBEDDINGS, journal.model, part.start, values)
        journal.settle()
        channel.send(EvaluationEmbeddingBlock(part.start, values))
        progress.advance(len(embeddings))
    summary = channel.receive(EvaluationSummary)
    if data.agreement.passive_learns == "nothing":
        _check(not any(value is not None for value in astuple(summary)))
        return Evaluated(None, worth)
    scored = max(data.sizes.peer_people_estimate, 1)
    found = Evaluation(*estimates_of(summary), None, scored, data.sizes.shared_estimate)
    return Evaluated(found, worth)


def estimates_of(summary: EvaluationSummary) -> tuple[Estimate, Estimate, Estimate]:
    """Return the AUC, ACE and log loss of the peer's summary.

    Raises:
        ProtocolViolation: one is missing, or is not a number.
    """
    return (
        _estimate(summary.auc, summary.auc_error),
        _estimate(summary.ace, summary.ace_error),
        _estimate(summary.log_loss, summary.log_loss_error),
    )


def _noise(bundle: PassiveBundle, data: EvaluationData) -> EmbeddingNoise:
    """Return the noise of training if rows are copied. Otherwise noise would hide nothing."""
    is_copied = data.agreement.stand_ins == "repeated"
    of_model = int.from_bytes(bundle.digest[:8], signed=True)
    return EmbeddingNoise(
        bundle.agreement.training.embedding_noise if is_copied else 0.0,
        data.draws.derive("evaluation noise", of_model),
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
        raise ProtocolViolation("the peer's summary of the evaluation does not match the agreement")
