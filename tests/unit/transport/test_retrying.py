"""How a dialing party retries, and how often it says so; on a clock of the test."""

from __future__ import annotations

import pytest

from florist.common.transport.grpc_dialer import keep_trying
from florist.common.transport.peer_unavailable import PeerUnavailable
from florist.common.transport.rate_limited_log import RateLimitedLog
from tests.support.clocks import FakeClock
from tests.support.links import free_address


def test_retries_are_spaced_and_end_in_time() -> None:
    """Nothing listens there, so that each attempt fails at once."""
    clock, address = FakeClock(), free_address()
    reasons: list[str] = []

    def connect(_certificate: bytes | None, _seconds: float) -> None:
        pytest.fail("there is nothing to connect to")

    with pytest.raises(
        PeerUnavailable, match="telco could not be reached within 60 s: nothing listens"
    ):
        keep_trying(address, None, "telco", 60.0, connect, reasons.append, clock)
    assert clock.sleeps[:5] == pytest.approx([0.2, 0.4, 0.8, 1.6, 2.0])
    assert set(clock.sleeps[4:]) == {2.0}
    assert 57 < clock.now() - 1000 <= 60
    assert set(reasons) == {f"nothing listens on {address}"}
    assert len(reasons) == 10


def test_a_repeated_text_is_passed_on_once_per_interval() -> None:
    clock = FakeClock()
    texts: list[str] = []
    log = RateLimitedLog(texts.append, 5.0, clock)
    for text, seconds in [("a", 1), ("a", 3), ("b", 1), ("a", 4.5), ("a", 0.5), ("a", 0)]:
        log.tell(text)
        clock.advance(seconds)
    assert texts == ["a", "b", "a", "a"]


def test_each_reason_is_limited_separately_whatever_the_texts_say() -> None:
    clock = FakeClock()
    texts: list[str] = []
    log = RateLimitedLog(texts.append, 5.0, clock)
    for number in range(1000):
        log.tell(f"refused port {number}", "stranger")
        if number == 500:
            log.tell("refused the peer", "busy")
    clock.advance(5)
    log.tell("refused port 1", "stranger")
    assert texts == [
        "refused port 0",
        "refused the peer",
        "refused port 1 (and 999 more like this)",
    ]


def test_nothing_happens_without_a_listener() -> None:
    RateLimitedLog(None, 5.0, FakeClock()).tell("a")
