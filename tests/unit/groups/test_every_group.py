from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.core.errors import ConfigurationError
from florist.common.groups import ENGINE_NAMES, GROUP_NAMES, make_group
from florist.common.storage.id_column import IdColumn

if TYPE_CHECKING:
    from florist.common.groups.group import Exponent, Group
    from florist.common.storage.elements import Elements


def paths_to_the_universal_id(group: Group, hashed: Elements) -> list[Elements]:
    """Follow the three ways of Algorithm 1 from an ID to its UID: steps 3-9, 11 and 12."""
    s1, s2, s3, t1, t2, t3 = (group.random_exponent() for _ in range(6))

    def follow(*exponents: Exponent) -> Elements:
        elements = hashed
        for exponent in exponents:
            elements = group.power(elements, exponent)
        return elements

    product = group.product
    return [
        follow(s1, t1, product(s2, s3), product(t2, t3)),
        follow(t1, s1, product(s2, s3), product(t2, t3)),
        follow(s2, product(t1, t2, t3), product(s1, s3)),
        follow(t2, product(s1, s2, s3), product(t1, t3)),
        follow(product(s1, s2, s3, t1, t2, t3)),
    ]


def check_paths(group: Group, ids: list[bytes]) -> None:
    hashed = group.hash_ids(IdColumn.from_bytes(ids))
    group.validate(hashed)
    first, *others = paths_to_the_universal_id(group, hashed)
    group.validate(first)
    for other in others:
        np.testing.assert_array_equal(first, other)
    assert len({row.tobytes() for row in first}) == len(ids)


@settings(max_examples=3, deadline=None)
@given(ids=st.lists(st.binary(max_size=50), min_size=1, max_size=2, unique=True))
def test_all_paths_lead_to_the_same_id(group: Group, ids: list[bytes]) -> None:
    check_paths(group, ids)


@settings(max_examples=25, deadline=None)
@given(ids=st.lists(st.binary(max_size=50), min_size=1, max_size=10, unique=True))
def test_all_paths_lead_to_the_same_id_in_every_engine(x25519: Group, ids: list[bytes]) -> None:
    check_paths(x25519, ids)


def test_all_paths_with_many_ids(x25519: Group) -> None:
    check_paths(x25519, [b"%d" % i for i in range(600)])


def test_arguments_are_not_changed_or_shared(group: Group) -> None:
    elements = group.hash_ids(IdColumn.from_bytes([b"a", b"b", b"c"]))
    before = elements.copy()
    elements.flags.writeable = False  # as a buffer from the wire is
    powers = group.power(elements, group.random_exponent())
    np.testing.assert_array_equal(elements, before)
    assert powers.flags.writeable
    assert powers.flags.c_contiguous


def test_concurrent_use(x25519: Group) -> None:
    hashed = x25519.hash_ids(IdColumn.from_bytes([b"%d" % i for i in range(1000)]))
    exponents = [x25519.random_exponent() for _ in range(4)]
    expected = [x25519.power(hashed, exponent) for exponent in exponents]
    results: dict[int, Elements] = {}

    def work(i: int) -> None:
        results[i] = x25519.power(hashed, exponents[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(4):
        np.testing.assert_array_equal(results[i], expected[i])


def test_empty(x25519: Group) -> None:
    empty = x25519.hash_ids(IdColumn.from_bytes([]))
    x25519.validate(empty)
    assert x25519.power(empty, x25519.random_exponent()).shape == (0, 32)


def test_no_secret_in_repr(group: Group) -> None:
    exponent = group.random_exponent()
    group.power(group.hash_ids(IdColumn.from_bytes([b"a"])), exponent)
    shown = repr(group) + repr(vars(group))
    assert str(exponent) not in shown
    assert f"{exponent:x}" not in shown
    assert group.name in repr(group).lower()


def test_names(group: Group) -> None:
    assert group.name in GROUP_NAMES
    assert group.engine in ENGINE_NAMES


def test_unknown_names() -> None:
    with pytest.raises(
        ConfigurationError, match=r"unknown group 'p256'.*x25519, modp2048, modp3072"
    ):
        make_group("p256")
    with pytest.raises(ConfigurationError, match="has no engine 'gmpy2'"):
        make_group("x25519", "gmpy2")
    with pytest.raises(ConfigurationError, match="at least 0"):
        make_group("x25519", threads=-1)
