"""What a self-audit records of a run, against all that the peer has seen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from florist.common.audit.recorded_view import passive_view
from florist.common.audit.recorder import Recorder, Sighting, Window, merged
from florist.common.audit.training_windows import TrainingWindow
from florist.common.audit.view import PassiveView
from florist.common.training.micro_batches import micro_batches
from florist.common.training.row_codec import RowCodec
from florist.common.training.schedule import Schedule
from florist.common.training.seen_rows import SeenRows

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.settings.agreement import WireType

    Flags = npt.NDArray[np.bool_]

WIDTH, UNION, EPOCHS = 3, 47, 3
RANKS = np.arange(UNION)
EVERYONE = np.ones(UNION, dtype=np.bool_)
#: Batches of 10, the last of an epoch has 7.
SCHEDULE = Schedule(bytes(32), UNION, batch_size=10, epochs=EPOCHS)
NO_WINDOW = Window(every=0, rows=100, batch_size=10)


def seen_rows(
    wire: RowCodec,
    schedule: Schedule = SCHEDULE,
    *,
    first_step: int = 0,
    origins: npt.NDArray[np.int64] | None = None,
) -> list[SeenRows]:
    """Return what both parties see in a run, in parts of 4 rows; `origins` are those by rank."""
    random = torch.Generator().manual_seed(1)

    def rows(count: int) -> bytes:
        return bytes(wire.encode(torch.randn(count, WIDTH, generator=random)))

    found = []
    for step in range(schedule.steps):
        ranks = schedule.batch(*divmod(step, schedule.steps_per_epoch))
        for part in micro_batches(len(ranks), 4):
            size = part.stop - part.start
            donors = None if origins is None else origins[ranks[part]]
            found.append(SeenRows(step, part.start, rows(size), rows(size), donors))
    return [seen for seen in found if seen.step >= first_step]


def all_of_it(wire: RowCodec, schedule: Schedule = SCHEDULE) -> PassiveView:
    return passive_view(seen_rows(wire, schedule), schedule, wire, RANKS)


def recorded(
    wire: RowCodec, followed: int, window: Window = NO_WINDOW, schedule: Schedule = SCHEDULE
) -> Recorder:
    recorder = Recorder(schedule, wire, followed, window)
    for seen in seen_rows(wire, schedule):
        recorder.see(seen)
    return recorder


def assert_same(found: list[Sighting], whole: PassiveView, chosen: Flags) -> None:
    """Return the rows of the chosen UIDs from the complete view, step by step."""
    expected = [step for step in whole.steps if chosen[step.ranks].any()]
    assert len(found) == len(expected)
    for seen, step in zip(found, expected, strict=True):
        rows = chosen[step.ranks]
        assert seen.epoch == step.epoch
        assert np.array_equal(seen.ranks, step.ranks[rows])
        assert np.array_equal(seen.embeddings, step.embeddings[rows])
        assert np.array_equal(seen.gradients, step.gradients[rows])


@pytest.mark.parametrize("wire_type", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("every", [0, 4])
def test_followed_uids_are_kept_in_all_epochs(wire_type: WireType, every: int) -> None:
    """The rows kept for the last batches make no difference."""
    wire = RowCodec(wire_type, WIDTH)
    window = Window(every, rows=15, batch_size=10)
    whole = all_of_it(wire)
    assert len(whole.steps) == SCHEDULE.steps
    assert_same(recorded(wire, UNION, window).followed(), whole, EVERYONE)
    assert_same(recorded(wire, 16, window)._kept, whole, RANKS < 16)
    assert recorded(wire, 0, window).followed() == []


@pytest.mark.parametrize("every", [0, 4])
def test_copies_are_followed_with_their_originals(every: int) -> None:
    wire = RowCodec("float32", WIDTH)
    origins = np.random.default_rng(2).integers(0, UNION, UNION)
    whole = all_of_it(wire)
    for followed in (0, 1, 20, UNION):
        recorder = Recorder(SCHEDULE, wire, followed, Window(every, rows=15, batch_size=10))
        for seen in seen_rows(wire, origins=origins):
            recorder.see(seen)
        assert_same(recorder._kept, whole, origins < followed)


@pytest.mark.parametrize(("rows", "expected"), [(100, 4), (25, 2), (10, 1), (6, 1)])
def test_the_last_batches_are_whole_up_to_a_number_of_rows(rows: int, expected: int) -> None:
    wire = RowCodec("float32", WIDTH)
    recorder = Recorder(SCHEDULE, wire, 5, Window(4, rows, batch_size=10))
    whole = all_of_it(wire).steps
    for part in seen_rows(wire):
        recorder.see(part)
        if (part.step, part.start) == (7, 8):
            break
    found = recorder.recent()
    assert len(found) == expected
    for seen, step in zip(found, whole[8 - expected : 8], strict=True):
        assert np.array_equal(seen.ranks, step.ranks[:rows])
        assert np.array_equal(seen.embeddings, step.embeddings[:rows])
        assert np.array_equal(seen.gradients, step.gradients[:rows])


@pytest.mark.parametrize("every", [1, 2, 7])
@pytest.mark.parametrize("rows", [5, 10, 29, 1000])
def test_a_window_ends_with_each_audit(every: int, rows: int) -> None:
    window = Window(every, rows, batch_size=10)
    wanted = min(max(rows // 10, 1), every)
    for step in range(30):
        until_audit = next(n for n in range(every) if (step + 1 + n) % every == 0)
        assert window.holds(step) == (until_audit < wanted)
    assert not any(Window(0, rows, 10).holds(step) for step in range(30))


def test_a_resumed_run_is_recorded_from_its_first_step() -> None:
    wire = RowCodec("float32", WIDTH)
    recorder = Recorder(SCHEDULE, wire, UNION, NO_WINDOW, first_step=7)
    for seen in seen_rows(wire, first_step=7):
        recorder.see(seen)
    whole = all_of_it(wire)
    later = PassiveView(whole.union_size, whole.uids, whole.steps[7:])
    assert_same(recorder.followed(), later, EVERYONE)
    assert Recorder(SCHEDULE, wire, UNION, NO_WINDOW, SCHEDULE.steps).followed() == []


def test_an_incomplete_step_is_not_kept() -> None:
    wire = RowCodec("float32", WIDTH)
    recorder = Recorder(SCHEDULE, wire, UNION, NO_WINDOW)
    for seen in seen_rows(wire):
        if (seen.step, seen.start) == (3, 8):
            break
        recorder.see(seen)
    whole = all_of_it(wire)
    complete = PassiveView(whole.union_size, whole.uids, whole.steps[:3])
    assert_same(recorder.followed(), complete, EVERYONE)


def test_recorded_rows_are_copies() -> None:
    wire = RowCodec("float32", WIDTH)
    recorder = Recorder(SCHEDULE, wire, UNION, Window(3, 100, 10))
    for seen in seen_rows(wire):
        buffers = bytearray(seen.embeddings), bytearray(seen.gradients)
        views = [memoryview(buffer) for buffer in buffers]
        recorder.see(replace(seen, embeddings=views[0], gradients=views[1]))
        for buffer in buffers:
            buffer[:] = bytes(len(buffer))
    assert_same(recorder.followed(), all_of_it(wire), EVERYONE)


def test_small_sightings_are_merged_within_an_epoch() -> None:
    def sighting(step: int, epoch: int, *ranks: int) -> Sighting:
        rows = np.array(ranks, dtype=np.float32)[:, None]
        return Sighting(step, epoch, np.array(ranks), rows, -rows)

    parts = [
        sighting(0, 0, 1, 2),
        sighting(1, 0, 3),
        sighting(2, 0, 4, 5, 6),
        sighting(3, 0, 7),
        sighting(4, 1, 1, 2),
    ]
    found = list(merged(parts, enough=3))
    assert [seen.ranks.tolist() for seen in found] == [[1, 2, 3], [4, 5, 6], [7], [1, 2]]
    assert [(seen.step, seen.epoch) for seen in found] == [(0, 0), (2, 0), (3, 0), (4, 1)]
    for seen in found:
        assert np.array_equal(seen.embeddings[:, 0], seen.ranks)
        assert np.array_equal(seen.gradients[:, 0], -seen.ranks)


@pytest.mark.parametrize("every", [0, 4])
def test_the_first_batches_are_kept_up_to_a_number_of_rows(every: int) -> None:
    """Independently of the sample that is followed and of the last batches before an audit."""
    wire = RowCodec("float32", WIDTH)
    schedule = Schedule(bytes(32), UNION, batch_size=10, epochs=5)
    window = Window(every, rows=30, batch_size=10)
    recorder = recorded(wire, 5, window, schedule)
    whole = all_of_it(wire, schedule).steps
    for limits, rows in (((0, 1), 10), ((0, 5), 6), ((5, 10), 6), ((10, 20), 3)):
        found = recorder.early(TrainingWindow(*limits))
        assert [seen.step for seen in found] == list(range(*limits))
        for seen in found:
            kept = 10 if seen.step == 0 else rows
            expected = whole[seen.step]
            assert np.array_equal(seen.ranks, expected.ranks[:kept])
            assert np.array_equal(seen.embeddings, expected.embeddings[:kept])
            assert np.array_equal(seen.gradients, expected.gradients[:kept])
    assert_same(recorder._kept, all_of_it(wire, schedule), RANKS < 5)
    later = recorder.followed(first_step=20)
    assert min(seen.step for seen in later) >= 20
    recorder.forget_early()
    assert recorder.early(TrainingWindow(0, 20)) == []
