"""Which connections are closed for the peer's sake."""

from __future__ import annotations

import pytest

from florist.common.transport.reserved_connections import (
    _TO_HEAR_WHY,
    RemoteAddress,
    ReservedConnections,
)
from tests.support.clocks import FakeClock


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.0.2.1:50000", ("192.0.2.1", 50000)),
        ("ipv6:%5B2001:db8::1%5D:50000", ("2001:db8::1", 50000)),
        ("ipv6:[::ffff:192.0.2.1]:50000", ("192.0.2.1", 50000)),
        ("unix:/run/socket", None),
        ("unix:", None),
        ("", None),
    ],
)
def test_addresses_of_calls(peer: str, address: tuple[str, int] | None) -> None:
    assert RemoteAddress.of_call(peer) == address


def addresses(host: str, *ports: int) -> list[RemoteAddress]:
    return [RemoteAddress(host, port) for port in ports]


def test_the_oldest_of_the_address_with_most_connections_are_closed() -> None:
    reserved = ReservedConnections(4)
    flood, one = addresses("192.0.2.1", 1, 2, 3, 4), addresses("192.0.2.2", 9)
    assert reserved._excess([*one, *flood[:3]], set()) == []
    assert reserved._excess([*one, *flood], set()) == flood[:1]
    assert reserved._excess([*one, *flood[1:]], set()) == []


def test_connections_of_the_peer_do_not_count() -> None:
    reserved = ReservedConnections(2)
    ours = addresses("192.0.2.1", 1, 2, 3)
    for each in ours:
        reserved.admitted(f"ipv4:{each.host}:{each.port}")
    others = addresses("192.0.2.1", 4, 5, 6)
    assert reserved._excess([*ours, *others], set()) == others[:1]
    # Once they have ended, their addresses are nobody's.
    assert reserved._excess(ours, set(ours)) == ours[:1]


def test_refused_connections_are_closed_after_a_moment() -> None:
    clock = FakeClock()
    reserved = ReservedConnections(2, clock)
    (one,) = addresses("192.0.2.1", 1)
    reserved.refused("ipv4:192.0.2.1:1")
    assert reserved._excess([one], set()) == []
    clock.advance(_TO_HEAR_WHY)
    assert reserved._excess([one], set()) == [one]
