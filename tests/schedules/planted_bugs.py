"""Bugs that the schedules must find: each removes one precaution of the parties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.schedules.patching import replace

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class PlantedBug:
    """A bug, and the scenario in which it is found soonest."""

    plant: Callable[[], None]
    scenario: str


def _nothing(*_: Any, **__: Any) -> None:  # noqa: ANN401 - takes anything
    """Do nothing."""


def _set_not_synced() -> None:
    """A stored set of the union gets its name before its content is on disk."""
    import os  # noqa: PLC0415 - see `_Without`

    from florist.common.storage import files  # noqa: PLC0415 - after `install`

    replace(files, "os", _Without(os, "fsync"))


def _journal_not_settled() -> None:
    """Steps are answered before the journal says so."""
    from florist.common.session.answer_journal import AnswerJournal  # noqa: PLC0415

    replace(AnswerJournal, "settle_received", _nothing)


def _ledger_not_synced() -> None:
    """Sizes are announced before the ledger says so."""
    import os  # noqa: PLC0415

    from florist.common.privacy import ledger_file  # noqa: PLC0415

    replace(ledger_file, "os", _Without(os, "fsync"))


def _result_not_synced() -> None:
    """A result gets its name before its files are on disk."""
    from florist.common.session import run_directory  # noqa: PLC0415

    replace(run_directory, "sync_tree", _nothing)


def _no_goodbye() -> None:
    """A party does not wait until the peer has its result."""
    from florist.common.session.session import Session  # noqa: PLC0415

    replace(Session, "_wait_for_goodbye", _nothing)


def _silence_ignored() -> None:
    """A party waits for ever for a peer that is gone."""
    from florist.common.session.session import Session  # noqa: PLC0415

    receive = Session._next_message

    def patient(session: Any) -> Any:  # noqa: ANN401 - a session, a message
        from florist.common.core.errors import PeerLost  # noqa: PLC0415

        while True:
            try:
                return receive(session)
            except PeerLost:
                if session.failure is not None:
                    raise

    replace(Session, "_next_message", patient)


def _old_checkpoint_kept() -> None:
    """A run resumes from this party's newest checkpoint, whatever the peer has."""
    from florist.common.stages import training_session  # noqa: PLC0415
    from florist.common.training import run_handshake  # noqa: PLC0415

    open_run = run_handshake.open_run

    def own_newest(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        opened = open_run(*arguments, **options)
        have = options.get("have")
        if not opened.resumed or have is None:
            return opened
        return run_handshake.OpenedRun(opened.seed, max(have.steps), resumed=True)

    replace(training_session, "open_run", own_newest)


class _Without:
    """A module without one of its functions."""

    def __init__(self, module: Any, name: str) -> None:  # noqa: ANN401 - any module
        self._module = module
        self._name = name

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute
        return _nothing if name == self._name else getattr(self._module, name)


PLANTED: dict[str, PlantedBug] = {
    "journal-not-settled": PlantedBug(_journal_not_settled, "train"),
    "ledger-not-synced": PlantedBug(_ledger_not_synced, "align"),
    "no-goodbye": PlantedBug(_no_goodbye, "align"),
    "own-checkpoint": PlantedBug(_old_checkpoint_kept, "train"),
    "result-not-synced": PlantedBug(_result_not_synced, "align"),
    "set-not-synced": PlantedBug(_set_not_synced, "align"),
    "silence-ignored": PlantedBug(_silence_ignored, "align"),
}
