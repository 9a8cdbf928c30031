"""The journal of the evaluations on one union: what was answered for each model, across restarts.

It is kept with the union. An evaluation that is repeated has the same answer, and another model is
a new question: a model has a number, in the order in which models were first evaluated.
"""

from __future__ import annotations

import hashlib

from florist.common.core.errors import ConfigurationError
from florist.common.session.answer_journal import (
    AnswerJournal,
    DifferentBlock,
    Event,
    NotReproducible,
    Record,
    owner_digest,
)


class DifferentEvaluation(DifferentBlock):
    """The peer repeated an evaluation with other embeddings."""

    advice = (
        "If the peer changed its hardware, device, threads or data since the earlier evaluation, "
        "restore them there and evaluate again. Otherwise do not trust this peer."
    )


class EvaluationNotReproducible(NotReproducible):
    """This party computed other values than in an earlier evaluation of the same model."""

    advice = (
        "Restore this party's evaluation table, hardware, release, agreement.evaluation, "
        "training.device and training.threads and evaluate again. The earlier result is still "
        "valid."
    )


class TooManyModels(ConfigurationError):  # noqa: N818 - named after the event
    """More models were to be evaluated on the same people than the agreement allows."""

    advice = (
        "Evaluate on other people in another run_directory, or raise "
        "agreement.evaluation.max_models on both sides."
    )

    @property
    def for_peer(self) -> str:
        return self.reason


class EvaluationJournal(AnswerJournal):
    """The journal of one evaluation union at one party."""

    earlier = "in an earlier evaluation of this model"
    different = DifferentEvaluation
    not_reproducible = EvaluationNotReproducible
    start_over = (
        "these people cannot be evaluated again: use other people and another run_directory, or "
        "delete evaluation-alignment on both sides, after which the active party can find out who "
        "is shared by comparing both evaluations"
    )
    #: The number of the model that is being evaluated.
    model = 0

    def open(
        self,
        union: bytes,
        model: bytes,
        key: bytes,
        limit: int,
        *,
        must_exist: bool,
        confirmed: int = 0,
    ) -> None:
        """Open the journal of this union, or begin it, and look up the model.

        Args:
            union: the digest of the union.
            model: the ID of the model, of any length.
            key: a secret of this party, 32 bytes, for the digests.
            limit: the maximum number of models.
            must_exist: an evaluation on this union was started before.
            confirmed: the number of records that are known to have been on disk.

        Raises:
            JournalLost: the file is missing although it must exist, is damaged, has lost records,
                or is of another union.
            TooManyModels: the model is a new one and exceeds the limit.
        """
        if self._log is None:
            return
        records = self._read()
        if not records and must_exist:
            raise self._lost("is missing")
        if records and (
            records[0].event != Event.STARTED or records[0].digest != owner_digest(union)
        ):
            raise self._lost("belongs to another union")
        if len(records) < confirmed:
            raise self._lost(f"has {len(records)} records, but had {confirmed}")
        digest = hashlib.sha256(model).digest()
        models = {record.digest: record.step for record in records if record.event == Event.MODEL}
        if digest not in models and len(models) >= limit:
            raise TooManyModels(
                f"{limit} models were evaluated on these people already "
                "(agreement.evaluation.max_models); each further one tells more about them"
            )
        self._open(key, records)
        if not records:
            self._append(Record(Event.STARTED, 0, 0, 1, owner_digest(union)))
        self.model = models.get(digest, len(models) + 1)
        if digest not in models:
            self._append(Record(Event.MODEL, 0, 0, self.model, digest))
        self.settle()
