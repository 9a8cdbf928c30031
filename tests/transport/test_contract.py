"""The contract of links and channels, for every kind of link."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

from florist.common.core.errors import (
    FloristError,
    InternalError,
    Interrupted,
    PeerFailed,
    PeerLost,
    ProtocolViolation,
    TransportError,
)
from florist.common.transport import codec
from florist.common.transport.channel import CONTROL
from florist.common.transport.messages import (
    MAX_MESSAGE_BYTES,
    Abort,
    Control,
    Goodbye,
    Heartbeat,
    Hello,
    SetChunk,
    SetHeader,
    Step,
    UnionDigest,
)
from florist.common.transport.recording import Direction, RecordingLink
from tests.support.links import PATIENCE
from tests.support.waiting import eventually, settled, wait_until, wait_until_blocked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from florist.common.transport.channel import Channel, Link
    from florist.common.transport.messages import Message

    Links = tuple[Link, Link]

MEGABYTE = 1 << 20

MESSAGES: list[Message] = [
    Hello(1, "active", "0.1", "{}", "align"),
    Heartbeat(7),
    SetHeader(Step.SECOND_ROUND, 3),
    SetChunk(Step.SECOND_ROUND, 0, b"\0" * 96),
    SetChunk(Step.ACTIVE_HASHING_BACK, 2**40, b""),
    UnionDigest(3, b"d" * 32),
    Abort("why"),
    Goodbye(),
]


def opened(links: Links, name: str = "lane") -> tuple[Channel, Channel]:
    left, right = links
    return left.channel(name), right.channel(name, PATIENCE)


def send_all(channel: Channel, messages: Iterable[Message]) -> None:
    for message in messages:
        channel.send(message)


def in_background(act: Callable[[], object]) -> Thread:
    thread = Thread(target=act, daemon=True)
    thread.start()
    return thread


def raised_by(act: Callable[[], object]) -> FloristError:
    with pytest.raises(FloristError) as caught:
        act()
    return caught.value


# -- messages --------------------------------------------------------------------------------------


def test_messages_arrive_in_order_and_equal(links: Links) -> None:
    left, right = opened(links)
    sender = in_background(lambda: send_all(left, MESSAGES * 5))
    for message in MESSAGES * 5:
        assert right.receive(type(message), PATIENCE) == message
    sender.join(PATIENCE)


def test_an_unexpected_message_type_is_a_violation_that_names_both(links: Links) -> None:
    left, right = opened(links)
    left.send(Heartbeat(1))
    left.send(Heartbeat(2))
    with pytest.raises(ProtocolViolation, match=r"Heartbeat on channel lane.*SetHeader"):
        right.receive(SetHeader, PATIENCE)
    assert right.receive(Heartbeat, PATIENCE) == Heartbeat(2)


def test_a_base_class_accepts_all_its_subclasses(links: Links) -> None:
    left, right = opened(links, CONTROL)
    left.send(Heartbeat(1))
    left.send(Abort("x"))
    assert right.receive(Control, PATIENCE) == Heartbeat(1)
    assert right.receive(Control, PATIENCE) == Abort("x")


def test_both_directions_at_once(links: Links) -> None:
    left, right = opened(links)

    def talk(channel: Channel) -> list[int]:
        chunks = [SetChunk(Step.SECOND_ROUND, n, b"x" * 50_000) for n in range(100)]
        speaker = in_background(lambda: send_all(channel, chunks))
        heard = [channel.receive(SetChunk, PATIENCE).start for _ in range(100)]
        speaker.join(PATIENCE)
        return heard

    with ThreadPoolExecutor(2) as both:
        ends = [both.submit(talk, left), both.submit(talk, right)]
        assert [end.result(PATIENCE) for end in ends] == [list(range(100))] * 2


def test_many_channels_at_once(links: Links) -> None:
    def side(link: Link, name: str) -> int:
        channel = link.channel(name)
        for n in range(20):
            channel.send(Heartbeat(n))
            assert channel.receive(Heartbeat, PATIENCE) == Heartbeat(n)
        return 20

    with ThreadPoolExecutor(20) as threads:
        talks = [threads.submit(side, link, f"lane.{n}") for n in range(10) for link in links]
        assert sum(talk.result(PATIENCE) for talk in talks) == 400


def test_an_unread_channel_does_not_block_another(links: Links) -> None:
    stuck, _ = opened(links, "stuck")
    left, right = opened(links, "free")
    flood = in_background(lambda: flood_until_failure(stuck, []))
    for n in range(50):
        left.send(Heartbeat(n))
        assert right.receive(Heartbeat, PATIENCE) == Heartbeat(n)
    assert flood.is_alive()
    links[0].fail(Interrupted("enough"))
    flood.join(PATIENCE)
    assert not flood.is_alive()


def test_the_largest_message_passes_and_a_larger_one_is_not_sent(links: Links) -> None:
    left, right = opened(links)
    largest = SetChunk(Step.SECOND_ROUND, 0, b"x" * (MAX_MESSAGE_BYTES - 20))
    left.send(largest)
    assert right.receive(SetChunk, PATIENCE) == largest
    with pytest.raises(ValueError, match="limit"):
        left.send(SetChunk(Step.SECOND_ROUND, 0, b"x" * MAX_MESSAGE_BYTES))


def test_traffic_counts_encoded_bytes_on_both_sides(links: Links) -> None:
    left, right = opened(links)
    size = 0
    for message in MESSAGES:
        left.send(message)
        right.receive(type(message), PATIENCE)
        size += len(codec.encode(message))
    assert links[0].traffic.sent == links[1].traffic.received == size
    assert links[0].traffic.received == links[1].traffic.sent == 0


def test_a_recording_link_records_all_messages(links: Links) -> None:
    recorded = RecordingLink(links[0])
    left, right = opened((recorded, links[1]))
    left.send(Heartbeat(1))
    right.send(Heartbeat(2))
    assert left.receive(Heartbeat, PATIENCE) == Heartbeat(2)
    assert [(r.channel, r.direction, r.message) for r in recorded.records] == [
        ("lane", Direction.SENT, Heartbeat(1)),
        ("lane", Direction.RECEIVED, Heartbeat(2)),
    ]
    assert recorded.traffic is links[0].traffic
    recorded.fail(Interrupted("enough"))
    assert isinstance(recorded.failure, Interrupted)


# -- opening ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 1])
def test_messages_sent_before_the_peer_opens_the_channel_arrive(links: Links, first: int) -> None:
    early = links[first].channel("lane")
    early.send(Heartbeat(1))
    wait_until(lambda: links[first].traffic.sent > 0, PATIENCE)
    late = links[1 - first].channel("lane")
    assert late.receive(Heartbeat, PATIENCE) == Heartbeat(1)
    late.send(Heartbeat(2))
    assert early.receive(Heartbeat, PATIENCE) == Heartbeat(2)


@pytest.mark.parametrize("side", [0, 1])
def test_a_channel_that_the_peer_does_not_open_is_reported(links: Links, side: int) -> None:
    with pytest.raises(PeerLost, match=r"did not open channel lane within 0\.2 s"):
        links[side].channel("lane", timeout=0.2)


def test_the_control_channel_is_open_from_the_start(links: Links) -> None:
    left = links[0].channel(CONTROL, timeout=PATIENCE)
    right = links[1].channel(CONTROL, timeout=PATIENCE)
    left.send(Goodbye())
    assert right.receive(Goodbye, PATIENCE) == Goodbye()


def test_a_channel_can_be_opened_only_once(links: Links) -> None:
    links[0].channel("lane")
    with pytest.raises(InternalError, match="twice"):
        links[0].channel("lane")


# -- waiting ---------------------------------------------------------------------------------------


def test_a_receive_timeout_leaves_the_link_usable(links: Links) -> None:
    left, right = opened(links)
    start = time.monotonic()
    with pytest.raises(PeerLost, match=r"nothing on channel lane for 0\.2 s"):
        right.receive(Heartbeat, timeout=0.2)
    assert 0.15 < time.monotonic() - start < 2
    left.send(Heartbeat(1))
    assert right.receive(Heartbeat, PATIENCE) == Heartbeat(1)
    assert links[1].failure is None


def flood_until_failure(channel: Channel, sent: list[int]) -> None:
    chunk = SetChunk(Step.SECOND_ROUND, 0, b"x" * MEGABYTE)
    try:
        while True:
            channel.send(chunk)
            sent.append(MEGABYTE)
    except FloristError:
        return


def test_a_peer_that_does_not_read_blocks_the_sender(links: Links) -> None:
    left, right = opened(links)
    sent: list[int] = []
    flood = in_background(lambda: flood_until_failure(left, sent))
    still_since = settled(lambda: len(sent), quiet=0.4)
    assert sum(sent) < 64 * MEGABYTE
    for _ in range(still_since + 20):
        right.receive(SetChunk, PATIENCE)
    assert len(sent) >= still_since + 20
    links[0].fail(Interrupted("enough"))
    flood.join(PATIENCE)
    assert not flood.is_alive()


# -- closing ---------------------------------------------------------------------------------------


def test_a_closed_channel_ends_in_one_direction_after_all_messages(links: Links) -> None:
    left, right = opened(links)
    left.send(Heartbeat(1))
    left.close()
    assert right.receive(Heartbeat, PATIENCE) == Heartbeat(1)
    for _ in range(2):
        with pytest.raises(
            ProtocolViolation, match=r"the peer closed channel lane while SetHeader was expected"
        ):
            right.receive(SetHeader, PATIENCE)
    for n in range(10):
        right.send(Heartbeat(n))
        assert left.receive(Heartbeat, PATIENCE) == Heartbeat(n)
    with pytest.raises(InternalError, match="after it was closed"):
        left.send(Heartbeat(2))


def test_the_link_survives_a_channel_closed_in_both_directions(links: Links) -> None:
    left, right = opened(links)
    left.close()
    right.close()
    with pytest.raises(ProtocolViolation, match="closed"):
        left.receive(Heartbeat, PATIENCE)
    with pytest.raises(ProtocolViolation, match="closed"):
        right.receive(Heartbeat, PATIENCE)
    one, two = opened(links, "another")
    one.send(Heartbeat(1))
    assert two.receive(Heartbeat, PATIENCE) == Heartbeat(1)


def test_closing_delivers_all_sent_messages(links: Links) -> None:
    pairs = [opened(links, f"lane.{n}") for n in range(3)]
    for left, _ in pairs:
        for n in range(3):
            left.send(SetChunk(Step.SECOND_ROUND, n, b"x" * MEGABYTE))
    start = time.monotonic()
    links[0].close()
    assert time.monotonic() - start < 3
    for _, right in pairs:
        assert [right.receive(SetChunk, PATIENCE).start for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ProtocolViolation, match="closed"):
            right.receive(Heartbeat, PATIENCE)


def test_after_the_peer_has_closed_nothing_can_be_sent_or_opened(links: Links) -> None:
    _, right = opened(links)
    early = links[1].channel("early")
    links[0].close()
    with pytest.raises(ProtocolViolation, match="closed"):
        right.receive(Heartbeat, PATIENCE)
    with pytest.raises(ProtocolViolation, match="closed"):
        early.receive(Heartbeat, PATIENCE)
    assert eventually(lambda: isinstance(raised_by(lambda: flood_once(right)), PeerLost), PATIENCE)
    with pytest.raises(PeerLost, match="closed"):
        links[1].channel("late")
    assert links[1].failure is None


def flood_once(channel: Channel) -> None:
    """Send until it cannot be sent: the peer's closing takes a moment to be known."""
    while True:
        channel.send(Heartbeat(0))


