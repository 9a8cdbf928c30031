"""The set that a party brings to a union: people first, then padding that both account for."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.groups import make_group
from florist.common.privacy.count_noise import CountNoise
from florist.common.psu.hashed_ids import DUMMY_BYTES, DummyIds
from florist.common.psu.keys import CountDraws, OwnSecrets
from florist.common.psu.padded_set import PaddedIds, PaddedSet, noise_of, pool_ids
from florist.common.psu.sealed_keys import new_sealing_key, seal, unseal
from florist.common.settings.union import CountPrivacy
from florist.common.storage.id_column import IdColumn

if TYPE_CHECKING:
    from florist.common.core.roles import RoleName

GROUP = make_group("x25519")
NOISE = CountNoise(Fraction(1), 4)
TOKEN = b"t" * 32

some_of_a_pool = st.sets(st.integers(0, NOISE.pool_size - 1))
some_dummies = st.integers(0, NOISE.pool_size)


def ids_of(padded: PaddedIds) -> list[bytes]:
    return [each for batch in padded.batches(7) for each in batch]


def padded(role: RoleName, people: list[bytes], draws: CountDraws, dummies: int = 0) -> PaddedIds:
    own = replace(OwnSecrets.fresh(GROUP), draws=draws)
    return PaddedSet(IdColumn.from_bytes(people), role, dummies, NOISE).ids(TOKEN, own)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 12), st.integers(1, 9))
def test_blocks_are_full_and_do_not_show_where_padding_begins(
    people: int, dummies: int, pool: int, rows: int
) -> None:
    ids = [b"%d" % number for number in range(people)]
    in_pool = pool_ids(TOKEN, "active", pool)
    made = PaddedIds(IdColumn.from_bytes(ids), DummyIds(bytes(32), dummies), in_pool)
    blocks = [list(each) for each in made.batches(rows)]
    everything = [each for block in blocks for each in block]
    assert everything == [*ids, *DummyIds(bytes(32), dummies).rows(0, dummies), *in_pool]
    assert len(everything) == len(made)
    assert all(len(each) == DUMMY_BYTES for each in everything[people:])
    assert all(len(block) == rows for block in blocks[:-1])
    assert len(set(everything)) == len(everything)


@settings(deadline=None)
@given(some_of_a_pool, some_of_a_pool, some_dummies, some_dummies, st.integers(0, 5))
def test_the_draws_of_both_parties_add_to_the_sizes(
    z_active: set[int], z_passive: set[int], w_active: int, w_passive: int, shared: int
) -> None:
    """|Ja| = |Ia| + 2t + Za + Wa, and |Ja ∩ Jp| = |Ia ∩ Ip| + Za + Zp, whatever was drawn."""
    both = [b"both-%d" % number for number in range(shared)]
    active_draws = CountDraws(w_active, tuple(sorted(z_active)))
    passive_draws = CountDraws(w_passive, tuple(sorted(z_passive)))
    active = ids_of(padded("active", [*both, b"ann"], active_draws, dummies=3))
    passive = ids_of(padded("passive", [*both, b"bob"], passive_draws))
    assert len(set(active)) == len(active)
    assert len(active) == shared + 1 + 3 + NOISE.pool_size + len(z_active) + w_active
    assert len(passive) == shared + 1 + NOISE.pool_size + len(z_passive) + w_passive
    assert len(set(active) & set(passive)) == shared + len(z_active) + len(z_passive)


def test_a_party_inserts_the_peers_whole_pool_and_some_of_its_own() -> None:
    made = set(ids_of(padded("active", [b"ann"], CountDraws(0, (1, 5)))))
    assert made.issuperset(pool_ids(TOKEN, "passive", NOISE.pool_size))
    own_pool = list(pool_ids(TOKEN, "active", NOISE.pool_size))
    assert [index for index, each in enumerate(own_pool) if each in made] == [1, 5]


def test_every_union_and_every_party_has_another_pool() -> None:
    pools = [
        set(pool_ids(token, role, 8))
        for token in (TOKEN, b"u" * 32)
        for role in ("active", "passive")
    ]
    assert len(set.union(*pools)) == 32


def test_without_private_counts_nothing_is_added() -> None:
    assert noise_of(None) is None
    own_set = PaddedSet(IdColumn.from_bytes([b"ann", b"bob"]), "active")
    own = own_set.draw_secrets(GROUP)
    assert own.draws == CountDraws(0, ())
    assert ids_of(own_set.ids(TOKEN, own)) == [b"ann", b"bob"]


def test_draws_are_those_of_the_agreed_guarantee() -> None:
    noise = noise_of(CountPrivacy())
    assert noise is not None
    assert noise.pool_size == 40
    drawn = [CountDraws.fresh(noise) for _ in range(300)]
    for counts in ([len(each.chosen) for each in drawn], [each.dummies for each in drawn]):
        assert 0 <= min(counts) < 20 < max(counts) <= 40
        # The mean of 300 draws is within six standard errors of 20.
        assert abs(np.mean(counts) - 20) < 6 * noise.deviation / np.sqrt(300)
    assert all(sorted(set(each.chosen)) == list(each.chosen) for each in drawn)
    # Which IDs of the pool are inserted is random too.
    assert len({each.chosen for each in drawn}) > 290


def test_draws_survive_a_restart_but_not_in_the_clear() -> None:
    own, key = OwnSecrets.fresh(GROUP, NOISE), new_sealing_key()
    sealed = seal(own, key, TOKEN)
    assert unseal(sealed, key, TOKEN) == own
    assert own.commitment_key not in sealed
    assert repr(own.draws) == "CountDraws(…)"


def test_the_commitment_covers_padding_and_depends_on_the_key_only() -> None:
    made = padded("active", [b"ann", b"bob"], CountDraws(2, (0, 3)))
    first = made.commit(b"k" * 32)
    assert made.commit(b"k" * 32) == first
    assert made.commit(b"l" * 32).root != first.root
    fewer = PaddedIds(made.people, made.dummies, made.pool.slice(0, len(made.pool) - 1))
    other = fewer.commit(b"k" * 32)
    assert (other.people, other.dummies) == (first.people, first.dummies)
    assert other.root != first.root
