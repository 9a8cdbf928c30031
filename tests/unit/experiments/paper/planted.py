"""Invented results for which all of the paper's conclusions hold."""

from __future__ import annotations

from florist.common.training.history import EpochFigures
from florist.experiments.paper.explanations import DataFacts
from florist.experiments.paper.numbers import FEATURE_ATTACKS, LABEL_ATTACKS, SAMPLES
from florist.experiments.paper.recipes import (
    RECIPES,
    SMALL,
    Condition,
    Lacking,
    all_conditions,
    chosen,
)
from florist.experiments.paper.report import PaperStudy
from florist.experiments.paper.results import Measured, Results

CONDITIONS = all_conditions(RECIPES.values(), SMALL)


def epochs(first: float, last: float) -> list[EpochFigures]:
    """Epochs with losses from `first` to `last`; a lower loss gives a higher AUC."""
    losses = (first, (first + last) / 2, last)
    return [EpochFigures(n, loss, 1.3 - loss, 0.02, loss) for n, loss in enumerate(losses)]


def measured(condition: Condition) -> Measured:
    """Calibrated methods have a low ACE; that of others grows with the ratio."""
    ratio, method = condition.ratio, condition.method
    partial = 0.78 - 0.03 * ratio
    below = {
        "label-random-pred": 0.008,
        "label-random-pos": 0.011,
        "label-neighbors": 0.012,
        "label-minority": 0.03,
        "florist-paper": 0.02 * ratio,
        "florist-vanilla": 0.02 * ratio + 0.001,
    }
    auc = partial - below.get(method, 0.02 * ratio if method.startswith("fea-sampling") else 0.002)
    if method == "baseline-partial":
        auc = partial
    shifted = method in {"label-majority", "label-minority", "fea-sampling", "florist-vanilla"}
    attacks = {**LABEL_ATTACKS[condition.dataset], **FEATURE_ATTACKS[condition.dataset]}
    attack = attacks.get(method)
    if condition.epochs is not None:
        auc, attack = SAMPLES[condition.samples].auc, SAMPLES[condition.samples].attack_auc
    if condition.lacking is Lacking.both:
        attack = None
    return Measured(
        auc=auc,
        ace=0.01 + (0.2 * ratio if shifted else 0),
        attack_auc=attack,
        leak=None if attack is None else 0.7,
        leak_by="flips",
        losses={10: 0.7, 20: 0.5, 30: 0.45},
        epochs=epochs(0.6 + ratio / 10, 0.5),
    )


def results(*, without: str = "") -> Results:
    """All results of the small scale, except those of one method."""
    return Results((c, measured(c)) for c in CONDITIONS if c.method != without)


def study(*names: str) -> PaperStudy:
    """A study of all recipes, or of these."""
    facts = {
        "criteo": DataFacts("criteo", "criteo.tsv.gz", 36_000, 4_000, 0.26, real=True),
        "avazu": DataFacts("avazu", "generated clicks", 36_000, 4_000, 0.25, real=False),
    }
    recipes = chosen(names)
    data = {recipe.dataset: facts[recipe.dataset] for recipe in recipes}
    return PaperStudy(SMALL, data, recipes, results(), "0.1.0")
