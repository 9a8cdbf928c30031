"""The stand-in rule: the own row where the party has the UID, else a donor row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from florist.common.synthetic.feature_strategies import (
    FEATURE_STRATEGIES,
    DonorStrategy,
    FeatureSettings,
    feature_strategy,
)
from florist.common.synthetic.membership import Membership
from florist.common.synthetic.secret_draws import SecretDraws
from florist.common.synthetic.stand_ins import StandIns

if TYPE_CHECKING:
    from collections.abc import Callable

UNION, OWN, RESERVED = 400, 150, 300
RANK_OF_ROW = np.random.default_rng(1).permutation(UNION)[:OWN]
MEMBERSHIP = Membership.of(RANK_OF_ROW, UNION)
ALL = np.arange(UNION)


def of_strategy(name: str, *, sticky: bool) -> Callable[[SecretDraws], StandIns]:
    def make(draws: SecretDraws) -> StandIns:
        settings = FeatureSettings(draws, OWN, 4, sticky=sticky)
        return StandIns.of_strategy(MEMBERSHIP, feature_strategy(name, settings))

    return make


def used_once(draws: SecretDraws) -> StandIns:
    return StandIns.used_once(MEMBERSHIP, np.arange(OWN, OWN + RESERVED), draws)


def cases() -> list[tuple[Callable[[SecretDraws], StandIns], bool, int]]:
    """Return how to make stand-ins, whether they depend on the epoch, and the number of rows."""
    found: list[tuple[Callable[[SecretDraws], StandIns], bool, int]] = [
        (used_once, False, OWN + RESERVED),
        (lambda draws: StandIns.sampled(MEMBERSHIP, OWN, draws), False, OWN),
        (lambda draws: StandIns.sampled(MEMBERSHIP, OWN, draws, sticky=False), True, OWN),
    ]
    for name in FEATURE_STRATEGIES.names:
        is_copied = issubclass(FEATURE_STRATEGIES[name], DonorStrategy)
        found.append((of_strategy(name, sticky=True), False, OWN))
        found.append((of_strategy(name, sticky=False), is_copied, OWN))
    return found


@pytest.mark.parametrize(("make", "by_epoch", "rows"), cases())
@given(seed=st.integers(0, 2**32), epoch=st.integers(0, 1000), chosen=st.data())
def test_the_rule(
    make: Callable[[SecretDraws], StandIns],
    seed: int,
    epoch: int,
    chosen: st.DataObject,
    *,
    by_epoch: bool,
    rows: int,
) -> None:
    stand_ins = make(SecretDraws.from_seed(seed))
    shown = stand_ins.rows(ALL, epoch)
    assert shown.dtype == np.int64
    assert stand_ins.rows(RANK_OF_ROW, epoch).tolist() == list(range(OWN)), "the own rows"
    assert np.flatnonzero(stand_ins.is_own(ALL)).tolist() == sorted(RANK_OF_ROW.tolist())
    assert shown.min() >= 0
    assert shown.max() < rows
    again = make(SecretDraws.from_seed(seed))
    assert np.array_equal(again.rows(ALL, epoch), shown), "deterministic"
    assert np.array_equal(stand_ins.rows(ALL, epoch + 1), shown) == (not by_epoch)
    some = np.array(chosen.draw(st.lists(st.integers(0, UNION - 1))), dtype=np.int64)
    assert np.array_equal(stand_ins.rows(some, epoch), shown[some]), "whatever else is asked for"
    assert np.array_equal(stand_ins.is_own(some), MEMBERSHIP.rows(some) >= 0)


def test_rows_used_once_are_different_reserved_rows() -> None:
    stand_ins = used_once(SecretDraws.from_seed(5))
    lacking = ALL[~stand_ins.is_own(ALL)]
    donors = stand_ins.rows(lacking)
    assert donors.min() >= OWN
    assert len(np.unique(donors)) == UNION - OWN
    other = used_once(SecretDraws.from_seed(6)).rows(lacking)
    assert not np.array_equal(other, donors), "another secret"


def test_too_few_reserved_rows_are_refused() -> None:
    reserved = np.arange(OWN, OWN + UNION - OWN - 1)
    with pytest.raises(ValueError, match="249 reserved rows for 250"):
        StandIns.used_once(MEMBERSHIP, reserved, SecretDraws.from_seed(1))
