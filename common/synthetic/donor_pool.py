"""Donors of each class: rows of a party's own table whose label the gradients have shown.

The passive party offers one stand-in per class for each UID that it lacks, and the peer opens the
one of its label. So the stand-in fits the label, as real features would. Donors of a class are own
rows with that label, real or synthetic: the party cannot tell which, and need not.

A donor that the peer has opened is a copy, which it might recognise. So donors are drawn at random
from those that were opened least often, and one that was offered but not opened counts as unused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from florist.common.synthetic.secret_draws import SecretDraws

    Rows = npt.NDArray[np.int64]

#: The share of rows that become donors of the label that their gradient has shown. A row was
#: learned with that label and fits it slightly better than a new person's row would; so the others
#: become donors of a class drawn from the prediction before.
SHOWN_SHARE = 0.75

#: A class has donors from this number of rows on. Before, any row of the table is a stand-in.
FEWEST = 30

#: Position of an offer that is not from the pool.
NOT_FROM_POOL = -1


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Offers:
    """The rows to offer for some UIDs, (classes, UIDs), and their positions in the pool."""

    rows: Rows
    positions: Rows

    def __len__(self) -> int:
        return int(self.rows.shape[1])


class ClassDonors:
    """The donors of one class. The first `fresh` ones were opened less often than the others.

    All operations take time in proportion to the rows of a batch, not of the pool.
    """

    def __init__(self, rows: Rows, fresh: int) -> None:
        self._rows = rows
        self._count = len(rows)
        self.fresh = fresh

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> Rows:
        """All donors, the fresh ones first."""
        return self._rows[: self._count]

    def drawn(self, count: int, draws: SecretDraws, *context: int) -> Rows:
        """Draw the positions of `count` donors: fresh ones, then others, then each once more.

        The same arguments give the same positions. There must be a donor, unless `count` is 0.
        """
        others = len(self) - self.fresh
        found = [_sample(self.fresh, count, draws, 0, *context)]
        missing = count - len(found[0])
        found.append(self.fresh + _sample(others, missing, draws, 1, *context))
        missing -= len(found[1])
        for turn in range(2, 2 + -(-missing // max(len(self), 1))):
            found.append(_sample(len(self), missing, draws, turn, *context))
            missing -= len(found[-1])
        return np.concatenate(found)

    def open(self, positions: Rows) -> None:
        """Count the donors at these positions as opened. If all are, a new round begins."""
        taken = np.unique(positions)
        taken = taken[taken < self.fresh]
        kept = self.fresh - len(taken)
        # The fresh donors behind `kept` fill the holes before it, and the opened ones follow them.
        opened = self._rows[taken]
        behind = np.setdiff1d(np.arange(kept, self.fresh), taken, assume_unique=True)
        self._rows[taken[taken < kept]] = self._rows[behind]
        self._rows[kept : self.fresh] = opened
        self.fresh = kept or len(self)

    def add(self, rows: Rows) -> None:
        """Add fresh donors."""
        count = len(self) + len(rows)
        if count > len(self._rows):
            grown = np.empty(max(count, 2 * len(self._rows)), dtype=np.int64)
            grown[: len(self)] = self.rows
            self._rows = grown
        # The first of the others move to the end to make room.
        moved = self._rows[self.fresh : min(self.fresh + len(rows), len(self))].copy()
        self._rows[count - len(moved) : count] = moved
        self._rows[self.fresh : self.fresh + len(rows)] = rows
        self.fresh += len(rows)
        self._count = count


class DonorPool:
    """The donors of all classes.

    Drawing offers changes nothing, so that a step that was interrupted can be made again. The pool
    changes once per step, at its end.
    """

    def __init__(self, classes: int, rows: int, draws: SecretDraws) -> None:
        """Begin without donors.

        Args:
            classes: number of classes of the label.
            rows: number of rows of the own table.
            draws: the secret draws of the run.
        """
        self._rows = rows
        self._draws = draws
        self._donors = [ClassDonors(np.empty(0, dtype=np.int64), 0) for _ in range(classes)]

    def offers(self, ranks: Rows, step: int) -> Offers:
        """Return the rows to offer in this step for UIDs, given by their rank in `U`."""
        offered = [self._offers_of(label, len(ranks), step) for label in range(len(self._donors))]
        rows, positions = zip(*offered, strict=True)
        return Offers(np.stack(rows), np.stack(positions))

    def _offers_of(self, label: int, count: int, step: int) -> tuple[Rows, Rows]:
        donors = self._donors[label]
        everyone = sum(map(len, self._donors))
        # Of each class the peer opens about as many offers as the class is frequent, so with fewer
        # donors of all classes than UIDs, it would see most donors twice in one batch.
        if len(donors) < FEWEST or everyone < count:
            numbers = np.arange(count)
            draws = self._draws.derive("first stand-ins", label)
            rows = draws.integers_at("row", numbers, self._rows, step)
            return rows, np.full_like(rows, NOT_FROM_POOL)
        positions = donors.drawn(count, self._draws.derive("donors", label), step)
        return donors.rows[positions], positions

    def opened(self, offers: Offers, labels: Rows) -> None:
        """Take in which offers the peer has opened.

        Args:
            offers: the offers of the step, as drawn.
            labels: the class of the opened offer of each UID; -1 if it is unknown.
        """
        for label, donors in enumerate(self._donors):
            positions = offers.positions[label][labels == label]
            donors.open(positions[positions != NOT_FROM_POOL])

    def add(self, rows: Rows, classes: Rows) -> None:
        """Add own rows as donors of these classes; not those of class -1.

        Args:
            rows: own rows that are not in the pool yet.
            classes: as `donor_classes` returns them.
        """
        for label, donors in enumerate(self._donors):
            donors.add(rows[classes == label])

    def state(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint."""
        tensors = {}
        for label, donors in enumerate(self._donors):
            tensors[f"rows-{label}"] = torch.from_numpy(donors.rows.copy())
            tensors[f"fresh-{label}"] = torch.tensor(donors.fresh)
        return tensors

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore the state of a checkpoint."""
        self._donors = [
            ClassDonors(state[f"rows-{label}"].numpy().copy(), int(state[f"fresh-{label}"]))
            for label in range(len(self._donors))
        ]


class KeptOffers:
    """Keeps the stand-ins offered for each UID, since real features never change either."""

    def __init__(self, classes: int, union_size: int) -> None:
        self._rows = np.full((classes, union_size), NOT_FROM_POOL, dtype=np.int64)

    def settled(self, ranks: Rows, drawn: Offers) -> Offers:
        """Return the offers of UIDs, given by their rank in `U`: the kept ones, or those drawn."""
        kept = self._rows[:, ranks]
        is_kept = kept != NOT_FROM_POOL
        return Offers(
            np.where(is_kept, kept, drawn.rows), np.where(is_kept, NOT_FROM_POOL, drawn.positions)
        )

    def keep(self, ranks: Rows, offers: Offers) -> None:
        """Keep the offers of a step."""
        self._rows[:, ranks] = offers.rows

    def state(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint."""
        return {"kept": torch.from_numpy(self._rows)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore the state of a checkpoint."""
        self._rows = state["kept"].numpy().copy()


def donor_classes(
    shown: Rows, predicted: npt.NDArray[np.float64], ranks: Rows, draws: SecretDraws
) -> Rows:
    """Return the class as whose donor each row will serve.

    Args:
        shown: the label that the row's gradient has shown; -1 if none.
        predicted: the probability of each class before the row was learned: (rows, classes).
        ranks: of the rows' UIDs in the union.
        draws: the secret draws of the run.
    """
    drawn = drawn_classes(predicted, draws, "donor class", ranks)
    is_shown = draws.uniforms_at("donor of the label shown", ranks) < SHOWN_SHARE
    return np.where(is_shown | (shown < 0), shown, drawn)


def drawn_classes(
    predicted: npt.NDArray[np.float64], draws: SecretDraws, purpose: str, positions: Rows
) -> Rows:
    """Draw the class of each row from its probabilities: (rows, classes)."""
    inner = predicted.cumsum(axis=1)[:, :-1]
    drawn: Rows = (draws.uniforms_at(purpose, positions)[:, None] >= inner).sum(axis=1)
    return drawn


def _sample(below: int, count: int, draws: SecretDraws, *context: int) -> Rows:
    """Return `count` different numbers below `below` at random, or all of them if fewer."""
    if count <= 0 or below <= 0:
        return np.empty(0, dtype=np.int64)
    if count > below // 2:  # most would be drawn more than once
        order = np.argsort(draws.uniforms("order", below, *context), kind="stable")
        return order[:count]
    found = np.empty(0, dtype=np.int64)
    turn = 0
    while len(found) < count:
        wanted = np.arange(2 * (count - len(found)) + 8)
        drawn = draws.integers_at("position", wanted, below, turn, *context)
        together = np.concatenate((found, drawn))
        _, first = np.unique(together, return_index=True)
        found = together[np.sort(first)]
        turn += 1
    return found[:count]
