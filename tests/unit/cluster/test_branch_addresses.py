"""How two heads agree on where their branches connect."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from florist.common.cluster.branch_addresses import agree_on_rendezvous
from florist.common.core.errors import (
    ProtocolViolation,
)
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import UnionBranches

HERE = ("10.0.0.1:7000", "10.0.0.1:7001")


@pytest.mark.parametrize(
    ("said", "ours"),
    [
        (UnionBranches(("10.0.0.1:7000",), bytes(16)), ()),
        (UnionBranches((), bytes(16)), ()),
        (UnionBranches(HERE, bytes(16)), HERE),
        (UnionBranches(("10.0.0.1:7000", "10.0.0.1"), bytes(16)), ()),
        (UnionBranches(("10.0.0.1:7000", "not a host:1"), bytes(16)), ()),
        (UnionBranches(HERE, b""), ()),
    ],
)
def test_inconsistent_branches_are_refused(said: UnionBranches, ours: tuple[str, ...]) -> None:
    link, peer = linked_pair()
    peer.channel("opening").send(said)
    with pytest.raises(ProtocolViolation, match="branches"):
        agree_on_rendezvous(link.channel("opening"), ours, 2)
    link.close()
    peer.close()


def test_both_heads_agree_on_addresses_and_a_fresh_name() -> None:
    there = ("10.0.0.1:7000", "[::1]:7001")
    names = set()
    for _ in range(2):
        link, peer = linked_pair()
        with ThreadPoolExecutor(1) as other:
            active = other.submit(agree_on_rendezvous, link.channel("opening"), there, 2)
            passive = agree_on_rendezvous(peer.channel("opening"), (), 2)
            assert passive == active.result(timeout=10)
        assert passive[0] == there
        names.add(passive[1])
        link.close()
        peer.close()
    assert len(names) == 2
