"""Calibration with a prior per row, for an active party with its own features."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from florist.common.data.features import Features
from florist.common.settings.agreement import TrainingAgreement
from florist.common.settings.training import Model, Optimiser
from florist.common.synthetic.calibration import (
    Calibration,
    Mixture,
    RowMixture,
    cross_entropies,
)
from florist.experiments.simulation import Holdings, SimulationSettings, World, simulate
from tests.unit.synthetic.paper_mixtures import two_classes


def test_a_constant_prior_equals_the_plain_mixture() -> None:
    logits, targets = torch.randn(50), torch.rand(50)
    plain = two_classes(0.4, 0.6 * 0.25)
    rows = RowMixture(0.4, torch.full((50,), 0.25))
    torch.testing.assert_close(
        cross_entropies(logits, targets, rows), cross_entropies(logits, targets, plain)
    )
    torch.testing.assert_close(rows.truth(logits.sigmoid()), plain.truth(logits.sigmoid()))


def test_several_classes() -> None:
    logits, targets = torch.randn(50, 3), torch.rand(50, 3).softmax(1)
    frequencies = (0.2, 0.3, 0.5)
    plain = Mixture(0.4, tuple(0.6 * f for f in frequencies))
    rows = RowMixture(0.4, torch.tensor(frequencies).expand(50, 3))
    torch.testing.assert_close(
        cross_entropies(logits, targets, rows), cross_entropies(logits, targets, plain)
    )


def test_test_time_calibration_inverts_row_by_row() -> None:
    truth, prior = torch.rand(50), torch.rand(50)
    observed = 0.3 * truth + 0.7 * prior
    logits = torch.logit(observed.double()).float()
    found = Calibration("test", two_classes(0.3, 0.1)).given(prior).predict(logits)
    torch.testing.assert_close(found, truth, atol=1e-4, rtol=1e-3)


def test_no_gradient_reaches_the_prior_through_the_mixture() -> None:
    prior = torch.rand(5, requires_grad=True)
    logits = torch.zeros(5, requires_grad=True)
    mixture = RowMixture(0.5, prior.detach())
    cross_entropies(logits, torch.ones(5), mixture).sum().backward()
    assert prior.grad is None
    assert logits.grad is not None


#: Stand-ins that do not fit the label, with the paper's cut; and those of the default, whose
#: features are independent of the active party's given the label.
AGREED: tuple[dict[str, object], ...] = (
    {"cut_width": 16, "stand_ins": "plain"},
    {"cut_width": 0, "stand_ins": "oblivious"},
)


@pytest.mark.parametrize("agreed", AGREED)
@pytest.mark.parametrize("seed", [0, 1])
def test_own_features_are_used_and_the_model_stays_calibrated(
    seed: int, agreed: dict[str, object]
) -> None:
    """Labels depend on both parties' features; half of the active party's rows are stand-ins."""
    random = np.random.default_rng(seed)
    rows = 24_000
    own, theirs = (random.random((rows, 2)).astype(np.float32) for _ in range(2))
    logits = 6 * (own[:, 0] - 0.5) + 6 * (theirs[:, 0] - 0.5)
    truth = 1 / (1 + np.exp(-logits))
    labels = (random.random(rows) < truth).astype(np.int64)

    def world(part: slice) -> World:
        nothing = np.zeros((len(labels[part]), 0), dtype=np.int32)
        return World(
            Features(np.ascontiguousarray(theirs[part]), nothing),
            labels[part],
            (),
            Features(np.ascontiguousarray(own[part]), nothing),
            (),
        )

    train, test = slice(0, 20_000), slice(20_000, rows)
    holdings = Holdings(random.permutation(20_000)[:14_000], random.permutation(20_000)[:10_000])
    settings = SimulationSettings(
        TrainingAgreement.model_validate(
            {"epochs": 6, "batch_size": 256, "micro_batch": 256, **agreed}
        ),
        Model(hidden=[16, 16], tower=[16, 16]),
        Optimiser(learning_rate=3e-3),
        seed,
    )
    active, _ = simulate(world(train), holdings, world(test), settings)
    figures = active.run.history.epochs[-1]
    assert figures.auc is not None
    assert figures.ace is not None
    assert figures.auc > 0.80  # own features alone reach about 0.74, both together at most 0.90
    assert figures.ace < 0.05