def test_a_closed_link_cannot_be_used(links: Links) -> None:
    left, _ = opened(links)
    links[0].close()
    uses: list[Callable[[], object]] = [
        lambda: left.send(Heartbeat(1)),
        lambda: left.receive(Heartbeat),
        lambda: links[0].channel("late"),
    ]
    for use in uses:
        with pytest.raises(TransportError, match="closed on this side"):
            use()
    links[0].close()
    links[0].fail(Interrupted("too late"))
    assert links[0].failure is None


def test_closing_wakes_waiting_calls(links: Links) -> None:
    left, _ = opened(links)
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(raised_by, lambda: left.receive(Heartbeat))
        wait_until_blocked(other, calls=1)
        links[0].close()
        assert isinstance(waiting.result(PATIENCE), TransportError)


def test_both_sides_close_at_the_same_time(links: Links) -> None:
    opened(links)
    with ThreadPoolExecutor(2) as both:
        start = time.monotonic()
        for done in [both.submit(link.close) for link in links]:
            done.result(PATIENCE)
    assert time.monotonic() - start < 3


# -- failing ---------------------------------------------------------------------------------------


def test_a_failure_ends_all_pending_and_later_calls(links: Links) -> None:
    left, _ = opened(links)
    error = Interrupted("the operator stopped")
    blocked: list[Callable[[], object]] = [
        lambda: left.receive(Heartbeat),
        lambda: flood_once_with_megabytes(left),
        lambda: links[0].channel("never", timeout=PATIENCE),
    ]
    with ThreadPoolExecutor(3) as others:
        waiting = [others.submit(raised_by, act) for act in blocked]
        wait_until_blocked(others, calls=3)
        links[0].fail(error)
        assert [call.result(PATIENCE) for call in waiting] == [error] * 3
    later: list[Callable[[], object]] = [
        lambda: left.receive(Heartbeat),
        lambda: left.send(Heartbeat(1)),
        lambda: links[0].channel("late"),
    ]
    assert [raised_by(act) for act in later] == [error] * 3
    links[0].fail(Interrupted("another"))
    assert links[0].failure is error


