"""The sizes that both parties learn from a union, and the estimates that follow from them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UnionSizes:
    """The sizes of both padded sets and of their union.

    With private counts, each set contains one whole pool of IDs that are nobody's, a random part of
    another, and a random number of dummies (docs/concepts/private-counts.md). Estimates subtract
    their means; nobody computes the exact number of shared people.
    """

    own: int
    peer: int
    union: int
    #: Elements of the union that a party has planted; they are nobody's.
    planted: int = 0
    #: The number of IDs in each of the two pools; 0 if the counts are exact.
    pool: int = 0
    #: The standard deviation of `shared_estimate`; 0 if it is exact.
    shared_deviation: float = 0.0

    @property
    def is_exact(self) -> bool:
        """Whether the estimates are exact, apart from dummies that a party has configured."""
        return self.pool == 0

    @property
    def shared_estimate(self) -> int:
        """Ŝ, the estimate of the number of shared people; unbiased, and possibly negative."""
        return self.own + self.peer - (self.union - self.planted) - self.pool

    @property
    def own_people_estimate(self) -> int:
        """The estimate of the number of our people, as the peer can compute it."""
        return self.own - 2 * self.pool

    @property
    def peer_people_estimate(self) -> int:
        """The estimate of the number of the peer's people; dummies that it configured count."""
        return self.peer - 2 * self.pool

    @property
    def shared_share(self) -> float:
        """The estimated share of the smaller set's people that are shared, between 0 and 1."""
        smaller = min(self.own_people_estimate, self.peer_people_estimate)
        return min(max(self.shared_estimate / max(smaller, 1), 0.0), 1.0)
