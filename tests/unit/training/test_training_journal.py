"""The journal of a training run: same bytes are accepted again, others are not."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from florist.common.core.errors import ConfigurationError
from florist.common.session.answer_journal import (
    BlockKind,
    DifferentBlock,
    JournalLost,
    NotReproducible,
)
from florist.common.training.training_journal import (
    MAX_STARTS,
    CannotStartOver,
    TooManyResumptions,
    TrainingJournal,
)

if TYPE_CHECKING:
    from pathlib import Path

RUN, KEY = bytes(range(32)), bytes(32)
EMBEDDINGS, GRADIENTS, TEST, *_ = BlockKind


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints" / "answers.journal"


def started(path: Path, *received: tuple[int, int, bytes]) -> None:
    """Write the journal of a run that received these blocks of embeddings, as a killed party."""
    journal = TrainingJournal(path)
    journal.start(RUN, KEY)
    for step, start, values in received:
        journal.received(EMBEDDINGS, step, start, values)
    journal.settle()


def resumed(path: Path, first_step: int = 0) -> TrainingJournal:
    journal = TrainingJournal(path)
    journal.resume(RUN, KEY, first_step, limit=64, confirmed=0)
    return journal


def test_the_same_bytes_are_accepted_again_and_others_are_not(path: Path) -> None:
    started(path, (0, 0, b"first"), (0, 8, b"second"))
    for _ in range(3):
        journal = resumed(path)
        journal.received(EMBEDDINGS, 0, 0, b"first")
        with pytest.raises(DifferentBlock, match=r"step 0, row 8.*other embeddings") as caught:
            journal.received(EMBEDDINGS, 0, 8, b"First")
        assert caught.value.exit_code == 4
        journal.close()


def test_new_blocks_are_recorded_after_a_resumption(path: Path) -> None:
    started(path, (0, 0, b"first"))
    journal = resumed(path)
    journal.received(EMBEDDINGS, 1, 0, b"new")
    journal.close()
    with pytest.raises(DifferentBlock):
        resumed(path).received(EMBEDDINGS, 1, 0, b"other")


def test_kinds_and_directions_are_separate(path: Path) -> None:
    started(path, (0, 0, b"first"))
    journal = resumed(path)
    journal.received(TEST, 0, 0, b"test")
    journal.received(GRADIENTS, 0, 0, b"gradients")
    journal.sent(EMBEDDINGS, 0, 0, b"sent")
    journal.close()
    journal = resumed(path)
    with pytest.raises(DifferentBlock, match="the test of epoch 0, row 0"):
        journal.received(TEST, 0, 0, b"another test")
    with pytest.raises(NotReproducible, match="this party sent other embeddings") as caught:
        journal.sent(EMBEDDINGS, 0, 0, b"sent differently")
    assert "it sent other embeddings" in caught.value.for_peer


def test_a_record_is_readable_by_another_process_at_once(path: Path) -> None:
    """The party may be killed at any moment after it has answered."""
    journal = TrainingJournal(path)
    journal.start(RUN, KEY)
    journal.received(EMBEDDINGS, 0, 0, b"first")
    with pytest.raises(DifferentBlock):
        resumed(path).received(EMBEDDINGS, 0, 0, b"other")


def test_records_are_on_disk_before_an_answer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = TrainingJournal(path)
    journal.start(RUN, KEY)
    synced: list[bytes] = []
    monkeypatch.setattr(os, "fdatasync", lambda _: synced.append(path.read_bytes()))
    for start in range(20):
        journal.received(EMBEDDINGS, 0, start, b"values")
        journal.begin_sync()
    journal.settle()
    assert synced[-1] == path.read_bytes()
    assert journal.confirmed == 21


def lose(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    match how:
        case "missing":
            path.unlink()
            return
        case "empty":
            content.clear()
        case "damaged":
            content[100] ^= 1
        case "shorter":
            del content[64:]
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["missing", "empty", "damaged", "shorter"])
def test_a_lost_journal_is_refused_and_not_replaced(path: Path, how: str) -> None:
    """It would let the peer have everything answered again."""
    started(path, (0, 0, b"first"), (0, 8, b"second"))
    lose(path, how)
    left = path.read_bytes() if path.exists() else None
    for _ in range(2):
        with pytest.raises(
            JournalLost, match=r"answers\.journal .*on both sides with --force"
        ) as e:
            TrainingJournal(path).resume(RUN, KEY, 1, limit=64, confirmed=3)
        assert "missing or damaged" in e.value.for_peer
        assert (path.read_bytes() if path.exists() else None) == left


def test_a_damaged_journal_does_not_let_a_run_start_over(path: Path) -> None:
    started(path, (0, 0, b"first"))
    lose(path, "damaged")
    with pytest.raises(JournalLost):
        TrainingJournal(path).start(RUN, KEY)


def test_the_journal_of_another_run_is_refused(path: Path) -> None:
    started(path)
    with pytest.raises(JournalLost, match="another run"):
        TrainingJournal(path).resume(bytes(32), KEY, 0, limit=64, confirmed=0)


def test_digests_depend_on_the_secret(path: Path) -> None:
    contents = []
    for key in (KEY, b"1" * 32):
        journal = TrainingJournal(path)
        journal.start(RUN, key)
        journal.received(EMBEDDINGS, 0, 0, b"first")
        journal.settle()
        contents.append(path.read_bytes())
        journal.delete()
    assert contents[0] != contents[1]


def test_the_number_of_resumptions_is_limited(path: Path) -> None:
    started(path)
    for number in (1, 2, 3):
        assert TrainingJournal(path).resume(RUN, KEY, 0, limit=3, confirmed=0) == number
    with pytest.raises(TooManyResumptions, match=r"training\.max_resumptions"):
        TrainingJournal(path).resume(RUN, KEY, 0, limit=3, confirmed=0)
    assert TrainingJournal(path).resume(RUN, KEY, 0, limit=4, confirmed=0) == 4


def test_a_run_does_not_start_over_once_the_peer_has_sent_something(path: Path) -> None:
    started(path, (0, 0, b"first"))
    with pytest.raises(CannotStartOver, match="--force"):
        TrainingJournal(path).start(RUN, KEY)
    TrainingJournal(path).delete()
    TrainingJournal(path).start(RUN, KEY)


def test_a_run_starts_over_a_few_times_if_the_peer_has_sent_nothing(path: Path) -> None:
    for _ in range(MAX_STARTS):
        journal = TrainingJournal(path)
        journal.start(RUN, KEY)
        journal.sent(EMBEDDINGS, 0, 0, b"first")
        journal.close()
    with pytest.raises(CannotStartOver, match=f"started {MAX_STARTS} times"):
        TrainingJournal(path).start(RUN, KEY)


def test_a_run_in_which_nothing_was_sent_starts_over_at_will(path: Path) -> None:
    for _ in range(2 * MAX_STARTS):
        started(path)


def test_only_the_owner_can_access_it(path: Path) -> None:
    started(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_disk_error_names_the_file(path: Path) -> None:
    path.parent.mkdir()
    path.mkdir()
    with pytest.raises(ConfigurationError, match=r"answers\.journal cannot be"):
        TrainingJournal(path).start(RUN, KEY)


def test_a_failed_sync_is_reported_before_the_answer(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_file: int) -> None:
        raise OSError(28, "No space left on device")

    journal = TrainingJournal(path)
    journal.start(RUN, KEY)
    monkeypatch.setattr(os, "fdatasync", fail)
    journal.received(EMBEDDINGS, 0, 0, b"first")
    journal.begin_sync()
    with pytest.raises(ConfigurationError, match="No space left"):
        journal.settle()


def test_without_a_file_nothing_is_checked() -> None:
    journal = TrainingJournal(None)
    journal.start(RUN, KEY)
    journal.received(EMBEDDINGS, 0, 0, b"first")
    journal.received(EMBEDDINGS, 0, 0, b"other")
    journal.settle()
    journal.delete()
