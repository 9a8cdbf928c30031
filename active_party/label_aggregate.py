"""The active party's side of the label aggregate: encrypt labels, noise the blinded sums."""

from __future__ import annotations

import hashlib
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ProtocolViolation
from florist.common.groups.parallel import Threads
from florist.common.label_aggregate import CIPHERTEXT_BYTES, LabelEncryptor
from florist.common.label_aggregate.coordinates import MAX_COORDINATES
from florist.common.label_aggregate.label_codes import LabelCodes
from florist.common.privacy.exact_sampling import SecretStream
from florist.common.privacy.gaussian_accounting import AggregateNoise
from florist.common.privacy.gaussian_noise import GaussianNoise
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
    from fractions import Fraction

    import numpy.typing as npt

    from florist.common.training.aggregate_run import AggregateRun
    from florist.common.training.training_data import TrainingData

#: A passive party with more columns than this is not plausible.
_MAX_COLUMNS = 65_536


def send_aggregate(
    run: AggregateRun, data: TrainingData, labels: npt.NDArray[np.int64]
) -> AggregateFacts | None:
    """Let the passive party learn noised sums of the labels; return what both know of them.

    None if the passive party has no categories to sum by.

    Raises:
        ProtocolViolation: a message of the peer is malformed.
        ConfigurationError: the privacy budget does not suffice.
    """
    privacy = data.agreement.known_aggregate_privacy
    assert privacy is not None
    shape = run.channel.receive(AggregateShape)
    if shape.coordinates > MAX_COORDINATES or shape.columns > min(shape.coordinates, _MAX_COLUMNS):
        raise ProtocolViolation(
            f"the label aggregate: {shape.coordinates} coordinates of {shape.columns} columns"
        )
    if not shape.columns:
        return None
    run.before_release()
    # Other labels have other randomness: the peer would see the difference. The noise of the class
    # counts must not depend on what the peer chooses: it could ask again, and average it away.
    of_rank = data.train.membership.row_of_rank
    shown = np.where(of_rank >= 0, labels[of_rank], -1)
    data_secret = run.secret_for(
        b"labels", hashlib.sha256(shown.data).digest(), repr(privacy).encode()
    )
    secret = run.secret_for(data_secret, repr(shape).encode())
    counts = np.bincount(labels, minlength=data.agreement.classes)
    noise = AggregateNoise.for_guarantee(privacy.epsilon, privacy.delta, 1)
    counted = _noised(counts.tolist(), noise.counts_variance, data_secret, b"class counts")
    class_counts = tuple(max(count, 0) for count in counted)
    codes = LabelCodes.for_counts(class_counts)
    noise = AggregateNoise.for_guarantee(
        privacy.epsilon, privacy.delta, shape.columns * codes.squared_norm
    )
    with closing(Threads()) as threads:
        encryptors = [
            LabelEncryptor(
                run.secret_for(secret, output.to_bytes(4)), run.session_of(output), threads
            )
            for output in range(codes.outputs)
        ]
        keys = b"".join(encryptor.public_key for encryptor in encryptors)
        run.channel.send(AggregateTerms(keys, codes.scale, codes.centres, class_counts))
        _send_labels(run, shown, codes, encryptors)
        wanted = shape.coordinates, codes.outputs, CIPHERTEXT_BYTES
        request = received_sums(run.channel, AggregateRequest, wanted)
        run.record.check_request(hashlib.sha256(secret + request.data).digest())
        answers = [
            encryptor.answer(
                np.ascontiguousarray(request[:, output]),
                _noised([0] * len(request), noise.sums_variance, secret, b"sums %d" % output),
            )
            for output, encryptor in enumerate(encryptors)
        ]
    send_sums(run.channel, AggregateAnswer, np.stack(answers, axis=1))
    facts = AggregateFacts(
        privacy.epsilon,
        privacy.delta,
        shape.coordinates,
        shape.columns,
        noise.sums_deviation,
    )
    run.record.keep_facts(facts)
    return facts


def _send_labels(
    run: AggregateRun,
    shown: npt.NDArray[np.int64],
    codes: LabelCodes,
    encryptors: list[LabelEncryptor],
) -> None:
    """Send the encrypted code of each UID's label; 0 where this party lacks the UID."""
    # The last row is that of label -1.
    table = np.concatenate((codes.table(), np.zeros((1, codes.outputs), dtype=np.int64)))
    with run.progress.step("encrypting labels") as step:
        step.expect(len(shown))
        for part in spans(len(shown), codes.outputs):
            values = table[shown[part]]
            sent = np.stack(
                [
                    encryptor.encrypt(np.ascontiguousarray(values[:, output]), part.start)
                    for output, encryptor in enumerate(encryptors)
                ],
                axis=1,
            )
            run.channel.send(EncryptedLabels(part.start, sent.reshape(-1).data))
            step.advance(len(values))


def _noised(values: list[int], variance: Fraction, secret: bytes, purpose: bytes) -> list[int]:
    """Add discrete Gaussian noise that the secret determines."""
    stream = SecretStream(secret, purpose)
    noise = GaussianNoise(variance, stream.below)
    return [value + drawn for value, drawn in zip(values, noise.draws(len(values)), strict=True)]
