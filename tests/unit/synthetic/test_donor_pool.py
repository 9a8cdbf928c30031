"""Donors of each class, against slow, obvious bookkeeping of who was opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.synthetic import donor_pool
from florist.common.synthetic.donor_pool import (
    FEWEST,
    NOT_FROM_POOL,
    SHOWN_SHARE,
    ClassDonors,
    DonorPool,
    KeptOffers,
    Offers,
    donor_classes,
)
from florist.common.synthetic.secret_draws import SecretDraws

if TYPE_CHECKING:
    import numpy.typing as npt

    Rows = npt.NDArray[np.int64]

ROWS = 1000
DRAWS = SecretDraws.from_seed(1)
#: As `FEWEST`, for small examples.
FEW = 3


@dataclass
class Uses:
    """The oracle: how often each donor of a class was opened.

    A donor that is opened while others were opened less often does not count. One that is added
    counts as opened as often as those that were opened least.
    """

    count_of: dict[int, int] = field(default_factory=dict)

    @property
    def least(self) -> int:
        return min(self.count_of.values(), default=0)

    @property
    def fresh(self) -> set[int]:
        return {row for row, count in self.count_of.items() if count == self.least}

    def add(self, row: int) -> None:
        self.count_of[row] = self.least

    def open(self, rows: set[int]) -> None:
        for row in rows & self.fresh:
            self.count_of[row] += 1


@dataclass(frozen=True)
class Step:
    """A step of a run: the class of the offer that is opened for each UID, and new donors."""

    opened: list[int]
    added: list[int]


def steps(classes: int) -> st.SearchStrategy[list[Step]]:
    labels = st.integers(-1, classes - 1)
    step = st.builds(Step, st.lists(labels, max_size=12), st.lists(labels, max_size=10))
    return st.lists(step, max_size=12)


def check_offers(offers: Offers, uses: list[Uses], count: int) -> None:
    """Check the offers of a step against the donors before it."""
    assert offers.rows.shape == offers.positions.shape == (len(uses), count)
    assert len(offers) == count
    everyone = sum(len(each.count_of) for each in uses)
    for label, donors in enumerate(uses):
        rows, positions = offers.rows[label].tolist(), offers.positions[label].tolist()
        if len(donors.count_of) < FEW or everyone < count:
            assert set(positions) <= {NOT_FROM_POOL}
            assert all(0 <= row < ROWS for row in rows)
            continue
        assert set(rows) <= donors.count_of.keys()
        assert len(set(zip(rows, positions, strict=True))) == len(set(rows)) == len(set(positions))
        # Each once as long as there are enough, then each a second time, and so on.
        times = [rows.count(row) for row in donors.count_of]
        assert max(times) - min(times) <= 1
        fresh = donors.fresh
        if count <= len(fresh):
            assert set(rows) <= fresh
        else:
            assert set(rows[: len(fresh)]) == fresh


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(donor_pool, "FEWEST", FEW)


@pytest.mark.parametrize("classes", [2, 3])
@given(data=st.data(), seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_the_pool_equals_the_slow_one(classes: int, data: st.DataObject, seed: int) -> None:
    draws = SecretDraws.from_seed(seed)
    pool, uses = DonorPool(classes, ROWS, draws), [Uses() for _ in range(classes)]
    next_row = 0
    for number, step in enumerate(data.draw(steps(classes))):
        count = len(step.opened)
        offers = pool.offers(np.arange(count), number)
        check_offers(offers, uses, count)
        again = pool.offers(np.arange(count), number)  # drawing changes nothing
        assert np.array_equal(again.rows, offers.rows)
        assert np.array_equal(again.positions, offers.positions)
        copy = DonorPool(classes, ROWS, draws)
        copy.restore({name: tensor.clone() for name, tensor in pool.state().items()})
        for each in (pool, copy):
            each.opened(offers, np.array(step.opened, dtype=np.int64))
            rows = np.arange(next_row, next_row + len(step.added))
            each.add(rows, np.array(step.added, dtype=np.int64))
        for label, donors in enumerate(uses):
            is_opened = (np.array(step.opened) == label) & (
                offers.positions[label] != NOT_FROM_POOL
            )
            donors.open(set(offers.rows[label][is_opened].tolist()))
        for row, label in enumerate(step.added, start=next_row):
            if label >= 0:
                uses[label].add(row)
        next_row += len(step.added)
        state = pool.state()
        for label, donors in enumerate(uses):
            kept = state[f"rows-{label}"].tolist()
            fresh = int(state[f"fresh-{label}"])
            assert sorted(kept) == sorted(donors.count_of)
            assert set(kept[:fresh]) == donors.fresh
        assert all(torch.equal(tensor, copy.state()[name]) for name, tensor in state.items())


@given(
    st.integers(1, 60),
    st.lists(st.integers(0, 100), max_size=40),
    st.integers(0, 2**32),
)
def test_a_donor_is_opened_again_only_after_all_others(
    donors: int, sizes: list[int], seed: int
) -> None:
    """The numbers of times that donors were opened differ by one at most."""
    draws = SecretDraws.from_seed(seed)
    pool = ClassDonors(np.arange(donors), donors)
    opened = np.zeros(donors, dtype=np.int64)
    for step, size in enumerate(sizes):
        positions = pool.drawn(min(size, pool.fresh), draws, step)
        opened[pool.rows[positions]] += 1
        pool.open(positions)
        assert opened.max() - opened.min() <= 1


def test_offers_that_are_not_opened_count_as_unused() -> None:
    pool = DonorPool(2, ROWS, DRAWS)
    pool.add(np.arange(20), np.repeat([0, 1], 10))
    offers = pool.offers(np.arange(10), 0)
    pool.opened(offers, np.array([0] * 4 + [1] * 5 + [-1]))
    state = pool.state()
    assert set(state["rows-0"][:6].tolist()) == set(offers.rows[0, 4:].tolist())
    assert (int(state["fresh-0"]), int(state["fresh-1"])) == (6, 5)


def test_any_row_is_offered_until_a_class_has_enough_donors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(donor_pool, "FEWEST", FEWEST)
    pool = DonorPool(2, ROWS, DRAWS)
    pool.add(np.arange(2 * FEWEST - 1), np.arange(2 * FEWEST - 1) % 2)
    offers = pool.offers(np.arange(2 * FEWEST - 1), 5)
    assert set(offers.rows[0].tolist()) == set(range(0, 2 * FEWEST - 1, 2))
    assert (offers.positions[1] == NOT_FROM_POOL).all()
    assert len(set(offers.rows[1].tolist())) > FEWEST
    pool.add(np.array([2 * FEWEST - 1]), np.array([1]))
    assert (pool.offers(np.arange(2 * FEWEST), 6).positions >= 0).all()
    # With more UIDs than donors of all classes, the peer would see most donors twice.
    assert (pool.offers(np.arange(2 * FEWEST + 1), 6).positions == NOT_FROM_POOL).all()


def test_draws_are_uniform_and_differ_by_step_and_class() -> None:
    pool = DonorPool(2, ROWS, DRAWS)
    first = pool.offers(np.arange(2000), 0).rows
    assert np.bincount(first[0] // 100, minlength=10) == pytest.approx([200] * 10, abs=75)
    assert (first[0] == first[1]).mean() < 0.01
    assert (first[0] == pool.offers(np.arange(2000), 1).rows[0]).mean() < 0.01
    pool.add(np.arange(1000), np.zeros(1000, dtype=np.int64))
    for count in (100, 900):  # both ways of sampling
        chosen = [pool.offers(np.arange(count), step).rows[0] for step in range(200)]
        times = np.bincount(np.concatenate(chosen), minlength=1000)
        expected, share = 200 * count / 1000, count / 1000
        deviation = (200 * share * (1 - share)) ** 0.5
        assert abs(times - expected).max() < 6 * deviation
        assert not np.array_equal(np.sort(chosen[0]), np.sort(chosen[1]))


def test_a_pool_grows_in_place() -> None:
    """Also from a restored state, which has no spare room, and with fewer donors than others."""
    donors = ClassDonors(np.arange(10), 2)
    donors.add(np.array([10, 11, 12]))
    assert set(donors.rows[:5].tolist()) == {0, 1, 10, 11, 12}
    assert set(donors.rows[5:].tolist()) == set(range(2, 10))
    donors.add(np.arange(13, 40))
    assert donors.fresh == 32
    assert sorted(donors.rows.tolist()) == list(range(40))


# --- offers that are kept ---


@given(st.data())
def test_the_first_offers_of_a_uid_are_kept(data: st.DataObject) -> None:
    kept, expected = KeptOffers(3, 20), dict[int, list[int]]()
    for number in range(data.draw(st.integers(1, 6))):
        ranks = np.array(
            data.draw(st.lists(st.integers(0, 19), unique=True, max_size=10)), dtype=np.int64
        )
        rows = np.random.default_rng(number).integers(0, ROWS, (3, len(ranks)))
        drawn = Offers(rows, rows + 1)
        settled = kept.settled(ranks, drawn)
        for column, rank in enumerate(ranks.tolist()):
            is_known = rank in expected
            drawn_rows = rows[:, column].tolist()
            assert settled.rows[:, column].tolist() == expected.get(rank, drawn_rows)
            # The pool does not count a kept offer a second time.
            positions = [NOT_FROM_POOL] * 3 if is_known else (rows[:, column] + 1).tolist()
            assert settled.positions[:, column].tolist() == positions
        kept.keep(ranks, settled)
        for column, rank in enumerate(ranks.tolist()):
            expected.setdefault(rank, rows[:, column].tolist())
        restored = KeptOffers(3, 20)
        restored.restore({name: tensor.clone() for name, tensor in kept.state().items()})
        assert torch.equal(restored.state()["kept"], kept.state()["kept"])
        kept = restored


# --- as whose donor a row serves ---


@pytest.mark.parametrize("classes", [2, 4])
def test_most_rows_are_donors_of_the_label_shown_and_others_of_the_prediction(
    classes: int,
) -> None:
    rows = 40_000
    random = np.random.default_rng(0)
    shown = random.integers(-1, classes, rows)
    predicted = np.tile(np.arange(1, classes + 1) / sum(range(classes + 1)), (rows, 1))
    found = donor_classes(shown, predicted, np.arange(rows), DRAWS)
    assert (found[shown < 0] == -1).all()
    for label in range(classes):
        of_label = found[shown == label]
        expected = (1 - SHOWN_SHARE) * predicted[0]
        expected[label] += SHOWN_SHARE
        shares = np.bincount(of_label, minlength=classes) / len(of_label)
        deviation = 0.5 / len(of_label) ** 0.5
        assert abs(shares - expected).max() < 6 * deviation


@given(st.integers(0, 2**32))
def test_the_class_of_a_donor_depends_on_its_uid_only(seed: int) -> None:
    """Not on the rest of its batch, nor on how often a step is made."""
    random = np.random.default_rng(seed)
    shown, ranks = random.integers(0, 3, 50), random.permutation(500)[:50]
    predicted = random.dirichlet([1, 1, 1], 50)
    together = donor_classes(shown, predicted, ranks, DRAWS)
    half = donor_classes(shown[20:], predicted[20:], ranks[20:], DRAWS)
    assert np.array_equal(together[20:], half)
    certain = np.eye(3)[shown]
    assert np.array_equal(donor_classes(shown, certain, ranks, DRAWS), shown)
