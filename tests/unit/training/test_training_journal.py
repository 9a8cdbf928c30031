"""The journal of a training run: same bytes are accepted again, others are not."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
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
TRANSFERS = BlockKind.TRANSFERS, BlockKind.CHOICES, BlockKind.OFFERS


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


def test_base_transfers_do_not_count_as_an_answer(path: Path) -> None:
    """They come before the first checkpoint, and are made again with new secrets."""
    for _ in range(2 * MAX_STARTS):
        journal = TrainingJournal(path)
        journal.start(RUN, KEY)
        journal.received(BlockKind.BASE_TRANSFERS, 0, 0, os.urandom(8))
        journal.sent(BlockKind.BASE_TRANSFERS, 0, 0, os.urandom(8))
        journal.close()


@pytest.mark.parametrize("kind", TRANSFERS)
def test_all_later_transfers_count_as_an_answer(kind: BlockKind, path: Path) -> None:
    journal = TrainingJournal(path)
    journal.start(RUN, KEY)
    journal.received(kind, 0, 0, b"from the peer")
    journal.close()
    with pytest.raises(CannotStartOver, match="--force"):
        TrainingJournal(path).start(RUN, KEY)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (BlockKind.BASE_TRANSFERS, "the start of the run: the peer sent other base transfers"),
        (BlockKind.TRANSFERS, "block 3 of the transfers: the peer sent other transfers"),
        (BlockKind.CHOICES, "step 3, row 0: the peer sent other choices"),
        (BlockKind.OFFERS, "step 3, row 0: the peer sent other embeddings"),
    ],
)
def test_messages_name_the_transfers(kind: BlockKind, message: str, path: Path) -> None:
    journal = TrainingJournal(path)
    journal.start(RUN, KEY)
    journal.received(kind, 3, 0, b"first")
    journal.close()
    journal = resumed(path)
    journal.received(kind, 3, 0, b"first")
    with pytest.raises(DifferentBlock) as caught:
        journal.received(kind, 3, 0, b"other")
    assert str(caught.value).startswith(message)
    journal.sent(kind, 3, 0, b"ours")
    journal.close()
    with pytest.raises(NotReproducible):
        resumed(path).sent(kind, 3, 0, b"theirs")


def test_two_threads_record_at_once(path: Path) -> None:
    """The next batch is prepared in a thread of its own, which makes the transfers."""
    journal = TrainingJournal(path)
    journal.start(RUN, KEY)
    together, blocks = Barrier(2), 400

    def record(kind: BlockKind) -> None:
        together.wait()
        for step in range(blocks):
            journal.received(kind, step, 0, b"%d" % step)
            journal.begin_sync()
            if step % 7 == 0:
                journal.settle_received()
            journal.sent(kind, step, 0, b"%d" % -step)

    with ThreadPoolExecutor(2) as threads:
        for end in [threads.submit(record, kind) for kind in (EMBEDDINGS, BlockKind.CHOICES)]:
            end.result(timeout=60)
    journal.settle()
    confirmed = journal.confirmed
    assert confirmed == 1 + 4 * blocks
    journal.close()
    again = TrainingJournal(path)
    again.resume(RUN, KEY, 0, limit=64, confirmed=confirmed)
    for kind in (EMBEDDINGS, BlockKind.CHOICES):
        for step in range(blocks):
            again.received(kind, step, 0, b"%d" % step)
            with pytest.raises(DifferentBlock):
                again.received(kind, step, 0, b"other")
            with pytest.raises(NotReproducible):
                again.sent(kind, step, 0, b"other")


def test_a_thread_that_records_while_the_journal_is_closed_does_no_harm(path: Path) -> None:
    """The thread that prepares the next batch may still run when a run is interrupted."""
    for _ in range(20):
        journal = TrainingJournal(path)
        journal.start(RUN, KEY)
        together = Barrier(2)

        def record(journal: TrainingJournal = journal, together: Barrier = together) -> None:
            together.wait()
            for step in range(50):
                journal.sent(BlockKind.CHOICES, step, 0, b"choices")

        with ThreadPoolExecutor(1) as threads:
            end = threads.submit(record)
            together.wait()
            journal.close()
            end.result(timeout=60)
        again = resumed(path)
        again.sent(BlockKind.CHOICES, 0, 0, b"choices")
        again.delete()


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
