"""What `florist show` says about membership is true, whatever the sizes are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from florist.cli.show import membership_statement, protocol_text
from florist.common.session.alignment_result import FORMAT, AlignmentSummary
from florist.common.session.union_sizes import UnionSizes

if TYPE_CHECKING:
    from florist.common.core.roles import RoleName

UNKNOWN = "bank does not know which of its people telco also has"


def summary(own: int, peer: int, shared: int, dummies: int = 0) -> AlignmentSummary:
    return AlignmentSummary(
        format=FORMAT,
        release="1",
        role="active",
        party="bank",
        peer="telco",
        finished_at="2025-01-01T00:00:00+00:00",
        agreement={"group": "x25519", "union": {"privacy": None}},
        engine="python",
        rows=own - dummies,
        table_fingerprint="00",
        own_dummies=dummies,
        sizes=UnionSizes(own, peer, own + peer - shared),
        merging="active",
        union_sha256="00" * 32,
        seconds={},
        bytes_sent=0,
        bytes_received=0,
    )


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        (summary(10, 12, 0), "telco has none of bank's people"),
        (summary(10, 10, 10), "bank and telco have exactly the same people"),
        (summary(10, 12, 10), "telco has every one of bank's people"),
        (summary(13, 12, 10, dummies=3), "telco has every one of bank's people"),
        (summary(12, 10, 10), "bank has every one of telco's people"),
    ],
)
def test_an_extreme_overlap_is_stated(sizes: AlignmentSummary, says: str) -> None:
    statement = membership_statement(sizes)
    assert says in statement
    assert UNKNOWN not in statement
    assert "cannot hide who is shared" in statement


@pytest.mark.parametrize(
    ("merging", "says"),
    [
        (None, "algorithm-1"),
        ("active", "merged; bank merged the sets"),
        ("passive", "merged; telco merged the sets"),
    ],
)
def test_the_protocol_and_who_merged_are_stated(merging: RoleName | None, says: str) -> None:
    assert protocol_text(replace(summary(10, 12, 1), merging=merging)) == says


@pytest.mark.parametrize("sizes", [summary(10, 12, 1), summary(10, 12, 9), summary(13, 12, 9, 3)])
def test_otherwise_membership_is_unknown(sizes: AlignmentSummary) -> None:
    assert membership_statement(sizes).startswith(UNKNOWN)


@pytest.mark.parametrize(
    ("shared", "says"),
    [(30, "few of the people"), (500, ""), (980, "nearly all of the people")],
)
def test_with_private_counts_nothing_is_certain(shared: int, says: str) -> None:
    pool = 40
    sizes = UnionSizes(1000 + 80, 2000 + 80, 3000 - shared + 120, 0, pool, 2.0)
    assert sizes.shared_estimate == shared
    statement = membership_statement(replace(summary(10, 12, 1), sizes=sizes))
    assert statement.startswith(UNKNOWN)
    assert "nor exactly how many" in statement
    assert says in statement
    assert ("guess" in statement) == bool(says)
