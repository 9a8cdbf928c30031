"""The journal of a training run: what was received and sent in each step, across restarts."""

from __future__ import annotations

from florist.common.core.errors import ConfigurationError
from florist.common.session.answer_journal import (
    AnswerJournal,
    BlockKind,
    Event,
    Record,
    owner_digest,
)

#: How often a run may start over without --force because the peer says that it has no checkpoint
#: yet, although this party has sent it something. Each time the peer sees new random draws.
MAX_STARTS = 4


class TooManyResumptions(ConfigurationError):  # noqa: N818 - named after the event
    """The run was interrupted more often than this party's limit allows."""

    advice = "Find out why the run is interrupted so often; then raise the limit or start over."

    @property
    def for_peer(self) -> str:
        return "the run was resumed more often than its limit allows"


class CannotStartOver(ConfigurationError):  # noqa: N818 - named after the event
    """The peer has no checkpoint of a run in which this party has already answered it."""

    advice = "Start over on both sides with --force."

    @property
    def for_peer(self) -> str:
        return self.reason


class TrainingJournal(AnswerJournal):
    """The journal of one run at one party; deleted when the run is complete."""

    def start(self, run: bytes, key: bytes) -> None:
        """Begin the journal of a new run, which replaces that of an earlier one.

        Args:
            run: the ID of the run.
            key: a secret of this party, 32 bytes, for the digests.

        Raises:
            CannotStartOver: the earlier run has been answered by the peer, or was started too
                often. An honest peer has a checkpoint before it answers anything.
            JournalLost: the journal of the earlier run is damaged.
        """
        if self._log is None:
            return
        records = self._read()
        # Base transfers come before the first checkpoint, and reveal nothing if made again.
        events = [record.event for record in records if record.kind != BlockKind.BASE_TRANSFERS]
        if Event.RECEIVED in events:
            raise CannotStartOver(
                "the peer has no checkpoint of a run in which it has already sent data, so the run "
                "cannot be resumed; start over on both sides with --force"
            )
        starts = 1
        if records:
            starts = records[0].step + (Event.SENT in events)
        if starts > MAX_STARTS:
            raise CannotStartOver(
                f"the run was started {MAX_STARTS} times, and each time the peer lost its data "
                "before the first step; start over on both sides with --force"
            )
        self._open(key, [])
        self._append(Record(Event.STARTED, 0, 0, starts, owner_digest(run)))
        self.settle()

    def resume(self, run: bytes, key: bytes, first_step: int, limit: int, confirmed: int) -> int:
        """Continue the journal of a run; return how often the run has been resumed.

        Args:
            run: the ID of the run.
            key: as given to `start`.
            first_step: the step at which the run is resumed.
            limit: how often that may happen.
            confirmed: the number of records that were on disk when the newest checkpoint was saved.

        Raises:
            JournalLost: the file is missing, damaged, of another run, or has fewer records.
            TooManyResumptions: more than `limit` times.
        """
        if self._log is None:
            return 0
        records = self._read()
        if not records:
            raise self._lost("is missing")
        if records[0].event != Event.STARTED or records[0].digest != owner_digest(run):
            raise self._lost("belongs to another run")
        if len(records) < confirmed:
            raise self._lost(f"has {len(records)} records, but had {confirmed}")
        resumptions = 1 + sum(record.event == Event.RESUMED for record in records)
        if resumptions > limit:
            raise TooManyResumptions(
                f"this run was resumed {limit} times already (training.max_resumptions); if you "
                "know why it is interrupted, raise the limit"
            )
        self._open(key, records)
        self._append(Record(Event.RESUMED, 0, 0, first_step, b""))
        self.begin_sync()
        return resumptions
