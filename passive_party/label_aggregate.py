"""The passive party's side of the label aggregate: add ciphertexts by category."""

from __future__ import annotations

import math
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ProtocolViolation
from florist.common.groups.parallel import Threads
from florist.common.groups.ristretto255 import ENCODED_BYTES
from florist.common.label_aggregate import CIPHERTEXT_BYTES, PUBLIC_KEY_BYTES, SumCollector
from florist.common.label_aggregate.coordinates import Coordinates
from florist.common.label_aggregate.first_model import Aggregate
from florist.common.label_aggregate.label_codes import LabelCodes
from florist.common.privacy.gaussian_accounting import AggregateNoise
from florist.common.training.aggregate_run import (
    AggregateFacts,
    received_sums,
    send_sums,
    spans,
)
from florist.common.transport.messages import (
    AggregateAnswer,
    AggregateRequest,
    AggregateShape,
    AggregateTerms,
    EncryptedLabels,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from florist.common.data.features import Features
    from florist.common.training.aggregate_run import AggregateRun
    from florist.common.training.training_data import TrainingData

#: Noise beyond this many standard deviations has a probability below 10^-30.
_DEVIATIONS = 12


def collect_aggregate(
    run: AggregateRun, data: TrainingData, features: Features, cardinalities: Sequence[int]
) -> Aggregate | None:
    """Learn the noised sums of the active party's labels by category; None without categories.

    Raises:
        ProtocolViolation: a message of the peer is malformed.
    """
    agreement = data.agreement
    privacy = agreement.known_aggregate_privacy
    assert privacy is not None
    coordinates = Coordinates.of_table(
        features.categories, cardinalities, agreement.aggregate.min_count
    )
    run.channel.send(AggregateShape(coordinates.columns, coordinates.count))
    if not coordinates.columns:
        return None
    terms = run.channel.receive(AggregateTerms)
    codes = _checked_codes(terms, agreement.classes)
    noise = AggregateNoise.for_guarantee(
        privacy.epsilon, privacy.delta, coordinates.columns * codes.squared_norm
    )
    bound = codes.largest * len(features) + math.ceil(_DEVIATIONS * noise.sums_deviation)
    with closing(Threads()) as threads:
        collectors = [
            SumCollector(
                run.secret_for(b"sums", output.to_bytes(4)),
                run.session_of(output),
                terms.public_keys[output * PUBLIC_KEY_BYTES : (output + 1) * PUBLIC_KEY_BYTES],
                coordinates.count,
                threads,
            )
            for output in range(codes.outputs)
        ]
        _add_labels(run, data, features, coordinates, collectors)
        request = np.stack([collector.request() for collector in collectors], axis=1)
        send_sums(run.channel, AggregateRequest, request)
        wanted = coordinates.count, codes.outputs, ENCODED_BYTES
        answer = received_sums(run.channel, AggregateAnswer, wanted)
        sums = [
            collector.finish(np.ascontiguousarray(answer[:, output]), bound)
            for output, collector in enumerate(collectors)
        ]
    run.record.keep_facts(
        AggregateFacts(
            privacy.epsilon,
            privacy.delta,
            coordinates.count,
            coordinates.columns,
            noise.sums_deviation,
        )
    )
    shared = data.train.sizes.shared_estimate / len(features)
    return Aggregate(
        coordinates,
        codes,
        np.stack(sums, axis=1),
        noise.sums_deviation,
        terms.class_counts,
        min(max(shared, 1 / len(features)), 1.0),
    )


def _checked_codes(terms: AggregateTerms, classes: int) -> LabelCodes:
    """Return the codes; they must be those that follow from the class counts."""
    outputs = classes - 1
    if (
        len(terms.class_counts) == classes
        and len(terms.public_keys) == outputs * PUBLIC_KEY_BYTES
        and max(terms.class_counts) < 1 << 48
    ):
        codes = LabelCodes.for_counts(terms.class_counts)
        if (codes.scale, codes.centres) == (terms.scale, terms.centres):
            return codes
    raise ProtocolViolation("the label aggregate: the peer's terms are malformed")


def _add_labels(
    run: AggregateRun,
    data: TrainingData,
    features: Features,
    coordinates: Coordinates,
    collectors: list[SumCollector],
) -> None:
    """Receive the encrypted label of each UID, and add those of own people by category."""
    of_rank = data.train.membership.row_of_rank
    width = len(collectors) * CIPHERTEXT_BYTES
    with run.progress.step("summing encrypted labels") as step:
        step.expect(len(of_rank))
        for part in spans(len(of_rank), len(collectors)):
            block = run.channel.receive(EncryptedLabels)
            rows = of_rank[part]
            if block.start != part.start or len(block.values) != len(rows) * width:
                raise ProtocolViolation(
                    f"the label aggregate: labels of UID {block.start} with {len(block.values)} "
                    f"bytes, not {part.start} with {len(rows) * width}"
                )
            received = np.frombuffer(block.values, dtype=np.uint8)
            received = received.reshape(len(rows), len(collectors), CIPHERTEXT_BYTES)
            own = np.flatnonzero(rows >= 0)
            places = coordinates.of(features.take(rows[own]).categories)
            for output, collector in enumerate(collectors):
                collector.add(np.ascontiguousarray(received[:, output]), places, own)
            step.advance(len(rows))
