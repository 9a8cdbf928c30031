"""A recipe for every table and figure of the paper that shows measurements.

A recipe lists the conditions to measure; recipes share conditions. The overview (Figure 1) and the
training step (Table 4) show no measurements.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, get_args

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import quoted
from florist.experiments.paper.numbers import (
    RATIOS,
    SAMPLES,
    SAMPLES_EPOCHS,
    SETUPS,
    TABLE_RATIO,
    DatasetName,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from florist.common.settings.data import Scaling

DATASETS: tuple[DatasetName, ...] = get_args(DatasetName)


class Lacking(StrEnum):
    """Which data are partly synthetic: the three groups of the paper's simulations."""

    labels = "labels"
    features = "features"
    both = "both"

    @property
    def symbol(self) -> str:
        """The paper's symbol for the ratio of synthetic data."""
        return {"labels": "β", "features": "α", "both": "α = β"}[self.value]


FULL, PARTIAL = "baseline-full", "baseline-partial"
FLORIST, VANILLA = "florist-paper", "florist-vanilla"
#: Methods other than baselines, in the order of the paper's tables.
METHODS: dict[Lacking, tuple[str, ...]] = {
    Lacking.labels: (
        "label-majority",
        "label-majority-tr",
        "label-majority-te",
        "label-minority",
        "label-random-pos",
        "label-random-pred",
        "label-neighbors",
    ),
    Lacking.features: (
        "fea-gaussian",
        "fea-random",
        "fea-sampling",
        "fea-sampling-tr",
        "fea-sampling-te",
    ),
    Lacking.both: (FLORIST, VANILLA),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition under which a number of the paper was measured; each seed is a trial."""

    dataset: DatasetName
    lacking: Lacking
    #: One of `METHODS`, or a baseline.
    method: str
    #: Ratio of synthetic data at each party that lacks some; 0 for `baseline-full`.
    ratio: float
    #: Number of labels averaged per row.
    samples: int = 1
    #: Number of epochs, if it differs from the scale's.
    epochs: int | None = None

    @property
    def alpha(self) -> float:
        """The fraction of rows whose features are synthetic."""
        return 0.0 if self.lacking is Lacking.labels else self.ratio

    @property
    def beta(self) -> float:
        """The fraction of rows whose labels are synthetic."""
        return 0.0 if self.lacking is Lacking.features else self.ratio


def baseline_full(dataset: DatasetName) -> Condition:
    """Return the condition of `baseline-full`, which is the same in all groups."""
    return Condition(dataset, Lacking.both, FULL, 0.0)


class RecipeKind(StrEnum):
    """What a table or figure shows."""

    attack_table = "attack table"
    change_table = "change of AUC"
    samples_table = "samples"
    utility = "utility"
    convergence = "convergence"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to reproduce one table or figure."""

    kind: RecipeKind
    dataset: DatasetName
    lacking: Lacking
    #: Its number in the paper.
    source: str

    @property
    def name(self) -> str:
        ending = {
            RecipeKind.attack_table: f"{self.lacking}-attacks",
            RecipeKind.change_table: "auc-change",
            RecipeKind.samples_table: "samples",
            RecipeKind.utility: f"{self.lacking}",
            RecipeKind.convergence: "convergence",
        }
        return f"{self.dataset}-{ending[self.kind]}"

    @property
    def shows(self) -> str:
        whose = {"both": "labels, features"}.get(self.lacking, self.lacking.value)
        return {
            RecipeKind.attack_table: f"attack AUC by strategy for {whose}",
            RecipeKind.change_table: "FLORIST against baseline-partial",
            RecipeKind.samples_table: "label-random-pred, labels averaged",
            RecipeKind.utility: f"AUC and ACE, synthetic {whose}",
            RecipeKind.convergence: "convergence of FLORIST",
        }[self.kind]

    def conditions(self, ratios: Sequence[float], samples: Sequence[int]) -> list[Condition]:
        """Return the conditions to measure; the arguments apply where the paper has a range."""
        florist, partial = (
            [Condition(self.dataset, Lacking.both, method, ratio) for ratio in ratios]
            for method in (FLORIST, PARTIAL)
        )
        match self.kind:
            case RecipeKind.attack_table:
                return [
                    Condition(self.dataset, self.lacking, method, TABLE_RATIO)
                    for method in METHODS[self.lacking]
                ]
            case RecipeKind.change_table:
                return [*partial, *florist]
            case RecipeKind.samples_table:
                return [sampled_labels(self.dataset, number) for number in samples]
            case RecipeKind.utility:
                return [
                    baseline_full(self.dataset),
                    *(
                        Condition(self.dataset, self.lacking, method, ratio)
                        for method in (PARTIAL, *METHODS[self.lacking])
                        for ratio in ratios
                    ),
                ]
            case RecipeKind.convergence:
                return florist


def sampled_labels(dataset: DatasetName, number: int) -> Condition:
    """Return the condition of a column of Table 5."""
    single = Condition(dataset, Lacking.labels, "label-random-pred", TABLE_RATIO)
    return replace(single, samples=number, epochs=SAMPLES_EPOCHS)


#: In the order of the paper.
RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(RecipeKind.utility, "criteo", Lacking.labels, "Figure 2 (a), (d)"),
        Recipe(RecipeKind.attack_table, "criteo", Lacking.labels, "Table 1"),
        Recipe(RecipeKind.utility, "criteo", Lacking.features, "Figure 2 (b), (e)"),
        Recipe(RecipeKind.attack_table, "criteo", Lacking.features, "Table 2"),
        Recipe(RecipeKind.utility, "criteo", Lacking.both, "Figure 2 (c), (f)"),
        Recipe(RecipeKind.change_table, "criteo", Lacking.both, "Table 3"),
        Recipe(RecipeKind.convergence, "criteo", Lacking.both, "Figure 2 (h), (i), (j)"),
        Recipe(RecipeKind.samples_table, "avazu", Lacking.labels, "Table 5"),
        Recipe(RecipeKind.utility, "avazu", Lacking.labels, "Figure 3 (a), (d)"),
        Recipe(RecipeKind.attack_table, "avazu", Lacking.labels, "Table 6"),
        Recipe(RecipeKind.utility, "avazu", Lacking.features, "Figure 3 (b), (e)"),
        Recipe(RecipeKind.attack_table, "avazu", Lacking.features, "Table 7"),
        Recipe(RecipeKind.utility, "avazu", Lacking.both, "Figure 3 (c), (f)"),
        Recipe(RecipeKind.change_table, "avazu", Lacking.both, "Table 8"),
    )
}


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of the experiments."""

    name: str
    #: Number of rows to sample from each data set, test included; None: all.
    rows: Mapping[DatasetName, int | None]
    ratios: tuple[float, ...]
    samples: tuple[int, ...]
    seeds: int
    epochs: int
    batch_size: int
    learning_rate: float
    #: Preprocessing: categories in fewer rows are merged; numbers use this scale.
    min_count: int
    scaling: Scaling
    #: Whether to make all attacks where the paper lists some, and the paper's attack everywhere;
    #: otherwise only the paper's attack where it lists it, which needs less memory.
    every_attack: bool
    #: Whether data sets without a file are generated.
    generates_data: bool = False


#: Takes half an hour on two cores. Few rows need many small steps rather than few large ones.
SMALL = Scale(
    name="small",
    rows={"criteo": 40_000, "avazu": 40_000},
    ratios=(0.05, 0.25, 0.5, 0.75, 0.95),
    samples=(1, 2, 4, 10),
    seeds=2,
    epochs=3,
    batch_size=512,
    learning_rate=5e-4,
    min_count=10,
    scaling="log",
    every_attack=True,
    generates_data=True,
)
PAPER = Scale(
    name="paper",
    rows={"criteo": SETUPS["criteo"].rows, "avazu": None},
    ratios=RATIOS,
    samples=tuple(SAMPLES),
    seeds=1,
    epochs=3,
    batch_size=8192,
    learning_rate=1e-4,
    min_count=1,
    scaling="linear",
    every_attack=False,
)
SCALES: dict[str, Scale] = {scale.name: scale for scale in (SMALL, PAPER)}


def chosen(names: Iterable[str]) -> list[Recipe]:
    """Return the recipes of these names, or all if there are none, in the order of the paper.

    Raises:
        ConfigurationError: a name is unknown.
    """
    wanted = set(names) or set(RECIPES)
    if unknown := sorted(wanted - set(RECIPES)):
        raise ConfigurationError(
            f"recipe {quoted(unknown[0])} is unknown; known are: {', '.join(RECIPES)}"
        )
    return [recipe for name, recipe in RECIPES.items() if name in wanted]


def all_conditions(recipes: Iterable[Recipe], scale: Scale) -> list[Condition]:
    """Return the conditions that recipes need, without duplicates."""
    needed = (recipe.conditions(scale.ratios, scale.samples) for recipe in recipes)
    return list(dict.fromkeys(condition for some in needed for condition in some))


def count_trials(recipes: Collection[Recipe]) -> str:
    """Return the number of trials that recipes need at each scale, separated by commas."""
    return ", ".join(
        str(scale.seeds * len(all_conditions(recipes, scale))) for scale in SCALES.values()
    )
