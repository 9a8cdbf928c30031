"""Recipes: every table and figure of the paper, with valid conditions."""

from __future__ import annotations

import pytest

from florist.common.core.errors import ConfigurationError
from florist.experiments import methods
from florist.experiments.paper import numbers
from florist.experiments.paper.numbers import (
    AUC_CHANGES,
    DROPS,
    FEATURE_ATTACKS,
    LABEL_ATTACKS,
    RATIOS,
    SAMPLES,
    TABLE_RATIO,
)
from florist.experiments.paper.recipes import (
    DATASETS,
    FULL,
    METHODS,
    PARTIAL,
    RECIPES,
    SCALES,
    Condition,
    Lacking,
    RecipeKind,
    all_conditions,
    chosen,
    sampled_labels,
)

SMALL = SCALES["small"]


def test_every_table_and_figure_with_measurements_has_a_recipe() -> None:
    sources = {recipe.source for recipe in RECIPES.values()}
    assert len(sources) == len(RECIPES)
    assert {f"Table {number}" for number in (1, 2, 3, 5, 6, 7, 8)} < sources
    panels = " ".join(sorted(source for source in sources if source.startswith("Figure")))
    assert [panels.count(f"({panel})") for panel in "abcdefhij"] == [2] * 6 + [1] * 3


def test_the_papers_numbers_belong_to_known_methods() -> None:
    for dataset in DATASETS:
        assert tuple(LABEL_ATTACKS[dataset]) == METHODS[Lacking.labels]
        assert tuple(FEATURE_ATTACKS[dataset]) == METHODS[Lacking.features]
        assert tuple(AUC_CHANGES[dataset]) == RATIOS
        assert all(change < 0 for change in AUC_CHANGES[dataset].values())
    assert list(SAMPLES) == list(range(1, 11))
    known = {method for names in METHODS.values() for method in names} | {FULL, PARTIAL}
    assert {drop.method for drop in DROPS} | {drop.baseline for drop in DROPS} < known
    assert known <= set(methods.METHODS.names)


def test_the_numbers_are_those_printed() -> None:
    """A sample, to detect typing errors."""
    assert LABEL_ATTACKS["criteo"]["label-minority"] == 0.6511
    assert LABEL_ATTACKS["avazu"]["label-random-pos"] == 0.442587
    assert FEATURE_ATTACKS["criteo"]["fea-random"] == 0.982
    assert FEATURE_ATTACKS["avazu"]["fea-sampling-te"] == 0.557020
    assert AUC_CHANGES["criteo"][0.95] == -5.119
    assert AUC_CHANGES["avazu"][0.9] == -11.55
    assert (SAMPLES[7].auc, SAMPLES[7].attack_auc) == (0.7489, 0.7041)
    assert numbers.SETUPS["avazu"].batch_size == 8192


@pytest.mark.parametrize("scale", SCALES)
def test_ratios_span_the_whole_range(scale: str) -> None:
    ratios = SCALES[scale].ratios
    assert (ratios[0], ratios[-1]) == (0.05, 0.95)
    assert TABLE_RATIO in ratios
    assert set(ratios) <= set(RATIOS)


def test_the_paper_scale_matches_the_paper() -> None:
    scale, setup = SCALES["paper"], numbers.SETUPS["criteo"]
    assert scale.ratios == RATIOS
    assert scale.samples == tuple(SAMPLES)
    assert (scale.batch_size, scale.learning_rate, scale.epochs) == (
        setup.batch_size,
        setup.learning_rate,
        setup.epochs,
    )
    assert (scale.min_count, scale.scaling) == (1, "linear")


def test_who_lacks_what() -> None:
    for condition in all_conditions(RECIPES.values(), SMALL):
        assert (condition.alpha > 0) == (
            condition.lacking is not Lacking.labels and condition.method != FULL
        )
        assert (condition.beta > 0) == (
            condition.lacking is not Lacking.features and condition.method != FULL
        )


def test_recipes_share_conditions() -> None:
    needed = {name: set(all_conditions([recipe], SMALL)) for name, recipe in RECIPES.items()}
    for dataset in DATASETS:
        for lacking in ("labels", "features"):
            assert needed[f"{dataset}-{lacking}-attacks"] < needed[f"{dataset}-{lacking}"]
        assert needed[f"{dataset}-auc-change"] < needed[f"{dataset}-both"]
    together = all_conditions(RECIPES.values(), SMALL)
    assert len(together) == len(set(together)) < sum(map(len, needed.values()))


def test_the_samples_table_has_its_own_epochs() -> None:
    (recipe,) = (recipe for recipe in RECIPES.values() if recipe.kind is RecipeKind.samples_table)
    assert recipe.conditions((), (1, 4)) == [sampled_labels("avazu", n) for n in (1, 4)]
    assert sampled_labels("avazu", 4) == Condition(
        "avazu", Lacking.labels, "label-random-pred", 0.5, samples=4, epochs=2
    )


def test_recipes_are_chosen_by_name_in_the_papers_order() -> None:
    assert chosen([]) == list(RECIPES.values())
    names = ["avazu-samples", "criteo-labels"]
    assert [recipe.name for recipe in chosen(names)] == ["criteo-labels", "avazu-samples"]
    with pytest.raises(ConfigurationError, match="recipe 'criteo' is unknown; known are: criteo-"):
        chosen(["criteo"])
