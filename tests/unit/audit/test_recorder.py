"""What a self-audit records of a run, against all messages of the link."""

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
from florist.common.transport import messages as transport_messages
from florist.common.transport.messages import EmbeddingBlock, EpochSummary, GradientBlock, Heartbeat
from florist.common.transport.recording import Direction, Record

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.settings.agreement import WireType
    from florist.common.transport.messages import Message

    Flags = npt.NDArray[np.bool_]

WIDTH, UNION, EPOCHS = 3, 47, 3
EVERYONE = np.ones(UNION, dtype=np.bool_)
#: Batches of 10, the last of an epoch has 7.
SCHEDULE = Schedule(bytes(32), UNION, batch_size=10, epochs=EPOCHS)
NO_WINDOW = Window(every=0, rows=100, batch_size=10)


def messages(wire: RowCodec, schedule: Schedule = SCHEDULE) -> list[Message]:
    """Return the messages of a run with test people, in the order of a window of two parts."""
    random = torch.Generator().manual_seed(1)

    def rows(count: int) -> bytes:
        return bytes(wire.encode(torch.randn(count, WIDTH, generator=random)))

    found: list[Message] = []
    for step in range(schedule.steps):
        size = len(schedule.batch(*divmod(step, schedule.steps_per_epoch)))
        parts = list(micro_batches(size, 4))
        sent = [EmbeddingBlock(step, p.start, rows(p.stop - p.start)) for p in parts]
        back = [GradientBlock(step, p.start, rows(p.stop - p.start)) for p in parts]
        found += [sent[0], *(m for pair in zip(sent[1:], back, strict=False) for m in pair)]
        found.append(back[-1])
        if (step + 1) % schedule.steps_per_epoch == 0:
            epoch = step // schedule.steps_per_epoch
            found += [
                transport_messages.TestEmbeddingBlock(epoch, 0, rows(4)),
                EpochSummary(epoch, 0.5),
            ]
    return found


def all_of_it(wire: RowCodec, schedule: Schedule = SCHEDULE) -> PassiveView:
    records = [Record("training", Direction.SENT, m) for m in messages(wire, schedule)]
    return passive_view(records, schedule, wire, np.arange(UNION))


def recorded(
    wire: RowCodec, followed: Flags, window: Window = NO_WINDOW, schedule: Schedule = SCHEDULE
) -> Recorder:
    recorder = Recorder(schedule, wire, followed, window)
    for message in messages(wire, schedule):
        recorder.see(message)
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
    assert_same(recorded(wire, EVERYONE, window).followed(), whole, EVERYONE)
    some = np.arange(UNION) % 3 == 0
    assert_same(recorded(wire, some, window)._kept, whole, some)


@pytest.mark.parametrize(("rows", "expected"), [(100, 4), (25, 2), (10, 1), (6, 1)])
def test_the_last_batches_are_whole_up_to_a_number_of_rows(rows: int, expected: int) -> None:
    wire = RowCodec("float32", WIDTH)
    some = np.arange(UNION) < 5
    recorder = Recorder(SCHEDULE, wire, some, Window(4, rows, batch_size=10))
    whole = all_of_it(wire).steps
    for message in messages(wire):
        recorder.see(message)
        if isinstance(message, GradientBlock) and message.step == 7 and message.start == 8:
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


def test_one_batch_per_epoch_is_not_mistaken_for_test_people() -> None:
    """Blocks of test people then have the number of the previous step."""
    schedule = Schedule(bytes(32), UNION, batch_size=UNION, epochs=4)
    wire = RowCodec("float32", WIDTH)
    recorder = recorded(wire, EVERYONE, schedule=schedule)
    assert_same(recorder.followed(), all_of_it(wire, schedule), EVERYONE)


def test_a_resumed_run_is_recorded_from_its_first_step() -> None:
    wire = RowCodec("float32", WIDTH)
    recorder = Recorder(SCHEDULE, wire, EVERYONE, NO_WINDOW, first_step=7)
    for message in messages(wire):
        recorder.see(message)
    whole = all_of_it(wire)
    later = PassiveView(whole.union_size, whole.uids, whole.steps[7:])
    assert_same(recorder.followed(), later, EVERYONE)
    assert Recorder(SCHEDULE, wire, EVERYONE, NO_WINDOW, SCHEDULE.steps).followed() == []


def test_invalid_blocks_are_ignored() -> None:
    wire = RowCodec("float32", WIDTH)
    recorder = Recorder(SCHEDULE, wire, EVERYONE, NO_WINDOW)
    for message in messages(wire):
        if isinstance(message, GradientBlock):
            for bad in (
                replace(message, step=message.step + 1),
                replace(message, start=message.start + 1),
                replace(message, values=b""),
                replace(message, values=message.values[:-1]),
                replace(message, values=bytes(message.values) * 10),
            ):
                recorder.see(bad)
        recorder.see(Heartbeat(1))
        recorder.see(message)
    assert_same(recorder.followed(), all_of_it(wire), EVERYONE)


def test_recorded_rows_are_copies() -> None:
    wire = RowCodec("float32", WIDTH)
    recorder = Recorder(SCHEDULE, wire, EVERYONE, Window(3, 100, 10))
    for message in messages(wire):
        if isinstance(message, EmbeddingBlock | GradientBlock):
            buffer = bytearray(message.values)
            recorder.see(replace(message, values=buffer))  # type: ignore[arg-type]
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
    some = np.arange(UNION) < 5
    window = Window(every, rows=30, batch_size=10)
    recorder = recorded(wire, some, window, schedule)
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
    assert_same(recorder._kept, all_of_it(wire, schedule), some)
    later = recorder.followed(first_step=20)
    assert min(seen.step for seen in later) >= 20
    recorder.forget_early()
    assert recorder.early(TrainingWindow(0, 20)) == []
