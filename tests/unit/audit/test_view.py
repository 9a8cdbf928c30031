"""Views: built from what the parties saw, and their means and changes per UID."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from florist.common.audit.recorded_view import as_active, passive_view
from florist.common.audit.view import lengths, quantiles
from florist.common.training.micro_batches import micro_batches
from florist.common.training.row_codec import RowCodec
from florist.common.training.schedule import Schedule
from florist.common.training.seen_rows import SeenRows
from tests.unit.audit.views import passive

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.settings.agreement import WireType

WIDTH, MICRO_BATCH = 3, 4
SCHEDULE = Schedule(bytes(32), union_size=23, batch_size=10, epochs=2)


def rows_of(step: int, sign: int) -> torch.Tensor:
    """Return whole numbers that every wire type represents exactly."""
    size = len(SCHEDULE.batch(*divmod(step, SCHEDULE.steps_per_epoch)))
    return sign * (step + torch.arange(size * WIDTH, dtype=torch.float32)).reshape(size, WIDTH)


def recorded(wire: RowCodec) -> list[SeenRows]:
    """Record a run of which step 1 is made twice, and which ends before its last step."""
    found = []
    for step, is_complete in [(0, True), (1, False), (1, True), (2, True), (3, True), (4, True)]:
        embeddings, gradients = rows_of(step, 1), rows_of(step, -1)
        parts = list(micro_batches(len(embeddings), MICRO_BATCH))
        found += [
            SeenRows(step, part.start, wire.encode(embeddings[part]), wire.encode(gradients[part]))
            for part in (parts if is_complete else parts[:-1])
        ]
    return found


@pytest.mark.parametrize("wire_type", ["float32", "bfloat16"])
def test_views_contain_every_complete_step(wire_type: WireType) -> None:
    wire = RowCodec(wire_type, WIDTH)
    uids = np.array([1, 4, 22])
    ours = passive_view(recorded(wire), SCHEDULE, wire, uids)
    theirs = as_active(ours, uids, np.array([1, 0, 1]))
    assert len(ours.steps) == len(theirs.steps) == SCHEDULE.steps - 1
    label_of = {1: 1.0, 4: 0.0, 22: 1.0}
    for step, (seen, other) in enumerate(zip(ours.steps, theirs.steps, strict=True)):
        epoch, within = divmod(step, SCHEDULE.steps_per_epoch)
        assert seen.epoch == other.epoch == epoch
        assert np.array_equal(seen.ranks, SCHEDULE.batch(epoch, within))
        assert np.array_equal(other.ranks, seen.ranks)
        assert np.array_equal(seen.gradients, rows_of(step, -1))
        assert np.array_equal(seen.embeddings, rows_of(step, 1))
        assert np.array_equal(other.embeddings, seen.embeddings)
        assert seen.gradients.dtype == seen.embeddings.dtype == np.float32
        expected = [label_of.get(rank, np.nan) for rank in other.ranks.tolist()]
        assert np.array_equal(other.labels, expected, equal_nan=True)


def test_epochs_are_in_order() -> None:
    wire = RowCodec("float32", WIDTH)
    view = passive_view(recorded(wire), SCHEDULE, wire, np.arange(23))
    assert [[step.epoch for step in steps] for steps in view.epochs()] == [[0, 0, 0], [1, 1]]


def test_means_are_over_sightings_and_in_the_order_of_uids() -> None:
    uids = np.array([0, 2, 3])
    view = passive(np.zeros((1, 5, 1)), uids=uids)
    seen: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]] = [
        (np.array([3, 0]), np.array([1.0, 5.0])),
        (np.array([1, 3]), np.array([9.0, 2.0])),
    ]
    assert np.array_equal(view.means(seen), [5.0, np.nan, 1.5], equal_nan=True)
    assert view.is_own().tolist() == [True, False, True, True, False]


def test_changes_are_from_the_first_sighting_to_the_last() -> None:
    uids = np.array([0, 2, 3])
    view = passive(np.zeros((1, 5, 1)), uids=uids)
    seen: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]] = [
        (np.array([3, 0]), np.array([1.0, 5.0])),
        (np.array([1, 3]), np.array([9.0, 2.0])),
        (np.array([3, 1]), np.array([7.0, 8.0])),
    ]
    assert np.array_equal(view.changes(seen), [np.nan, np.nan, 6.0], equal_nan=True)


def test_quantiles_count_those_below_and_half_of_the_equal() -> None:
    values = np.array([3.0, 1.0, 3.0, 9.0, 3.0, 0.0])
    by_hand = [((values < value).sum() + (values == value).sum() / 2) / 6 for value in values]
    assert quantiles(values) == pytest.approx(by_hand)
    assert len(quantiles(values[:0])) == 0


def test_lengths_do_not_overflow_in_half_precision() -> None:
    assert lengths(np.full((1, 4), 5e4, dtype=np.float16)) == pytest.approx([1e5], rel=1e-3)
