"""Both protocols return what the plaintext oracle does, for any sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.core.priority_pool import current_priority, high_priority
from florist.common.core.progress import NoProgress
from florist.common.groups import make_group
from florist.common.psu import set_stream
from florist.common.psu.executor import LocalExecutor
from florist.common.psu.hashed_ids import DUMMY_BYTES, DummyIds, hashed_ids
from florist.common.psu.keys import Keys, OwnSecrets
from florist.common.psu.padded_set import PaddedIds
from florist.common.storage.id_column import IdColumn
from tests.support.ideal_union import ideal_sizes, is_ideal
from tests.support.psu import run_pair

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from florist.common.core.roles import RoleName
    from florist.common.groups.group import Exponent, Group
    from florist.common.storage.elements import Elements

X25519 = make_group("x25519")
MODP = make_group("modp2048")

identifiers = st.text(min_size=1, max_size=12).map(lambda text: text.encode("utf-8", "replace"))


@st.composite
def overlapping_sets(draw: st.DrawFn, largest: int) -> tuple[list[bytes], list[bytes]]:
    """Two sets in random order with none, some or all of their IDs in common."""
    everyone = draw(st.lists(identifiers, unique=True, max_size=largest))
    sides = draw(st.lists(st.sampled_from("apb"), min_size=len(everyone), max_size=len(everyone)))
    active = [i for i, side in zip(everyone, sides, strict=True) if side in "ab"]
    passive = [i for i, side in zip(everyone, sides, strict=True) if side in "pb"]
    return draw(st.permutations(active)), draw(st.permutations(passive))


#: Who merges, by the merged protocol; None is Algorithm 1.
PROTOCOLS: tuple[RoleName | None, ...] = (None, "active", "passive")
by_every_protocol = pytest.mark.parametrize("merging", PROTOCOLS)


@by_every_protocol
@settings(max_examples=40, deadline=None)
@given(sets=overlapping_sets(largest=60), planted=st.sampled_from([0, 1, 20]))
def test_x25519_computes_the_ideal_union(
    merging: RoleName | None, sets: tuple[list[bytes], list[bytes]], planted: int
) -> None:
    active, passive = run_pair(X25519, *sets, planted=planted, merging=merging).views()
    assert is_ideal(*sets, active, passive)
    assert active.sizes.planted == 2 * planted


@by_every_protocol
@settings(max_examples=10, deadline=None)
@given(sets=overlapping_sets(largest=12), planted=st.sampled_from([0, 3]))
def test_modp_computes_the_ideal_union(
    merging: RoleName | None, sets: tuple[list[bytes], list[bytes]], planted: int
) -> None:
    active, passive = run_pair(MODP, *sets, planted=planted, merging=merging).views()
    assert is_ideal(*sets, active, passive)


@by_every_protocol
def test_modp3072_computes_the_ideal_union(merging: RoleName | None) -> None:
    ours, theirs = [b"ann", b"bob", b"eve"], [b"bob", b"dan"]
    group = make_group("modp3072")
    active, passive = run_pair(group, ours, theirs, planted=2, merging=merging).views()
    assert is_ideal(ours, theirs, active, passive)


@pytest.mark.parametrize(
    ("only_active", "only_passive", "both"),
    [
        (0, 0, 0),
        (0, 0, 1),
        (1, 0, 0),
        (0, 1, 0),
        (300, 0, 0),
        (0, 0, 300),
        (500, 3, 40),
        (2, 700, 9),
    ],
)
@by_every_protocol
def test_sets_of_many_chunks(
    monkeypatch: pytest.MonkeyPatch,
    merging: RoleName | None,
    only_active: int,
    only_passive: int,
    both: int,
) -> None:
    monkeypatch.setattr(set_stream, "CHUNK_BYTES", 32 * 16)
    shared = [f"b{i}".encode() for i in range(both)]
    ours = [f"a{i}".encode() for i in range(only_active)] + shared
    theirs = shared[::-1] + [f"p{i}".encode() for i in range(only_passive)]
    active, passive = run_pair(X25519, ours, theirs, planted=20, merging=merging).views()
    assert is_ideal(ours, theirs, active, passive)


def test_the_rounds_have_priority() -> None:
    """Each party raises three sets in the rounds, and three to map IDs to UIDs."""
    ranks: list[int] = []

    class Recording(LocalExecutor):
        def raised(
            self, chunks: Iterable[Elements], exponent: Exponent, *, check: bool
        ) -> Iterator[Elements]:
            ranks.append(current_priority())
            return super().raised(chunks, exponent, check=check)

    ours, theirs = [b"ann", b"bob"], [b"bob", b"dan"]
    recording = Recording(X25519)
    active, passive = run_pair(X25519, ours, theirs, executors=(recording, recording)).views()
    assert is_ideal(ours, theirs, active, passive)
    with high_priority():
        first = current_priority()
    assert sorted(ranks) == [first] * 6 + [current_priority()] * 6


def fresh_dummies(count: int) -> DummyIds:
    return DummyIds(OwnSecrets.fresh(X25519).dummy_key, count)


@given(st.integers(0, 20), st.integers(0, 20))
@settings(max_examples=10, deadline=None)
def test_dummies_pad_the_sizes_and_match_nobody(of_active: int, of_passive: int) -> None:
    shared = [b"bob", "zoë".encode()]
    ours, theirs = [b"ann", *shared], [*shared, b"dan"]
    padded_ours = ours + list(fresh_dummies(of_active).rows(0, of_active))
    padded_theirs = theirs + list(fresh_dummies(of_passive).rows(0, of_passive))
    active, passive = run_pair(X25519, padded_ours, padded_theirs).views()
    assert is_ideal(padded_ours, padded_theirs, active, passive)
    assert active.sizes == ideal_sizes(padded_ours, padded_theirs)
    assert active.sizes.union == 4 + of_active + of_passive
    assert active.sizes.shared_estimate == 2


@pytest.mark.parametrize("group", [X25519, MODP], ids=lambda group: group.name)
def test_hashing_appends_dummies_and_keeps_row_order(group: Group) -> None:
    ids = IdColumn.from_bytes([b"ann", b"bob"])
    dummies = fresh_dummies(3)
    padded = PaddedIds(ids, dummies, IdColumn.from_bytes(()))
    hashed = hashed_ids(LocalExecutor(group), padded, NoProgress())
    elements = np.concatenate(list(hashed))
    assert elements.shape == (5, group.width)
    assert np.array_equal(elements[:2], group.hash_ids(ids))
    assert np.array_equal(elements[2:], group.hash_ids(dummies.rows(0, 3)))
    assert len(np.unique(elements, axis=0)) == 5


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 20))
def test_dummies_depend_only_on_their_key_and_number(start: int, count: int, rows: int) -> None:
    dummies = fresh_dummies(start + count)
    every = list(dummies.rows(0, dummies.count))
    assert list(dummies.rows(start, count)) == every[start:]
    assert [each for batch in dummies.batches(rows, start) for each in batch] == every[start:]
    assert {len(each) for each in every} <= {DUMMY_BYTES}
    assert len(set(every)) == len(every)
    assert not set(every) & set(fresh_dummies(dummies.count).rows(0, dummies.count))


def test_the_numbers_of_dummies_are_not_limited_to_32_bits() -> None:
    dummies = fresh_dummies(1 << 40)
    (before, after) = dummies.rows((1 << 33) - 1, 2)
    assert [before, after] == [*dummies.rows((1 << 33) - 1, 1), *dummies.rows(1 << 33, 1)]
    assert after not in list(dummies.rows(0, 2))


def test_fresh_secrets_give_a_different_union() -> None:
    ours, theirs = [b"ann", b"bob"], [b"bob"]
    first, _ = run_pair(X25519, ours, theirs).views()
    second, _ = run_pair(X25519, ours, theirs).views()
    assert first.digest != second.digest


def test_the_repr_of_keys_has_no_secrets() -> None:
    keys = Keys.fresh(X25519)
    shown = f"{keys!r} {keys}"
    for secret in (keys.first, keys.second, keys.third):
        assert str(int(secret)) not in shown
        assert f"{int(secret):x}" not in shown
