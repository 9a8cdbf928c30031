"""Stand-ins of the cluster that the active party's features of a person belong to.

A stand-in that fits the label still does not fit the active party's own features (`pair`). Here the
active party opens the offer of its label *and* of its cluster of the person, and the passive party
offers a donor of each. For that the passive party would have to know the cluster of its own rows,
which only the active party's features tell: no protocol does this without a further leak. A
simulation knows them, and so gives a bound: what such stand-ins would achieve at best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.attack_tools.feature_clusters import feature_clusters
from florist.common.audit.view import OwnFeatures
from florist.common.core.errors import ConfigurationError
from florist.common.synthetic.donor_pool import NOT_FROM_POOL, ClassDonors, DonorPool, Offers
from florist.passive_party.training import make_passive_half

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    from torch import Tensor

    from florist.common.synthetic.secret_draws import SecretDraws
    from florist.common.training.half_setup import HalfSetup
    from florist.common.training.loop import Run
    from florist.common.transport.channel import Channel
    from florist.experiments.simulation import Holdings, Union, World
    from florist.passive_party.training import PassiveHalf

    Rows = npt.NDArray[np.int64]
    MakePassiveHalf = Callable[[HalfSetup, Channel, Run], PassiveHalf]

#: A class of a cluster has donors of its own from this number on.
_FEWEST = 3


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KnownClusters:
    """The clusters that a simulation knows."""

    count: int
    #: The active party's cluster of each UID, by its rank in `U`; -1 where it lacks the person.
    of_rank: Rows
    #: The cluster that each row of the passive party's table would have.
    of_row: Rows


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ClusterOffers(Offers):
    """Offers, and which of them are of the UID's cluster."""

    #: The cluster of each UID; -1 if there is none.
    clusters: Rows
    #: Position of each offer among the donors of its class and cluster; -1 if it is not of them.
    in_cluster: Rows


class ClusterDonorPool(DonorPool):
    """Donors by class and cluster; by class alone where a cluster has too few."""

    def __init__(self, classes: int, rows: int, draws: SecretDraws, known: KnownClusters) -> None:
        super().__init__(classes, rows, draws)
        self._known = known
        self._cluster_draws = draws.derive("donors by cluster")
        self._by_cluster = [
            [ClassDonors(np.empty(0, dtype=np.int64), 0) for _ in range(known.count)]
            for _ in range(classes)
        ]

    def offers(self, ranks: Rows, step: int) -> ClusterOffers:
        plain = super().offers(ranks, step)
        rows, positions = plain.rows.copy(), plain.positions.copy()
        in_cluster = np.full_like(positions, NOT_FROM_POOL)
        clusters = self._known.of_rank[ranks]
        for cluster in np.unique(clusters[clusters >= 0]):
            here = np.flatnonzero(clusters == cluster)
            for label, by_cluster in enumerate(self._by_cluster):
                donors = by_cluster[cluster]
                if len(donors) >= _FEWEST:
                    drawn = donors.drawn(len(here), self._cluster_draws, label, int(cluster), step)
                    rows[label, here] = donors.rows[drawn]
                    positions[label, here] = NOT_FROM_POOL
                    in_cluster[label, here] = drawn
        return ClusterOffers(rows, positions, clusters, in_cluster)

    def opened(self, offers: Offers, labels: Rows) -> None:
        super().opened(offers, labels)
        assert isinstance(offers, ClusterOffers)
        for label, by_cluster in enumerate(self._by_cluster):
            positions = offers.in_cluster[label]
            is_opened = (labels == label) & (positions != NOT_FROM_POOL)
            for cluster in np.unique(offers.clusters[is_opened]):
                by_cluster[cluster].open(positions[is_opened & (offers.clusters == cluster)])

    def add(self, rows: Rows, classes: Rows) -> None:
        super().add(rows, classes)
        clusters = self._known.of_row[rows]
        for label, by_cluster in enumerate(self._by_cluster):
            for cluster in np.unique(clusters[classes == label]):
                by_cluster[cluster].add(rows[(classes == label) & (clusters == cluster)])

    def restore(self, state: dict[str, Tensor]) -> None:
        raise NotImplementedError("a simulation is not resumed")


def cluster_stand_ins(
    world: World, holdings: Holdings, union: Union, clusters: int
) -> MakePassiveHalf:
    """Return what makes a passive half whose stand-ins are of the active party's cluster.

    Args:
        world: all people; the active party needs features.
        holdings: which people each party has.
        union: their ranks.
        clusters: the number of clusters of the active party's features.

    Raises:
        ConfigurationError: the active party has no features, or too few people to cluster.
    """
    found = None
    if world.own_features is not None:
        features = OwnFeatures(world.own_features, world.own_cardinalities)
        found = feature_clusters(features, clusters)
    if found is None:
        raise ConfigurationError(
            f"clusters: {clusters} clusters need features of the active party, and more people"
        )
    of_rank = np.full(union.size, -1, dtype=np.int64)
    of_rank[union.rank_of[holdings.active]] = found[holdings.active]
    known = KnownClusters(int(found.max()) + 1, of_rank, found[holdings.passive])

    def make_pool(classes: int, rows: int, draws: SecretDraws) -> DonorPool:
        return ClusterDonorPool(classes, rows, draws, known)

    def make(setup: HalfSetup, channel: Channel, run: Run) -> PassiveHalf:
        return make_passive_half(setup, channel, run, make_pool)

    return make
