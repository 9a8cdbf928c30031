"""The journal of a union: what it keeps, what it refuses, and when it starts over."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from florist.common.core.errors import (
    ConfigurationError,
    ProtocolViolation,
)
from florist.common.privacy.commitment import StoredCommitment, commit
from florist.common.psu.journal import MAX_STARTS, Journal, set_name
from florist.common.psu.stored_sets import SetFacts
from florist.common.storage.id_column import IdColumn
from florist.common.transport.messages import Step, UnionAnnouncement
from tests.support.storages import KINDS, ROWS, WIDTH, make_storage, written

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.storage.files import Storage

STEP = Step.ACTIVE_FIRST_ROUND
COMMITMENT = commit([IdColumn.from_bytes([b"ann"])], [], [], b"k" * 32)


@pytest.fixture(params=KINDS)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return make_storage(request.param, tmp_path)


def started(storage: Storage, identity: bytes = b"\1") -> Journal:
    journal = Journal(storage, WIDTH, identity)
    journal.begin(b"\2" * 32, b"sealed", UnionAnnouncement(7, b"\5" * 32), COMMITMENT)
    return journal


def test_a_journal_is_reloaded(storage: Storage) -> None:
    journal = started(storage)
    facts = written(storage, set_name(STEP)).facts
    journal.check_received(Step.ACTIVE_FIRST_ROUND_BACK, facts)
    journal.finish(STEP, facts)
    journal.finish(Step.PASSIVE_HASHING, SetFacts(7, b""))

    again = Journal(storage, WIDTH, b"\1")
    assert (again.token, again.sealed, again.peer_size) == (b"\2" * 32, b"sealed", 7)
    assert again.commitment(b"k" * 32) == StoredCommitment(COMMITMENT, b"\5" * 32)
    assert again.drop_damaged()
    assert again.finished == [STEP, Step.PASSIVE_HASHING]
    assert again.stored_result(STEP).is_intact


def test_a_set_of_other_rows_than_elements_is_reloaded(storage: Storage) -> None:
    """The union is stored as hashes, and some sets with row numbers."""
    journal = started(storage)
    facts = SetFacts(2 * len(ROWS), written(storage, set_name(Step.UNION)).facts.sha256)
    journal.finish(Step.UNION, facts, WIDTH // 2)
    journal.finish(STEP, written(storage, set_name(STEP)).facts)

    again = Journal(storage, WIDTH, b"\1")
    assert again.drop_damaged()
    assert again.finished == [STEP, Step.UNION]
    for each in (journal, again):
        union = each.stored_result(Step.UNION)
        assert (union.width, len(union)) == (WIDTH // 2, 2 * len(ROWS))
        assert np.array_equal(np.concatenate(list(union.chunks())), ROWS.reshape(-1, WIDTH // 2))
        assert each.stored_result(STEP).width == WIDTH

    with storage.writing(set_name(Step.UNION)) as file:
        file.write(ROWS[::-1].tobytes())
    assert again.drop_damaged()
    assert again.finished == [STEP]


def test_an_exchange_that_stores_no_set_is_never_damaged(storage: Storage) -> None:
    journal = started(storage)
    journal.finish(Step.MERGE, SetFacts(5, b""))
    again = Journal(storage, WIDTH, b"\1")
    assert again.drop_damaged()
    assert again.finished == [Step.MERGE]
    assert len(again.stored_result(Step.MERGE)) == 5


def test_a_journal_of_another_union_is_ignored(storage: Storage) -> None:
    started(storage)
    assert Journal(storage, WIDTH, b"\3").token == b""


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": 9}'])
def test_a_damaged_journal_is_ignored(storage: Storage, damage: str) -> None:
    started(storage)
    with storage.writing("journal.json") as file:
        file.write(damage.encode())
    assert Journal(storage, WIDTH, b"\1").token == b""


def test_an_exchange_whose_set_was_changed_is_repeated(storage: Storage) -> None:
    journal = started(storage)
    journal.finish(STEP, written(storage, set_name(STEP)).facts)
    with storage.writing(set_name(STEP)) as file:
        file.write(ROWS[::-1].tobytes())
    again = Journal(storage, WIDTH, b"\1")
    assert again.drop_damaged()
    assert again.finished == []


def test_a_union_without_its_ids_cannot_be_resumed(storage: Storage) -> None:
    journal = started(storage)
    journal.keep_ids(written(storage, "ids").facts)
    with storage.writing("ids") as file:
        file.write(b"")
    assert not Journal(storage, WIDTH, b"\1").drop_damaged()


def test_the_peer_must_send_the_same_again(storage: Storage) -> None:
    journal = started(storage)
    journal.check_received(STEP, SetFacts(3, b"\7" * 32))
    journal.check_chunk(Step.PASSIVE_HASHING, 0, ROWS[:8])
    journal.check_chunk(Step.PASSIVE_HASHING, 1, ROWS[8:16])
    again = Journal(storage, WIDTH, b"\1")
    again.check_received(STEP, SetFacts(3, b"\7" * 32))
    again.check_chunk(Step.PASSIVE_HASHING, 0, ROWS[:8])
    again.check_chunk(Step.PASSIVE_HASHING, 1, ROWS[8:16])
    again.check_chunk(Step.PASSIVE_HASHING, 2, ROWS[16:])
    for other in (SetFacts(4, b"\7" * 32), SetFacts(3, b"\6" * 32)):
        with pytest.raises(ProtocolViolation, match="different elements before"):
            again.check_received(STEP, other)
    with pytest.raises(ProtocolViolation, match="different elements before"):
        again.check_chunk(Step.PASSIVE_HASHING, 1, ROWS[:8])


def test_starting_over_clears_everything_and_is_limited(storage: Storage) -> None:
    journal = started(storage)
    for _ in range(MAX_STARTS - 1):
        # The peer has received nothing, so this does not count.
        journal.begin(b"\2" * 32, b"", UnionAnnouncement(7, b"\5" * 32), COMMITMENT)
    for _ in range(MAX_STARTS - 1):
        journal.check_received(STEP, SetFacts(3, b"\7" * 32))
        written(storage, set_name(STEP))
        journal.begin(b"\2" * 32, b"", UnionAnnouncement(7, b"\5" * 32), COMMITMENT)
        assert storage.size(set_name(STEP)) is None
        assert json.loads(_text(storage).splitlines()[0])["received"] == {}
    journal.check_received(STEP, SetFacts(3, b"\7" * 32))
    with pytest.raises(ConfigurationError, match="--force"):
        journal.begin(b"\2" * 32, b"", UnionAnnouncement(7, b"\5" * 32), COMMITMENT)


def _text(storage: Storage) -> bytes:
    with storage.reading("journal.json") as file:
        return file.read()
