"""Simulated stand-ins by cluster: donors are of the UID's cluster wherever it has some."""

from __future__ import annotations

import numpy as np
import pytest

from florist.common.core.errors import ConfigurationError
from florist.common.data.features import Features
from florist.common.settings.agreement import TrainingAgreement
from florist.common.settings.training import Model, Optimiser
from florist.common.synthetic.secret_draws import SecretDraws
from florist.experiments.cluster_stand_ins import (
    ClusterDonorPool,
    KnownClusters,
    cluster_stand_ins,
)
from florist.experiments.simulation import (
    Holdings,
    SimulationSettings,
    Union,
    Wiring,
    World,
    observe,
)

ROWS, UNION, CLUSTERS = 600, 900, 4
RANDOM = np.random.default_rng(0)
KNOWN = KnownClusters(
    CLUSTERS,
    of_rank=RANDOM.integers(-1, CLUSTERS, UNION),
    of_row=RANDOM.integers(0, CLUSTERS - 1, ROWS),  # nobody is of the last one
)


def test_offers_are_donors_of_the_cluster_and_class() -> None:
    pool = ClusterDonorPool(2, ROWS, SecretDraws.from_seed(1), KNOWN)
    classes = RANDOM.integers(0, 2, ROWS)
    ranks = np.arange(0, UNION, 3)
    clusters = KNOWN.of_rank[ranks]
    first = pool.offers(ranks, 0)
    assert (first.in_cluster == -1).all()  # no donors yet
    pool.add(np.arange(ROWS), classes)
    offers = pool.offers(ranks, 1)
    has_donors = (clusters >= 0) & (clusters < CLUSTERS - 1)
    for label in range(2):
        offered = offers.rows[label]
        assert (classes[offered] == label).all()
        assert (KNOWN.of_row[offered[has_donors]] == clusters[has_donors]).all()
        assert ((offers.in_cluster[label] >= 0) == has_donors).all()
        assert ((offers.positions[label] >= 0) == ~has_donors).all()


def test_opened_donors_are_used_again_last() -> None:
    pool = ClusterDonorPool(2, ROWS, SecretDraws.from_seed(1), KNOWN)
    pool.add(np.arange(ROWS), np.zeros(ROWS, dtype=np.int64))
    ranks = np.flatnonzero(KNOWN.of_rank == 0)[:40]
    seen: set[int] = set()
    for step in range(3):
        offers = pool.offers(ranks, step)
        rows = set(offers.rows[0].tolist())
        assert len(rows) == len(ranks)
        assert not rows & seen
        seen |= rows
        pool.opened(offers, np.zeros(len(ranks), dtype=np.int64))


def _world() -> World:
    """Return people whose features at the two parties are the same category."""
    random = np.random.default_rng(3)
    category = random.integers(0, CLUSTERS, (1200, 1)).astype(np.int32)
    nothing = np.zeros((1200, 0), dtype=np.float32)
    features = Features(nothing, category)
    labels = random.integers(0, 2, 1200)
    return World(features, labels, (CLUSTERS,), features, (CLUSTERS,))


def test_the_active_party_sees_stand_ins_of_its_own_cluster() -> None:
    world = _world()
    people = np.arange(1200)
    holdings = Holdings(people[:900], people[300:])
    union = Union.drawn(1200, holdings, 0)
    agreement = TrainingAgreement(epochs=1, batch_size=100, checkpoint_every=0, embedding_noise=0.0)
    settings = SimulationSettings(agreement, Model(hidden=[4], tower=[4]), Optimiser(), seed=0)

    def distance_of_stand_ins(wiring: Wiring) -> float:
        """Return how far the embeddings of stand-ins are from those of real people alike."""
        run = observe(world, holdings, None, settings, union=union, wiring=wiring)
        assert run.seen is not None
        last = run.seen.active.steps[-1]
        person = np.argsort(union.rank_of)[last.ranks]
        category, real = world.features.categories[person, 0], person >= 300
        is_own = person < 900
        values = last.embeddings[:, 0]
        distances = [
            np.abs(values[here & ~real] - np.median(values[here & real]))
            for number in range(CLUSTERS)
            if (here := is_own & (category == number)).any()
        ]
        return float(np.concatenate(distances).mean())

    by_cluster = Wiring(make_passive=cluster_stand_ins(world, holdings, union, CLUSTERS))
    assert distance_of_stand_ins(by_cluster) < 0.1 * distance_of_stand_ins(Wiring())


def test_clusters_need_features_of_the_active_party() -> None:
    world = _world()
    alone = World(world.features, world.labels, world.cardinalities)
    holdings = Holdings(np.arange(10), np.arange(10))
    with pytest.raises(ConfigurationError, match="need features of the active party"):
        cluster_stand_ins(alone, holdings, Union.drawn(1200, holdings, 0), CLUSTERS)