def flood_once_with_megabytes(channel: Channel) -> None:
    while True:
        channel.send(SetChunk(Step.SECOND_ROUND, 0, b"x" * MEGABYTE))


def test_the_peer_of_a_failed_link_receives_earlier_messages_then_loses_it(links: Links) -> None:
    left, right = opened(links, CONTROL)
    left.send(Abort("the reason"))
    links[0].fail(InternalError("a bug"))
    assert right.receive(Abort, PATIENCE) == Abort("the reason")
    start = time.monotonic()
    with pytest.raises(PeerLost):
        right.receive(Abort)
    assert time.monotonic() - start < 5
    assert isinstance(links[1].failure, PeerLost)


def test_the_peers_own_reason_takes_precedence_over_the_lost_connection(links: Links) -> None:
    """As in a session: one thread hears `control`, while lanes wait."""
    control, their_control = opened(links, CONTROL)
    lanes = [opened(links, f"lane.{n}") for n in range(3)]
    ready = Event()

    def listen() -> None:
        ready.set()
        reason = their_control.receive(Abort, PATIENCE).reason
        links[1].fail(PeerFailed(reason))

    listener = in_background(listen)
    flood = in_background(lambda: flood_until_failure(lanes[0][0], []))
    with ThreadPoolExecutor(3) as others:
        ends = [right for _, right in lanes[1:]]
        waiting = [others.submit(raised_by, partial(end.receive, UnionDigest)) for end in ends]
        ready.wait(PATIENCE)
        control.send(Abort("out of memory"))
        links[0].fail(InternalError("out of memory"))
        for call in waiting:
            error = call.result(PATIENCE)
            assert isinstance(error, PeerFailed)
            assert error.reason == "out of memory"
    for thread in (listener, flood):
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_closing_after_a_failure_is_quick_and_still_delivers_the_reason(links: Links) -> None:
    left, right = opened(links, CONTROL)
    opened(links)
    left.send(Abort("the reason"))
    links[0].fail(InternalError("a bug"))
    start = time.monotonic()
    links[0].close()
    assert time.monotonic() - start < 4
    assert right.receive(Abort, PATIENCE) == Abort("the reason")
