"""The stand-in rule: which row of a party's own table is used for each UID of the union.

A UID that the party has gets its own row. Every other UID gets a stand-in: a row of the own table,
chosen by secret draws. Training, evaluation, serving and the self-audit all use this rule, so that
the audit evaluates exactly what is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from florist.common.synthetic.feature_strategies import DonorStrategy, FeaSampling

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.synthetic.feature_strategies import FeatureStrategy
    from florist.common.synthetic.membership import Membership
    from florist.common.synthetic.secret_draws import SecretDraws

    Rows = npt.NDArray[np.int64]


class Donors(Protocol):
    """Chooses a donor row for each UID, whether or not the party has that UID."""

    def donors(self, ranks: Rows, epoch: int) -> Rows:
        """Return a row of the own table for each UID, given by its rank in `U`."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StandIns:
    """The own row of each UID that the party has, and a donor row for each other UID.

    Both are computed for every UID and then selected from, so that the amount of work does not
    depend on membership.
    """

    membership: Membership
    donors: Donors

    @classmethod
    def of_strategy(cls, membership: Membership, strategy: FeatureStrategy) -> Self:
        """Stand-ins of the agreed feature strategy, for the passive party's training.

        An embedding strategy replaces the embedding of every stand-in, so any row will do.
        """
        return cls(membership, strategy if isinstance(strategy, DonorStrategy) else _FirstRow())

    @classmethod
    def sampled(
        cls, membership: Membership, rows: int, draws: SecretDraws, *, sticky: bool = True
    ) -> Self:
        """Stand-ins drawn from all `rows` of the own table (`fea-sampling`); rows can repeat."""
        return cls(membership, FeaSampling(draws, rows, sticky=sticky))

    @classmethod
    def used_once(cls, membership: Membership, reserved: Rows, draws: SecretDraws) -> Self:
        """Stand-ins from the `reserved` rows, which are not in the union, each used at most once.

        There must be at least as many reserved rows as UIDs that the party lacks.
        """
        return cls(membership, _ReservedRows(membership, reserved, draws))

    def is_own(self, ranks: Rows) -> npt.NDArray[np.bool_]:
        """Whether the party has each UID, given by its rank in `U`."""
        return self.membership.rows(ranks) >= 0

    def rows(self, ranks: Rows, epoch: int = 0) -> Rows:
        """Return a row of the own table for each UID, given by its rank in `U`.

        Only stand-ins that are not sticky depend on the epoch.
        """
        own = self.membership.rows(ranks)
        return np.where(own >= 0, own, self.donors.donors(ranks, epoch))


class _FirstRow:
    """A placeholder where the stand-in's features do not matter."""

    def donors(self, ranks: Rows, epoch: int) -> Rows:  # noqa: ARG002 - as of `Donors`
        return np.zeros_like(ranks)


class _ReservedRows:
    """A random assignment of reserved rows to the UIDs that the party lacks."""

    def __init__(self, membership: Membership, reserved: Rows, draws: SecretDraws) -> None:
        missing = np.flatnonzero(membership.row_of_rank < 0)
        if len(missing) > len(reserved):
            raise ValueError(f"{len(reserved)} reserved rows for {len(missing)} missing UIDs")
        order = np.argsort(draws.uniforms("stand-ins", len(reserved)))
        self._donor_of_rank = np.zeros_like(membership.row_of_rank)
        self._donor_of_rank[missing] = reserved[order[: len(missing)]]

    def donors(self, ranks: Rows, epoch: int) -> Rows:  # noqa: ARG002 - as of `Donors`
        return self._donor_of_rank[ranks]
