"""The active party's side of an evaluation: score its own people and estimate the metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from florist.active_party.worth import EvaluatedPeople
from florist.common.evaluation.metric_estimates import check_labels, estimate_metrics
from florist.common.evaluation.paired_estimates import ScoredPeople
from florist.common.evaluation.shuffled_estimate import Shuffled, shuffles
from florist.common.evaluation.worth import Evaluated
from florist.common.session.answer_journal import BlockKind
from florist.common.training.micro_batches import micro_batches
from florist.common.training.row_codec import RowCodec
from florist.common.transport.codec import encode
from florist.common.transport.messages import EvaluationEmbeddingBlock, EvaluationSummary

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from florist.common.bundle.bundle import ActiveBundle
    from florist.common.core.progress import StepProgress
    from florist.common.data.features import Features
    from florist.common.evaluation.evaluation_data import EvaluationData
    from florist.common.evaluation.evaluation_journal import EvaluationJournal
    from florist.common.transport.channel import Channel

    Floats = npt.NDArray[np.float64]
    Rows = npt.NDArray[np.int64]

#: How many other embeddings each person is scored with, if the active party has features.
SHUFFLES = 8


def evaluate_active(
    bundle: ActiveBundle, data: EvaluationData, channel: Channel, progress: StepProgress
) -> Evaluated:
    """Score our own people, estimate the metrics, and send the peer the agreed summary.

    A peer that repeats an evaluation gets a summary only for the same embeddings. Otherwise it
    could change the embedding of one person, and see whether the summary changes.

    Raises:
        DifferentEvaluation: the peer sent other embeddings in an earlier evaluation of this model.
        EvaluationNotReproducible: our summary of the same embeddings has changed.
        ConfigurationError: too few of our people are in both tables, or a class has too few rows.
    """
    assert data.labels is not None
    order = data.membership.row_of_rank
    labels = data.labels[order[order >= 0]]
    check_labels(labels, bundle.agreement.training.classes)
    own = None if data.features is None else data.features.take(order[order >= 0])
    predictions, embeddings = _score(bundle, order >= 0, own, channel, progress, data.journal)
    shuffled = None if own is None else _shuffled(bundle, embeddings, own)
    shared = min(data.sizes.shared_estimate, len(labels))
    deviation = data.sizes.shared_deviation
    found = estimate_metrics(labels, predictions, shared, shuffled, deviation=deviation)
    summary = (
        EvaluationSummary()
        if data.agreement.passive_learns == "nothing"
        else EvaluationSummary(
            found.auc.value,
            found.auc.standard_error,
            found.ace.value,
            found.ace.standard_error,
            found.log_loss.value,
            found.log_loss.standard_error,
        )
    )
    data.journal.sent(BlockKind.EVALUATION_SUMMARY, data.journal.model, 0, encode(summary))
    data.journal.settle()
    channel.send(summary)
    scored = ScoredPeople(labels, predictions, shuffled, shared, deviation)
    people = EvaluatedPeople(bundle, scored, found, own, None if own is None else embeddings)
    return Evaluated(found, people.worth)


def _score(
    bundle: ActiveBundle,
    is_own: npt.NDArray[np.bool_],
    own: Features | None,
    channel: Channel,
    progress: StepProgress,
    journal: EvaluationJournal,
) -> tuple[Floats, Tensor]:
    """Return predictions for our own people in rank order, and their embeddings.

    Embeddings are kept in memory, at 4 bytes per value, if we have features; otherwise none are.
    """
    agreement = bundle.agreement.training
    codec = RowCodec(agreement.wire_type, agreement.wire_width)
    kept: list[Tensor] = []
    predictions: list[Floats] = []
    scored = 0
    progress.expect(len(is_own))
    for part in micro_batches(len(is_own), agreement.micro_batch):
        rows = part.stop - part.start
        block = channel.receive(EvaluationEmbeddingBlock)
        embeddings = codec.decode_evaluation_block(block, part.start, rows)
        journal.received(BlockKind.EVALUATION_EMBEDDINGS, journal.model, part.start, block.values)
        ours = embeddings[torch.from_numpy(is_own[part])]
        features = None if own is None else own.slice(scored, scored + len(ours))
        predictions.append(_array(bundle.predict(ours, features)))
        scored += len(ours)
        if own is not None:
            kept.append(ours)
        progress.advance(rows)
    return np.concatenate(predictions), torch.cat(kept) if kept else torch.empty(0)


def _shuffled(bundle: ActiveBundle, embeddings: Tensor, own: Features) -> Shuffled:
    """Score each person with the embeddings of some others, whose choice need not be secret."""
    partners = shuffles(len(embeddings), SHUFFLES, np.random.default_rng(0))
    size = bundle.agreement.training.micro_batch
    columns = [
        np.concatenate(
            [
                _array(bundle.predict(embeddings[column[part]], own.slice(part.start, part.stop)))
                for part in micro_batches(len(column), size)
            ]
        )
        for column in map(torch.from_numpy, partners.T.copy())
    ]
    return Shuffled(np.stack(columns, axis=1), partners)


def _array(predictions: Tensor) -> Floats:
    return predictions.cpu().numpy().astype(np.float64)
