"""The journal of evaluations: one answer per model, and a bounded number of models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from florist.common.evaluation.evaluation_journal import (
    DifferentEvaluation,
    EvaluationJournal,
    EvaluationNotReproducible,
    TooManyModels,
)
from florist.common.session.answer_journal import BlockKind, JournalLost

if TYPE_CHECKING:
    from pathlib import Path

UNION, KEY = bytes(range(32)), bytes(32)
EMBEDDINGS, SUMMARY = BlockKind.EVALUATION_EMBEDDINGS, BlockKind.EVALUATION_SUMMARY


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "answers.journal"


def opened(path: Path, model: bytes = b"model", limit: int = 8) -> EvaluationJournal:
    journal = EvaluationJournal(path)
    journal.open(UNION, model, KEY, limit, must_exist=path.exists())
    return journal


def test_other_embeddings_of_the_same_model_are_refused(path: Path) -> None:
    journal = opened(path)
    journal.received(EMBEDDINGS, journal.model, 16, b"first")
    journal.settle()
    for _ in range(2):
        journal = opened(path)
        journal.received(EMBEDDINGS, journal.model, 16, b"first")
        with pytest.raises(DifferentEvaluation, match=r"the evaluation, row 16: the peer") as end:
            journal.received(EMBEDDINGS, journal.model, 16, b"other")
        assert end.value.exit_code == 4
        assert "this party sent other embeddings in an earlier" in end.value.for_peer


def test_another_summary_of_the_same_embeddings_is_not_sent(path: Path) -> None:
    journal = opened(path)
    journal.sent(SUMMARY, journal.model, 0, b"first")
    journal.settle()
    journal = opened(path)
    with pytest.raises(EvaluationNotReproducible, match="this party sent other figures") as end:
        journal.sent(SUMMARY, journal.model, 0, b"other")
    assert end.value.exit_code == 2


def test_another_model_has_another_answer(path: Path) -> None:
    for model in (b"one", b"two", b"one"):
        journal = opened(path, model)
        journal.received(EMBEDDINGS, journal.model, 0, model)
        journal.settle()
    assert [opened(path, model).model for model in (b"one", b"two", b"three")] == [1, 2, 3]


def test_the_number_of_models_is_limited(path: Path) -> None:
    for model in (b"one", b"two"):
        opened(path, model, limit=2)
    with pytest.raises(TooManyModels, match=r"agreement\.evaluation\.max_models") as end:
        opened(path, b"three", limit=2)
    assert end.value.for_peer == end.value.reason
    assert opened(path, b"two", limit=2).model == 2
    assert opened(path, b"three", limit=3).model == 3


def test_a_missing_journal_is_refused_once_an_evaluation_was_started(path: Path) -> None:
    with pytest.raises(JournalLost, match="is missing"):
        EvaluationJournal(path).open(UNION, b"model", KEY, 8, must_exist=True)
    assert not path.exists()


def test_a_damaged_journal_is_refused(path: Path) -> None:
    opened(path)
    path.write_bytes(b"\1" + path.read_bytes()[1:])
    for must_exist in (False, True):
        with pytest.raises(JournalLost, match="is damaged"):
            EvaluationJournal(path).open(UNION, b"model", KEY, 8, must_exist=must_exist)


def test_the_journal_of_another_union_is_refused(path: Path) -> None:
    opened(path)
    with pytest.raises(JournalLost, match="another union"):
        EvaluationJournal(path).open(bytes(32), b"model", KEY, 8, must_exist=True)
