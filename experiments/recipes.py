"""A recipe for every table and figure of the paper that holds measurements.

A recipe says which conditions must be measured; recipes that need the same ones share them. The
figure of the overview and the diagram of the training step (figure 1, table 4) measure nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, get_args

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import quoted
from florist.experiments.paper_figures import (
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
    """Whose data are synthetic, in part: the three groups of the paper's simulations."""

    labels = "labels"
    features = "features"
    both = "both"

    @property
    def symbol(self) -> str:
        """The paper's, of the ratio of synthetic data."""
        return {"labels": "β", "features": "α", "both": "α = β"}[self.value]


FULL, PARTIAL = "baseline-full", "baseline-partial"
FLORIST, VANILLA = "florist-paper", "florist-vanilla"
#: In the order of the paper's tables; baselines aside.
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
    """What one number of the paper was measured on; each seed is a trial of it."""

    dataset: DatasetName
    lacking: Lacking
    #: One of `METHODS`, or a baseline.
    method: str
    #: Of synthetic data, with each party that lacks some; 0 for `baseline-full`.
    ratio: float
    #: Labels averaged per row.
    samples: int = 1
    #: Where they differ from the scale's.
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
    """The same whoever lacks what, since nobody does."""
    return Condition(dataset, Lacking.both, FULL, 0.0)


class RecipeKind(StrEnum):
    """What is shown, and how."""

    attack_table = "attack table"
    change_table = "change of AUC"
    samples_table = "samples"
    utility = "utility"
    convergence = "convergence"


@dataclass(frozen=True, slots=True)
class Recipe:
    """One table or figure."""

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
        """What it needs, none twice; `ratios` and `samples` as far as it is free to choose."""
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
    """A column of the table of appendix H."""
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
    #: Rows taken of each data set at random, test included; None for all.
    rows: Mapping[DatasetName, int | None]
    ratios: tuple[float, ...]
    samples: tuple[int, ...]
    seeds: int
    epochs: int
    batch_size: int
    learning_rate: float
    #: Categories in fewer rows are one; numbers on this scale.
    min_count: int
    scaling: Scaling
    #: Whether to make all attacks where the paper lists some, and the paper's own everywhere; else
    #: only the paper's, where it lists them: what they look at takes much memory.
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
    """The recipes of these names, all if there are none, in the order of the paper.

    Raises:
        ConfigurationError: there is none of a name.
    """
    wanted = set(names) or set(RECIPES)
    if unknown := sorted(wanted - set(RECIPES)):
        raise ConfigurationError(
            f"no recipe is called {quoted(unknown[0])}; there are {', '.join(RECIPES)}"
        )
    return [recipe for name, recipe in RECIPES.items() if name in wanted]


def all_conditions(recipes: Iterable[Recipe], scale: Scale) -> list[Condition]:
    """What all of them need together, none twice."""
    needed = (recipe.conditions(scale.ratios, scale.samples) for recipe in recipes)
    return list(dict.fromkeys(condition for some in needed for condition in some))


def count_trials(recipes: Collection[Recipe]) -> str:
    """Return the number of trials that recipes need at each scale, separated by commas."""
    return ", ".join(
        str(scale.seeds * len(all_conditions(recipes, scale))) for scale in SCALES.values()
    )
